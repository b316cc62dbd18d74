"""The page: one HTML file with its drawings in it, without scripts and without addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final
from zoneinfo import ZoneInfo

from ...pictures.canvas import Canvas, safe
from ...pictures.charts import Bar, bar_picture, curve_picture
from ...pictures.colors import FONT, style
from ...pictures.space_picture import space_picture
from ...pictures.walk_picture import walk_picture
from ..checks import Check
from ..day import DAY, FlightsLine
from ..ending import DemoFindings
from ..flights import AIRPORTS, NEW_YORK
from ..question import QUESTION, Answered
from .narrator import PageNarrator

TITLE: Final = "triolog: a year of departures from New York"
OUT_OF_ORDER: Final = (
    "The records are out of order: the file holds the months in the order 1, 10, 11, 12, 2, ..., so what comes first at or "
    "after that midnight left in another month, and the day lies further on."
)
_LIGHT: Final = "--ink:#1b2530;--quiet:#576472;--paper:#fff;--line:#dde3e9;--panel:#f5f7f9;--ok:#0b7a4b;--bad:#b3261e"
_DARK: Final = "--ink:#e6ebf0;--quiet:#9dabb9;--paper:#14191f;--line:#2a333d;--panel:#1b2129;--ok:#4cc38a;--bad:#ff8a80"
_STYLE: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    f"body{{font:15px/1.5 {FONT};max-width:840px;margin:0 auto;padding:24px 20px;color:var(--ink);background:var(--paper)}}"
    "h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:2em 0 .5em;border-top:1px solid var(--line);padding-top:1.2em}"
    "p{margin:.4em 0}.quiet{color:var(--quiet)}"
    ".drawn{overflow-x:auto;margin:.5em -20px}svg.tp{display:block;width:100%;min-width:680px;height:auto}"
    "summary{cursor:pointer;color:var(--quiet)}"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:1.2em 0}"
    "dl div{background:var(--panel);border-radius:6px;padding:10px 12px}dt{color:var(--quiet);font-size:.85em}"
    "dd{margin:0;font-size:1.3em;font-variant-numeric:tabular-nums}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}caption{text-align:left;color:var(--quiet)}"
    "td,th{padding:3px 18px 3px 0;text-align:right;border-bottom:1px solid var(--line)}th{font-weight:600}"
    "td:first-child,th:first-child{text-align:left}"
    "pre{background:var(--panel);border-radius:6px;padding:10px 12px;overflow-x:auto;font-size:.87em}"
    "ul.checks{list-style:none;padding:0}ul.checks li{padding:2px 0 2px 4.6em;text-indent:-4.6em}"
    "ul.checks b{display:inline-block;width:4.2em;text-indent:0}.ok{color:var(--ok)}.failed{color:var(--bad)}"
)
Cells = Sequence[str]


def page(told: PageNarrator, findings: DemoFindings) -> str:
    """The document of one run, whether its checks held or not."""
    body = "\n".join(_body(told, findings))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{TITLE}</title><style>{_STYLE}{style()}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def _body(told: PageNarrator, findings: DemoFindings) -> Iterator[str]:
    yield f"<h1>{TITLE}</h1>"
    yield _verdict(findings)
    yield _figures(findings.figures)
    yield "<h2>In: a record for each flight, and a SIGKILL on the way</h2>"
    yield from _production(told)
    if told.lookup is not None:
        yield f"<h2>Where does {DAY} begin?</h2>"
        yield _said(OUT_OF_ORDER)
        yield from _walks(told.lookup.walks)
        yield f"<h2>Which segments have records of {DAY}?</h2>"
        yield from _walks(told.lookup.ranges)
    if told.hours:
        yield f"<h2>{DAY} by time</h2>"
        bars = [Bar(line.label[:2], line.flights, _line_words(line)) for line in told.hours]
        yield _drawn(bar_picture("Departures by hour", bars, up="flights"))
        yield _table("By carrier", ("carrier", "flights", "never left", "mean delay"), map(_cells, told.carriers))
    if told.partitions:
        yield "<h2>On disk, after an orderly stop</h2>"
        yield _drawn(space_picture("log directory", told.partitions, told.rest))
    if told.answer is not None:
        yield "<h2>A question in SQL</h2>"
        yield from _question(told.answer)
    yield "<h2>Checks</h2>"
    yield f'<ul class="checks">{"".join(map(_check, findings.checks))}</ul>'


def _verdict(findings: DemoFindings) -> str:
    count = len(findings.checks)
    if findings.all_held:
        return f'<p class="ok"><b>All {count} checks held.</b></p>'
    return f'<p class="failed"><b>{findings.failed_count} of {count} checks FAILED.</b></p>'


def _figures(figures: Mapping[str, Any]) -> str:
    wanted = (
        ("rows", "flights", "{:,}"),
        ("records_per_s", "records acknowledged a second", "{:,.0f}"),
        ("mb_per_s", "in, MB/s, each synced", "{:,.1f}"),
        ("recovery_ms", "from SIGKILL to a new server, ms", "{:,.0f}"),
        ("duplicates", "records stored twice", "{:,}"),
        ("read_records_per_s", "records read a second", "{:,.0f}"),
        ("lookup_us", "a time looked up, µs", "{:,.0f}"),
        ("segments", "segments", "{:,}"),
    )
    tiles = (
        f"<div><dt>{words}</dt><dd>{form.format(figures[key])}</dd></div>" for key, words, form in wanted if key in figures
    )
    return f"<dl>{''.join(tiles)}</dl>"


def _production(told: PageNarrator) -> Iterator[str]:
    marks = []
    if (production := told.production) is not None:
        kill = production.kill
        marks = [
            (kill.at_s, f"SIGKILL with {kill.acknowledged:,} acknowledged"),
            (kill.at_s + kill.recovery_ms / 1000, f"a new server accepts, {kill.recovery_ms:,.0f} ms later"),
        ]
        yield _said(
            f"{len(production.acknowledged):,} records were acknowledged in {production.seconds:.2f} s; "
            f"the first one after the kill came {kill.resumed_ms:,.0f} ms behind it."
        )
    yield _drawn(curve_picture("Records acknowledged", told.acknowledged, marks, across="seconds", up="records"))


def _walks(walks: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    """The first partition's is seen, the others when they are opened."""
    zone = ZoneInfo(NEW_YORK)
    for number, (partition, walk) in enumerate(walks.items()):
        name = f"flights-{partition}, {AIRPORTS[partition]}"
        drawn = _drawn(walk_picture([(name, dict(walk))], zone))
        yield f"<details><summary>{escape(name)}</summary>{drawn}</details>" if number else drawn


