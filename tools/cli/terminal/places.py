"""The one grammar of a position in a log, for every command that takes one.

| written | is |
|---|---|
| `start` (`earliest`, `beginning`) | the log start offset |
| `end` (`latest`) | the high watermark, where the next record goes |
| `max` | the first record with the largest timestamp |
| `42` | offset 42 |
| `-10` | 10 records before the end, and not before the start |
| `+10` | 10 records after the start |
| `@2026-07-04T10:00`, `2026-07-04T10:00`, `@1783159200` | the first record at or after a time; a number is in seconds |
| `10m`, `2h30m` | the first record of the last 10 minutes |
| `s@1783159200000` | the first record at or after a time in milliseconds, as kcat writes it |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, TimeRange
from .grammar import F, nearest, option
from .times import Zone, parse_time

if TYPE_CHECKING:
    from ...client.procedures.topics import Place

_NAMED: Final[Mapping[str, int]] = {
    **dict.fromkeys(("start", "earliest", "beginning", "oldest"), EARLIEST_TIMESTAMP),
    **dict.fromkeys(("end", "latest", "newest"), LATEST_TIMESTAMP),
    "max": MAX_TIMESTAMP,
}
_MILLISECONDS: Final = re.compile(r"(?:[se]@|@(?=\d{12}))(\d{1,18})")
"""No second of a calendar has 12 digits."""

POSITION_HELP: Final = "start, end, 42, -10 (before the end), @2026-07-04T10:00 or 10m (ago)"


def position_option(*names: str, times: Iterable[str] = (), **how: Any) -> Callable[[F], F]:
    """An option for a position. `times` are spellings of an earlier release: times in which a number is in milliseconds."""
    return option(*names, metavar="POSITION", others=times, read_other=_in_milliseconds, **how)


def _in_milliseconds(text: str) -> str:
    return f"s@{text}" if text.isdigit() else text


def read_position(text: str, zone: Zone, option: str) -> Place:
    """The position of an option; a usage error names the option."""
    from ...client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime, Shifted

    text = text.strip()
    if (special := _NAMED.get(text.lower())) is not None:
        return AtTime(special)
    if text.isascii() and text.isdigit():
        return AtOffset(int(text))
    if re.fullmatch(r"[-+]\d{1,18}", text, re.ASCII):
        return Shifted(LATEST if text[0] == "-" else EARLIEST, int(text))
    if milliseconds := _MILLISECONDS.fullmatch(text):
        return AtTime(int(milliseconds[1]))
    is_number = re.fullmatch(r"@[\d.]+", text, re.ASCII)
    try:
        return AtTime(parse_time(text if is_number else text.removeprefix("@"), zone))
    except ValueError as exc:
        near = nearest(text.lower(), _NAMED)
        reason = f"Did you mean {near[0]}?" if near else f"Write {POSITION_HELP}"
        if text[:4].isdigit() or text[:1] == "@":
            reason = f"{exc}"
        raise click.BadParameter(f"{text!r} is not a position. {reason}", param_hint=option) from exc


def time_of(place: Place | None) -> int | None:
    """The milliseconds of a position that is a time, else None."""
    time_ms: int | None = getattr(place, "timestamp", None)
    return None if time_ms is None or time_ms < 0 else time_ms


def time_range(start: Place | None, until: Place | None) -> TimeRange:
    """The times from one position on and before another; unbounded where a position is not a time."""
    start_ms, until_ms = time_of(start), time_of(until)
    everything = TimeRange()
    return TimeRange(everything.start if start_ms is None else start_ms, everything.end if until_ms is None else until_ms)
