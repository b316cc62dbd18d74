"""Times and zones as settings have them."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from ...client.procedures.topics import EARLIEST, LATEST, AtTime

LOCAL: Final = "local"


def read_zone(name: str) -> tzinfo | None:
    """The zone of a name; None for the system's. Raises ValueError."""
    if name.lower() == LOCAL:
        return None
    if name.upper() == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ValueError(f"there is no time zone {name!r}; write Europe/Berlin, UTC or local") from exc


def read_start(value: Any) -> AtTime:
    """`earliest`, `latest`, or a time. Raises ValueError."""
    if isinstance(value, datetime):
        return AtTime(int(value.timestamp() * 1000))
    places = {"earliest": EARLIEST, "latest": LATEST}
    text = str(value)
    if text.lower() in places:
        return places[text.lower()]
    try:
        return AtTime(int(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        raise ValueError(f"{text!r} is neither earliest nor latest nor a time such as 2026-11-25T06:00Z") from None
