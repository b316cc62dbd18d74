"""Marks of a time axis and their labels: whole seconds, hours, days, months or years of a zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from ..cli.terminal.times import Zone

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_CLOCK_STEPS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S, _M, 2 * _M, 5 * _M, 10 * _M, 15 * _M, 30 * _M),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H),
)
_DAYS: Final = (1, 2, 5, 10)
_MONTHS: Final = (1, 2, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH_MS: Final = 30 * _D

Tick = tuple[int, str]


def time_ticks(low_ms: int, high_ms: int, most: int, zone: Zone) -> list[Tick]:
    """At most `most` marks from `low_ms` to `high_ms`: milliseconds, and words. Where no calendar reaches: numbers."""
    try:
        start, end = _moment(low_ms, zone), _moment(high_ms, zone)
        return _calendar_ticks(low_ms, high_ms, start, end, most, zone)
    except (OverflowError, ValueError, OSError):
        step = 1
        while (high_ms - low_ms) // step >= most:
            step *= 10
        first = -(-low_ms // step) * step
        return [(at, str(at)) for at in range(first, high_ms + 1, step)]


def _calendar_ticks(low: int, high: int, start: datetime, end: datetime, most: int, zone: Zone) -> list[Tick]:
    span = high - low
    for step in _CLOCK_STEPS:
        if span // step < most:
            shift = int((start.utcoffset() or timedelta()) / timedelta(milliseconds=1))
            first = -(-(low + shift) // step) * step - shift
            return [(at, _clock_text(_moment(at, zone), step)) for at in range(first, high + 1, step)]
    for days in _DAYS:
        if span // (days * _D) <= most:
            ticks = [(_ms(day, zone), f"{day:%Y-%m-%d}") for day in _days(start, end, days)]
            if len(found := [tick for tick in ticks if low <= tick[0] <= high]) <= most:
                return found
    for months in _MONTHS:
        if span // (months * _MONTH_MS) <= most:
            ticks = [(_ms(month, zone), _month_text(month, months)) for month in _month_starts(start, end, months)]
            if len(found := [tick for tick in ticks if low <= tick[0] <= high]) <= most:
                return found
    return [(low, f"{start.year:04d}"), (high, f"{end.year:04d}")]


def _days(start: datetime, end: datetime, days: int) -> Iterator[datetime]:
    day = datetime(start.year, start.month, start.day)
    while day.date() <= end.date():
        if days == 1 or ((day.day - 1) % days == 0 and day.day < 31):
            yield day
        day += timedelta(days=1)


def _month_starts(start: datetime, end: datetime, months: int) -> Iterator[datetime]:
    number = -(-(start.year * 12 + start.month - 1) // months) * months
    while number <= end.year * 12 + end.month - 1:
        if number >= 12:
            yield datetime(number // 12, number % 12 + 1, 1)
        number += months


def _clock_text(moment: datetime, step: int) -> str:
    if step >= _M:
        return f"{moment:%m-%d %H:%M}" if step >= _H else f"{moment:%H:%M}"
    return f"{moment:%H:%M:%S}" if step >= _S else f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def _month_text(month: datetime, months: int) -> str:
    return f"{month.year:04d}" if months % 12 == 0 else f"{month.year:04d}-{month.month:02d}"


def _moment(ms: int, zone: Zone) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)


def _ms(local: datetime, zone: Zone) -> int:
    moment = local.astimezone(UTC) if zone is None else local.replace(tzinfo=zone)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
