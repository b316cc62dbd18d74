"""A profile as one HTML file that loads nothing from anywhere: figures, tables with bars, and the rate as inline SVG.

Drawings stretch with the window and hold no text, so that words and numbers stay readable in a narrow one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from ...cli.terminal.output import count_text, shown, size_text
from ...cli.terminal.times import duration_text
from .profile import TopicProfile

MAX_BARS: Final = 200
"""Of the rate: hours, or as many of them together as it takes."""
MAX_PARTITIONS: Final = 40
"""Of which each gets a line; of more the ones with the most and the fewest records are shown."""
MAX_KEY_CHARACTERS: Final = 80
BAR_HOURS: Final = (1, 2, 3, 6, 12, 24, 48, 7 * 24, 28 * 24, 365 * 24)
"""What a bar of the rate may stand for; above the last one whole multiples of it."""
_STYLE: Final = (
    "body{font:15px/1.4 sans-serif;max-width:760px;margin:0 auto;padding:16px;color:#222}"
    "h1{font-size:1.5em}h1,h2{overflow-wrap:anywhere}h2{border-top:1px solid #ccc;padding-top:16px}"
    "h3{margin:28px 0 4px;font-size:1em}p{margin:4px 0;color:#555;font-size:.87em}"
    "table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:right;font-variant-numeric:tabular-nums}"
    "td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere}th{font-weight:normal;color:#555;font-size:.87em}"
    ".bars{width:100%}.bars td,.bars th{white-space:nowrap}.bars .bar{width:100%}"
    ".bar div{background:#3b6ea5;height:12px;min-width:1px}"
    ".bars td:first-child{min-width:5.5em;max-width:min(16em,38vw);overflow:hidden;text-overflow:ellipsis}"
    ".bars td:last-child,.bars th:last-child{padding-right:0}"
    ".rate{display:block;width:100%;height:140px;border:solid #ccc;border-width:1px 0}.rate rect{fill:#3b6ea5}"
    ".axis{display:flex;justify-content:space-between;font-size:.8em;color:#555}"
)
Row = tuple[str, int]


def render(profiles: Sequence[TopicProfile], title: str) -> str:
    """The document."""
    body = "\n".join(_topic(profile) for profile in profiles) or "<p>There are no records.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def bar_table(heading: str, rows: Sequence[Row], total: int) -> str:
    """A line for each row: its label, a bar, its records and their share of `total`."""
    if not rows:
        return "<p>none</p>"
    most = max(count for _, count in rows) or 1
    lines = "".join(
        f'<tr><td>{escape(label)}</td><td class="bar">{_bar(count / most)}</td>'
        f"<td>{count:,}</td><td>{count / max(1, total):.1%}</td></tr>\n"
        for label, count in rows
    )
    head = f"<tr><th>{escape(heading)}</th><th></th><th>records</th><th>share</th></tr>"
    return f'<table class="bars">{head}\n{lines}</table>'


def rate_plot(hours: Mapping[int, int]) -> str:
    """Records by time: a bar for one or more hours, empty ones too, and how many hours a bar is."""
    if not hours:
        return "<h3>Records by time</h3>\n<p>none</p>"
    width, first, counts = bars_of_time(hours)
    most = max(counts)
    drawn = "".join(
        f'<rect x="{index + 0.05:.2f}" y="{100 - 100 * count / most:.1f}" width="0.9" height="{100 * count / most:.1f}">'
        f"<title>{escape(_time_text(first + index * width, width))}: {count:,} records</title></rect>"
        for index, count in enumerate(counts)
        if count
    )
    ends = [_time_text(first, width), _time_text(first + (len(counts) - 1) * width, width)]
    named = "".join(f"<span>{escape(end)}</span>" for end in ends[: len(counts)])
    return (
        f"<h3>Records by time, UTC; a bar for {_width_text(width)}</h3>\n"
        f"<p>The highest has {count_text(most, 'record')}.</p>\n"
        f'<svg class="rate" viewBox="0 0 {len(counts)} 100" preserveAspectRatio="none" role="img">{drawn}</svg>\n'
        f'<div class="axis">{named}</div>'
    )


def bars_of_time(hours: Mapping[int, int]) -> tuple[int, int, list[int]]:
    """(hours of a bar, the first bar's hour since 1970, records of each bar). Bars of days begin at midnight, UTC."""
    low, high = min(hours), max(hours)
    last = BAR_HOURS[-1]
    multiples = (last * (2 + more) for more in range(high // last + 1))
    width = next(each for each in (*BAR_HOURS, *multiples) if high // each - low // each < MAX_BARS)
    first = low - low % width
    counts = [0] * (high // width - low // width + 1)
    for hour, count in hours.items():
        counts[(hour - first) // width] += count
    return width, first, counts


def _bar(share: float) -> str:
    return f'<div style="width:{100 * share:.1f}%"></div>' if share else ""


def _topic(profile: TopicProfile) -> str:
    return "\n".join(
        (
            f"<h2>{escape(profile.topic)}</h2>",
            _figures(profile),
            rate_plot(profile.hours),
            "<h3>Records by size of their value</h3>",
            bar_table("up to", _powers(profile.sizes, size_text), profile.records),
            "<h3>Records by partition</h3>",
            _partitions(profile),
            "<h3>Most frequent keys</h3>",
            bar_table("key", [(_key_text(key), count) for key, count in profile.top_keys], profile.records),
            "<h3>Records behind a newer one, by how far</h3>",
            "<p>Within what one task reads: what is behind a record of an earlier piece of the log alone is not counted.</p>",
            bar_table("up to", _powers(profile.lateness, lambda ms: duration_text(ms / 1000)), profile.records),
        )
    )


def _figures(profile: TopicProfile) -> str:
    records = max(1, profile.records)
    span_h = max(profile.hours) - min(profile.hours) + 1 if profile.hours else 0
    raw_bytes = profile.key_bytes + profile.value_bytes
    rows = (
        ("records", f"{profile.records:,}"),
        ("records per hour, on average", f"{profile.records / span_h:,.1f}" if span_h else "-"),
        ("records in the busiest hour", f"{max(profile.hours.values(), default=0):,}"),
        ("stored", size_text(profile.stored_bytes)),
        ("keys and values", f"{size_text(raw_bytes)} ({raw_bytes / max(1, profile.stored_bytes):.2f} of the stored)"),
        ("value, on average", size_text(round(profile.value_bytes / max(1, profile.records - profile.null_values)))),
        ("records without a key", f"{profile.null_keys:,} ({profile.null_keys / records:.1%})"),
        ("tombstones", f"{profile.null_values:,} ({profile.null_values / records:.1%})"),
        ("different keys, about", f"{profile.distinct_keys:,}"),
        ("share of the most frequent key", f"{profile.top_keys[0][1] / records:.1%}" if profile.top_keys else "-"),
        ("records without a timestamp", f"{profile.without_timestamp:,}"),
        ("records behind a newer one", f"{profile.late_records:,} ({profile.late_records / records:.1%})"),
        ("furthest behind a newer one", duration_text(profile.max_late_ms / 1000)),
    )
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>\n" for name, value in rows)
    return f"<table>{cells}</table>"


def _powers(found: Mapping[int, int], text: Callable[[int], str]) -> list[Row]:
    """Every power of two from the least to the greatest, those that nothing fell into too."""
    if not found:
        return []
    exponents = range(min(found).bit_length() - 1, max(found).bit_length())
    return [(text(1 << exponent), found.get(1 << exponent, 0)) for exponent in exponents]


def _partitions(profile: TopicProfile) -> str:
    rows = list(profile.partitions.items())
    note = ""
    if len(rows) > MAX_PARTITIONS:
        ranked = sorted(rows, key=lambda row: -row[1])
        rows = sorted(ranked[: MAX_PARTITIONS // 2] + ranked[-MAX_PARTITIONS // 2 :])
        note = f"<p>Of {len(profile.partitions):,} partitions those with the most and the fewest records.</p>"
    return note + bar_table("partition", [(str(partition), count) for partition, count in rows], profile.records)


def _key_text(key: bytes) -> str:
    text = shown(key)
    return f"{text[:MAX_KEY_CHARACTERS]}..." if len(text) > MAX_KEY_CHARACTERS else text or '""'


def _width_text(hours: int) -> str:
    if hours % 24:
        return "an hour" if hours == 1 else f"{hours} hours"
    return "a day" if hours == 24 else f"{hours // 24:,} days"


def _time_text(hour: int, width: int) -> str:
    try:
        start = datetime.datetime.fromtimestamp(hour * 3600, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"hour {hour}"
    return f"{start:%Y-%m-%d}" if width % 24 == 0 else f"{start:%Y-%m-%d %H:%M}"
