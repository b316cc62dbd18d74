"""Places in a partition as options name them: `earliest`, `latest`, `max`, an offset, or a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from .times import Zone, parse_time

if TYPE_CHECKING:
    from ...client.procedures.topics import Place

SPECIAL_TIMES: Final[Mapping[str, int]] = {
    "latest": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "max": MAX_TIMESTAMP,
}

TIME_HELP: Final = "10m (ago), now, 2013-07-04T00:00, ms since 1970, or @seconds"


def read_time(text: str, zone: Zone, option: str) -> int:
    """Milliseconds of a time option; a usage error names the option."""
    try:
        return parse_time(text, zone)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint=option) from exc


def read_time_or_special(text: str, zone: Zone, option: str) -> int:
    """Milliseconds of a time option, or the number that stands for `latest`, `earliest` or `max` in a lookup."""
    special = SPECIAL_TIMES.get(text.lower())
    return read_time(text, zone, option) if special is None else special


def read_offset(text: str, option: str) -> Place:
    """The place of an offset option: a number, `earliest` or `latest`."""
    from ...client.procedures.topics import EARLIEST, LATEST, AtOffset

    if text.isascii() and text.isdigit():
        return AtOffset(int(text))
    places = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() not in places:
        raise click.BadParameter(f"{text!r} is neither an offset nor earliest or latest", param_hint=option)
    return places[text.lower()]


def read_place(offset: str | None, time: str | None, zone: Zone, *, options: tuple[str, str], purpose: str) -> Place:
    """The place that one of two options names, an offset's and a time's; a usage error says what they are for."""
    from ...client.procedures.topics import AtTime

    of_offset, of_time = options
    if offset is not None and time is None:
        return read_offset(offset, of_offset)
    if time is not None and offset is None:
        return AtTime(read_time(time, zone, of_time))
    raise click.UsageError(f"{of_offset} N or {of_time} TIME says {purpose}; give one of them")