def _question(answered: Answered) -> Iterator[str]:
    yield f"<pre>{escape(QUESTION)}</pre>"
    rows = (
        (airline.carrier, "-" if airline.latest is None else f"{airline.latest:+} min", f"{airline.aircraft:,}")
        for airline in answered.airlines
    )
    yield _table("The answer", ("carrier", "latest", "aircraft"), rows)
    yield _said(
        f"Answered in {answered.seconds:.2f} s from {answered.records:,} of {answered.total:,} records, without a server."
    )


def _line_words(line: FlightsLine) -> str:
    _, flights, never_left, delay = _cells(line)
    return f"{flights} flights, never left {never_left}, mean delay {delay}"


def _cells(line: FlightsLine) -> Cells:
    delay = "-" if line.mean_delay is None else f"{line.mean_delay:+.1f} min"
    return line.label, f"{line.flights:,}", str(line.never_left or "-"), delay


def _table(caption: str, heads: Cells, rows: Iterable[Cells]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(safe(cell))}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table>"


def _check(check: Check) -> str:
    verdict = '<b class="ok">ok</b>' if check.ok else '<b class="failed">FAILED</b>'
    detail = f'<span class="quiet">: {escape(safe(check.detail))}</span>'
    return f"<li>{verdict}{escape(safe(check.name))}{detail}</li>\n"


def _said(text: str) -> str:
    return f"<p>{escape(safe(text))}</p>"


def _drawn(picture: Canvas) -> str:
    return f'<div class="drawn" tabindex="0">{picture.markup(is_alone=False)}</div>'
