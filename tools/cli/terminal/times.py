"""Times as people write and read them, and the milliseconds since 1970 (UTC) that the log has.

| written | is |
|---|---|
| `10m`, `2h30m`, `1.5d` | that long ago (ms, s, m, h, d, w) |
| `now` | now |
| `2013-07-04`, `2013-07-04T00:00`, `2013-07-04 00:00:00.250-04:00`, `...Z` | ISO 8601; without offset in the zone asked for |
| `1372910400000` | ms since 1970 |
| `@1372910400`, `@1372910400.25` | s since 1970 |

A local time that comes twice, when clocks are set back, is the first of the two; one that clocks skip is as far behind the
skip as it was into it. An offset (`-05:00`) says which is meant. `LOCAL` is the system's zone.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Final

from ....protocol.limits import INT64_MAX

LOCAL: Final = None
Zone = tzinfo | None
"""A time zone; LOCAL is None, as in datetime."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SPOKEN_UNITS: Final = ((86_400 * 365, "years"), (86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "s"))
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SECONDS: Final = re.compile(r"@(\d+(?:\.\d+)?)")
_COMPACT_DATE: Final = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")


def parse_zone(name: str | None) -> Zone:
    """The zone of a name (`America/New_York`, `UTC`); None and `local` are the system's. Raises ValueError."""
    if name is None or name.lower() == "local":
        return LOCAL
    if name.upper() in ("UTC", "Z"):
        return UTC
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ValueError(
            f"there is no time zone {name!r}. Use America/New_York, UTC or local (pip install tzdata if all are missing)"
        ) from exc


def parse_time(text: str, zone: Zone = LOCAL, *, now_ms: int | None = None) -> int:
    """Milliseconds for a time in any of the forms above. Raises ValueError that names the forms."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    text = text.strip()
    if text.lower() == "now":
        return now_ms
    if _DURATION.fullmatch(text):
        ago = sum(Decimal(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text))
        return _checked(text, now_ms - int(ago))
    if match := _SECONDS.fullmatch(text):
        return _checked(text, int(Decimal(match[1]) * 1000))
    if text.isascii() and text.isdigit():
        if _COMPACT_DATE.fullmatch(text):
            date = f"{text[:4]}-{text[4:6]}-{text[6:]}"
            raise ValueError(f"{text!r} may be a date or milliseconds. Use {date}, or @{Decimal(text) / 1000}")
        return _checked(text, int(text))
    return parse_iso(text, zone)


def parse_duration(text: str) -> int:
    """Milliseconds of `5s`, `500ms`, `1m30s`; not 0. Raises ValueError."""
    if not _DURATION.fullmatch(text) or not (
        duration := int(sum(Decimal(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text)))
    ):
        raise ValueError(f"invalid duration {text!r}: use 5s, 500ms or 1m30s")
    return duration


def parse_iso(text: str, zone: Zone = LOCAL) -> int:
    """Milliseconds for an ISO 8601 date or date with time. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"invalid time {text!r}: use 10m or 2h30m (ago), now, 2013-07-04T00:00 (with Z or -04:00 if you "
            "like), milliseconds since 1970, or @seconds"
        ) from None
    try:
        if moment.tzinfo is not None or zone is not None:
            timestamp_ms = (moment.replace(tzinfo=moment.tzinfo or zone) - _EPOCH) // _MS
        else:  # astimezone() would take the other offset for a time that clocks skip
            timestamp_ms = int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"{text!r} is a time that cannot be represented") from None
    return _checked(text, timestamp_ms)


def parse_timestamp(value: str | int | float | Decimal, zone: Zone, *, unit_ms: int = 1) -> int:
    """Milliseconds for a timestamp in a row of data: a number of units of `unit_ms`, or ISO 8601. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a timestamp")
    if isinstance(value, str):
        try:
            number = int(value) if value.isdecimal() else Decimal(value)
        except ArithmeticError:
            return parse_iso(value, zone)
    else:
        number = value if isinstance(value, int) else Decimal(str(value))
    if isinstance(number, Decimal) and not number.is_finite():
        raise ValueError(f"{value!r} is not a timestamp")
    return _checked(str(value), int(number * unit_ms))


def format_time(timestamp_ms: int, zone: Zone = LOCAL) -> str:
    """`2013-07-04T00:00:00.000-04:00`; the number itself where a calendar ends, `-` for no timestamp (-1)."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = (_EPOCH + timestamp_ms * _MS).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    text = moment.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def duration_text(seconds: float) -> str:
    """`250 ms`, `12 minutes`, `3.4 days`: of two digits at most, where there is a larger unit."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit_s, unit in _SPOKEN_UNITS:
        if seconds >= unit_s:
            value = seconds / unit_s
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return f"{seconds:.0f} s"


def _checked(text: str, timestamp_ms: int) -> int:
    if timestamp_ms < 0:
        raise ValueError(f"{text!r} is before 1970. Timestamps start there")
    if timestamp_ms > INT64_MAX:
        raise ValueError(f"{text!r} is {timestamp_ms} ms, above the largest timestamp {INT64_MAX}")
    return timestamp_ms
