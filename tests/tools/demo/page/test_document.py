from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from triolog.server.offline.space import Space
from triolog.tools.demo.checks import Check, RecordPlace
from triolog.tools.demo.day import FlightsLine
from triolog.tools.demo.ending import DemoFindings
from triolog.tools.demo.page import narrator
from triolog.tools.demo.page.document import page
from triolog.tools.demo.page.narrator import PageNarrator
from triolog.tools.demo.producing import Kill, Production
from triolog.tools.demo.question import Airline, Answered
from triolog.tools.demo.story import FlightsNarrator, Lookup

from tests.support.drawings import Drawing
from tests.tools.pictures.test_space_picture import partition
from tests.tools.pictures.test_walk_picture import walk

HOSTILE = '<script>alert("1")</script>'
ADDRESS = re.compile(r'(?:src|href|action|data|poster)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg")')


class Reader(HTMLParser):
    """Which elements there are, and that each is closed in its place."""

    VOID = ("meta",)

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture
def told() -> PageNarrator:
    """A whole run."""
    found = PageNarrator(FlightsNarrator())
    found.producing(0)
    found.producing(2)
    kill = Kill(acknowledged=1, exit_status=-9, at_s=0.5, recovery_ms=250, resumed_ms=300)
    found.produced(Production(acknowledged=[RecordPlace(0, 0), RecordPlace(0, 1)], seconds=2.0, kill=kill))
    found.looked_up(Lookup(answers={}, median_us=1, walks={0: walk(), 1: walk()}, ranges={0: walk()}))
    found.carriers = [FlightsLine(HOSTILE, 5, 1, -3.25)]
    found.hours = [FlightsLine("05:00", 5, 0, None), FlightsLine("06:00", 10, 2, 4.0)]
    found.partitions, found.rest = [partition("flights", 0, 1 << 20)], Space(1, 4096)
    found.answered(Answered(airlines=[Airline(HOSTILE, None, 3)], seconds=0.5, records=7, total=9))
    return found


@pytest.fixture
def findings() -> DemoFindings:
    figures = {"rows": 2, "records_per_s": 1234.5, "recovery_ms": 250.4}
    return DemoFindings([Check("a claim", True, "1 of 1"), Check(HOSTILE, True, HOSTILE)], figures)


def test_the_page_is_one_file_with_all_figures_that_runs_nothing(told: PageNarrator, findings: DemoFindings) -> None:
    document = page(told, findings)
    assert not ADDRESS.search(document)
    assert not Reader(document).tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert "&lt;script&gt;alert" in document
    document = page(told, findings)
    drawings = [Drawing(found) for found in re.findall(r"<svg.*?</svg>", document, re.DOTALL)]
    assert [drawing.title.partition(":")[0] for drawing in drawings] == [
        "Records acknowledged",
        *("flights-0, EWR", "flights-1, JFK", "flights-0, EWR"),
        "Departures by hour",
        "room on the disk",
    ]
    assert "SIGKILL with 1 acknowledged" in drawings[0].texts
    assert drawings[4].hints == [
        "05: 5 flights, never left -, mean delay -",
        "06: 10 flights, never left 2, mean delay +4.0 min",
    ]
    assert document.count("<details>") == 1, "the other partitions' walks are closed"
    for said in ("<dd>1,234</dd>", "<dd>250</dd>", "All 2 checks held.", "<td>-3.2 min</td>", "7 of 9 records"):
        assert said in document


def test_whatever_a_run_told_there_is_a_page_of_what_did_not_hold(told: PageNarrator, findings: DemoFindings) -> None:
    findings.checks.append(Check("another", False, "2 of 3"))
    document = page(told, findings)
    assert "1 of 3 checks FAILED." in document
    assert '<b class="failed">FAILED</b>another' in document
    document = page(PageNarrator(FlightsNarrator()), DemoFindings())
    Reader(document)
    assert "0 of 0 checks FAILED." in document


def test_the_points_of_the_curve_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrator, "MOST_POINTS", 10)
    told = PageNarrator(FlightsNarrator())
    for number in range(1000):
        told.producing(number)
        assert len(told.acknowledged) <= 10
    assert (told.acknowledged[0][1], told.acknowledged[-1][1]) == (0.0, 999.0)
