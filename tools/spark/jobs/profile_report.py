"""A profile as one HTML file: figures and bars drawn as inline SVG, nothing loaded from anywhere."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from .profile import TopicProfile

WIDTH: Final = 720
HEIGHT: Final = 160
MARGIN: Final = 24
MAX_BARS: Final = 200
"""Of the rate: hours, or as many of them together as it takes."""
_STYLE: Final = (
    "body{font:14px sans-serif;max-width:760px;margin:2em auto;color:#222}table{border-collapse:collapse}"
    "td,th{padding:2px 12px 2px 0;text-align:right}td:first-child,th:first-child{text-align:left}"
    "svg{display:block;margin:4px 0 20px}rect{fill:#3b6ea5}text{font-size:11px;fill:#555}h3{margin:1em 0 0}"
)


def render(profiles: Sequence[TopicProfile], title: str) -> str:
    """The document."""
    body = "\n".join(_topic(profile) for profile in profiles) or "<p>There are no records.</p>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def bars(values: Sequence[tuple[str, int]], what: str) -> str:
    """Bars from left to right, each with its label and count as a tip; labels of the first, the middle and the last below."""
    if not values:
        return "<p>none</p>"
    highest = max(count for _, count in values) or 1
    step = WIDTH / len(values)
    drawn = []
    for index, (label, count) in enumerate(values):
        height = (HEIGHT - MARGIN) * count / highest
        drawn.append(
            f'<rect x="{index * step:.1f}" y="{HEIGHT - MARGIN - height:.1f}" width="{max(1.0, step - 1):.1f}" '
            f'height="{height:.1f}"><title>{escape(label)}: {count:,} {what}</title></rect>'
        )
    places = sorted({0, len(values) // 2, len(values) - 1})
    for index in places:
        anchor = "start" if index == 0 else "end" if index == len(values) - 1 else "middle"
        x = index * step + (step if anchor == "end" else 0)
        drawn.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{escape(values[index][0])}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(drawn)}</svg>'


def _topic(profile: TopicProfile) -> str:
    unit, per_bar = _rates(profile.hours)
    return "\n".join(
        (
            f"<h2>{escape(profile.topic)}</h2>",
            _figures(profile),
            f"<h3>Records by time ({unit} for a bar)</h3>",
            bars(per_bar, "records"),
            "<h3>Size of values, bytes up to</h3>",
            bars([(f"{size:,}", count) for size, count in profile.sizes.items()], "records"),
            "<h3>Records by partition</h3>",
            bars([(str(partition), count) for partition, count in profile.partitions.items()], "records"),
            "<h3>Most frequent keys</h3>",
            _keys(profile),
            "<h3>Lateness of records behind a newer one, ms up to</h3>",
            bars([(f"{late:,}", count) for late, count in profile.lateness.items()], "records"),
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
        ("stored bytes", f"{profile.stored_bytes:,}"),
        ("bytes of keys and values", f"{raw_bytes:,} ({raw_bytes / max(1, profile.stored_bytes):.2f} of the stored)"),
        ("bytes of a value, on average", f"{profile.value_bytes / max(1, profile.records - profile.null_values):,.1f}"),
        ("records without a key", f"{profile.null_keys:,} ({profile.null_keys / records:.1%})"),
        ("tombstones", f"{profile.null_values:,} ({profile.null_values / records:.1%})"),
        ("different keys, about", f"{profile.distinct_keys:,}"),
        ("share of the most frequent key", f"{profile.top_keys[0][1] / records:.1%}" if profile.top_keys else "-"),
        ("records without a timestamp", f"{profile.without_timestamp:,}"),
        ("records behind a newer one", f"{profile.late_records:,} ({profile.late_records / records:.1%})"),
        ("largest lateness, s", f"{profile.max_late_ms / 1000:,.3f}"),
    )
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def _keys(profile: TopicProfile) -> str:
    cells = "".join(
        f"<tr><td>{escape(key.decode('utf-8', 'backslashreplace'))}</td><td>{count:,}</td>"
        f"<td>{count / max(1, profile.records):.1%}</td></tr>"
        for key, count in profile.top_keys
    )
    named = [(key.decode("utf-8", "replace"), count) for key, count in profile.top_keys]
    return f"{bars(named, 'records')}<table>{cells}</table>"


def _rates(hours: Mapping[int, int]) -> tuple[str, list[tuple[str, int]]]:
    """Hours, empty ones too, joined until they fit."""
    if not hours:
        return "an hour", []
    first, last = min(hours), max(hours)
    width = -(-(last - first + 1) // MAX_BARS)
    counts = [0] * (-(-(last - first + 1) // width))
    for hour, count in hours.items():
        counts[(hour - first) // width] += count
    return (
        "an hour" if width == 1 else f"{width} hours",
        [(_hour_text(first + index * width), count) for index, count in enumerate(counts)],
    )


def _hour_text(hour: int) -> str:
    try:
        return f"{datetime.datetime.fromtimestamp(hour * 3600, datetime.UTC):%Y-%m-%d %Hh}"
    except (ValueError, OverflowError, OSError):
        return f"hour {hour}"
