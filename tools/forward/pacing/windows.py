"""The times at which a link may send: `22:00-06:00`, `sat,sun`, `mon-fri 22:00-06:00`, in a time zone.

A window that ends before it begins ends on the next day, and belongs to the day on which it begins. Where clocks are changed a
window begins and ends at the local times that it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

import attrs

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIMES: Final = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")
_DAY_MINUTES: Final = 24 * 60


@attrs.frozen(kw_only=True)
class Window:
    """Every week on `days` (0 is Monday), from one minute of the day up to another, which may be one of the next day."""

    days: frozenset[int]
    begin: int
    end: int


def parse_window(text: str) -> Window:
    """Raises ValueError."""
    words = text.lower().split()
    times = words.pop() if words and _TIMES.fullmatch(words[-1]) else "00:00-24:00"
    if len(words) > 1 or not text.strip():
        raise ValueError(f"{text!r} is no window; write 22:00-06:00, sat,sun or mon-fri 22:00-06:00")
    match = _TIMES.fullmatch(times)
    assert match is not None
    begin, end = (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4]))
    if int(match[2]) > 59 or int(match[4]) > 59 or begin >= _DAY_MINUTES or end > _DAY_MINUTES or begin == end:
        raise ValueError(f"{times!r} is no span of a day; write HH:MM-HH:MM, up to 24:00")
    days = frozenset(range(7)) if not words else _days(words[0])
    return Window(days=days, begin=begin, end=end if end > begin else end + _DAY_MINUTES)


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise ValueError(f"{part!r} is no day; write {', '.join(DAYS)} or two of them, as in mon-fri")
        start, stop = DAYS.index(first), DAYS.index(last if dash else first)
        found.update(day % 7 for day in range(start, stop + 1 if stop >= start else stop + 8))
    return frozenset(found)


def opens_in_s(windows: Sequence[Window], now_s: float, zone: tzinfo | None) -> float:
    """Seconds until one of the windows is open; 0: one is, or there are none. `now_s` is seconds since 1970."""
    if not windows:
        return 0.0
    today = datetime.fromtimestamp(now_s, zone).date()
    waits = []
    for days_on in range(-1, 9):
        day = today + timedelta(days=days_on)
        for window in windows:
            if day.weekday() in window.days and _moment(day, window.end, zone) > now_s:
                waits.append(max(0.0, _moment(day, window.begin, zone) - now_s))
    return min(waits)


def _moment(day: date, minute: int, zone: tzinfo | None) -> float:
    """A local time in seconds since 1970."""
    local = datetime.combine(day, time(), zone) + timedelta(minutes=minute)  # as the clock on the wall goes
    return local.timestamp()
