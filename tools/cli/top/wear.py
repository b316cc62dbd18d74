"""What `triolog top` says of the flash below the logs: what reaches it, and how long it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..terminal.output import printable, size_text
from ..terminal.times import duration_text


def wear_lines(wear: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(label, text): the process, then each disk that is told of, once."""
    written = wear.get("process_written_bytes")
    if written is not None:
        rates = _rates(wear["process_bytes_per_second"], wear["process_bytes_per_appended_byte"])
        yield "written", f"{size_text(written)} by the process{rates}"
    seen: set[tuple[str, ...]] = set()
    for each in wear["directories"]:
        disks = tuple(each["disks"])
        if disks and disks not in seen:
            seen.add(disks)
            yield "wear", _disk(each)


def _disk(wear: dict[str, Any]) -> str:
    parts = [f"{', '.join(map(printable, wear['disks']))}: "]
    so_far = wear["lifetime_written_bytes"] or wear["disk_written_bytes"]
    parts.append("tells nothing" if so_far is None else f"{size_text(so_far)} written")
    parts.append(_rates(wear["disk_bytes_per_second"], wear["disk_bytes_per_appended_byte"]))
    if wear["life_used_percent"] is not None:
        parts.append(f"; {wear['life_used_percent']} % of its life used")
    if wear["pre_eol"] not in (None, "normal"):
        parts.append(f", blocks in reserve: {printable(wear['pre_eol'])}")
    if wear["days_left"] is not None:
        parts.append(f"; lasts {duration_text(wear['days_left'] * 86_400)}")
    return "".join(parts)


def _rates(per_second: float | None, per_appended: float | None) -> str:
    told = "" if per_second is None else f", {size_text(per_second)}/s"
    return told if per_appended is None else f"{told}, {per_appended:,.2f} x what was appended"
