"""How many log lines of a kind go through, and what is said of the others."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import attrs
import pytest
import trio
from triolog.server.config.broker_config import BrokerConfig
from triolog.server.config.values import DEFAULT_LINES_PER_MINUTE, LogLevel
from triolog.server.service.log_lines import CHARS_PER_LINE, MAX_KINDS, MINUTE_S, LineLimit, LogLines, configure_logging

LOGGER = logging.getLogger("planted")


@attrs.define(eq=False)
class Lines:
    """A limit of two lines a minute, at a time that the test moves."""

    now_s: float = 0.0
    limit: LineLimit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = LineLimit(2, now_s=lambda: self.now_s)

    def passed(self, count: int, text: str = "%d came", level: int = logging.WARNING, error: Exception | None = None) -> int:
        """How many of `count` lines go through."""
        info = None if error is None else (type(error), error, error.__traceback__)
        records = [logging.LogRecord("planted", level, "", 0, text, (number,), info) for number in range(count)]
        return sum(self.limit.passes(record) for record in records)

    def said(self, *, at_once: bool = False) -> list[str]:
        return [record.getMessage() for record in self.limit.over(at_once=at_once)]


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_of_each_kind_so_many_go_through_in_a_minute(lines: Lines) -> None:
    assert lines.passed(5) == 2
    assert lines.passed(5, "%d went") == 2
    assert lines.passed(5, level=logging.INFO) == 2
    assert lines.said() == []
    lines.now_s = MINUTE_S
    assert lines.said() == [
        "3 lines of this kind were left out within a minute: %d came",
        "3 lines of this kind were left out within a minute: %d went",
        "3 lines of this kind were left out within a minute: %d came",
    ]
    assert lines.said() == []
    assert lines.passed(5) == 2


def test_a_minute_in_which_all_went_through_is_not_spoken_of(lines: Lines) -> None:
    lines.passed(2)
    lines.now_s = MINUTE_S
    assert lines.said() == []


def test_lines_that_were_asked_for_and_those_of_the_worst_kind_always_go_through(lines: Lines) -> None:
    assert lines.passed(5, level=logging.DEBUG) == 5
    assert lines.passed(5, level=logging.CRITICAL) == 5


def test_without_a_limit_everything_goes_through(lines: Lines) -> None:
    lines.limit.per_minute = 0
    assert lines.passed(500) == 500


def raised(place: int) -> Exception:
    try:
        if place == 1:
            raise ValueError(1)
        raise ValueError(2)
    except ValueError as exc:
        return exc


def test_an_error_from_another_place_is_another_kind(lines: Lines) -> None:
    assert lines.passed(5, level=logging.ERROR, error=raised(1)) == 2
    assert lines.passed(5, level=logging.ERROR, error=raised(2)) == 2
    assert lines.passed(5, level=logging.ERROR, error=ExceptionGroup("a nursery's", [raised(1)])) == 0
    assert lines.passed(5, level=logging.ERROR) == 2


def test_texts_with_values_in_them_do_not_take_memory_without_end(lines: Lines) -> None:
    passed = sum(lines.passed(1, f"{number} %d") for number in range(2 * MAX_KINDS))
    assert passed == MAX_KINDS + 2
    assert len(lines.said(at_once=True)) == 1


@pytest.fixture
def configured() -> Iterator[LogLines]:
    """The process's log."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield configure_logging("info", as_json=False)
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_what_was_left_out_is_said_before_the_next_line_or_at_the_end(
    configured: LogLines, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configured.set(BrokerConfig(data_dirs=("data",), log_level=LogLevel.WARNING, log_lines_per_minute=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(configured.tell_regularly)
        for number in range(4):
            LOGGER.info("not of interest %d", number)
            LOGGER.warning("again %d", number)
        await trio.sleep(3 * MINUTE_S)
        nursery.cancel_scope.cancel()
    assert [line.partition("message=")[2] for line in written.getvalue().splitlines()] == [
        '"again 0"',
        '"3 lines of this kind were left out within a minute: again %d"',
    ]


def test_log_lines_follow_standard_error_when_something_takes_its_place(
    configured: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = io.StringIO()
    monkeypatch.setattr(sys, "stderr", taken)
    LOGGER.info("between two drawings")
    assert 'message="between two drawings"' in taken.getvalue()


@pytest.mark.parametrize("as_text", [True, False], ids=["value", "text"])
def test_long_names_are_cut_and_do_not_fill_the_disk(
    configured: LogLines, monkeypatch: pytest.MonkeyPatch, as_text: bool
) -> None:
    """Also in a text that is an error's."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    name = "u" * 20_000
    for _ in range(2 * DEFAULT_LINES_PER_MINUTE):
        LOGGER.warning("%s did not log in as %r: %s", "peer", name if as_text else ValueError(name), "wrong password")
    lines = written.getvalue().splitlines()
    assert 1 < len(lines) < DEFAULT_LINES_PER_MINUTE
    assert len(written.getvalue()) < 2 * CHARS_PER_LINE * DEFAULT_LINES_PER_MINUTE
    if as_text:
        assert "wrong password" in lines[0]


def test_a_long_line_counts_as_several(lines: Lines) -> None:
    lines.limit.per_minute = 10
    assert lines.passed(20, "x" * (2 * CHARS_PER_LINE) + " %d") == 4
    lines.now_s = MINUTE_S
    [said] = lines.said()
    assert said.startswith("16 lines of this kind were left out")
