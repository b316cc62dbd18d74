"""What reached the disks between two answers of `statistics`, each second. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PROCESS: Final = "written_by_process"
DISK: Final = "disk:"
"""Begins the name of a disk's series."""

Body = Mapping[str, Any]


def disk_name(directory: Body) -> str:
    """The disks below a log directory as one name; empty where there is none."""
    return "+".join(directory["disks"])


def wear_series(before: Body, after: Body) -> dict[str, float]:
    """By series; without those of which the system does not tell, and of counters that fell."""
    old, new = before.get("wear"), after.get("wear")
    if old is None or new is None:
        return {}
    counters = [(PROCESS, old["process_written_bytes"], new["process_written_bytes"])]
    old_disks = {disk_name(each): each["disk_written_bytes"] for each in old["directories"]}
    for name, written in {disk_name(each): each["disk_written_bytes"] for each in new["directories"]}.items():
        if name:
            counters.append((f"{DISK}{name}", old_disks.get(name), written))
    seconds = max(0.001, (after["time_ms"] - before["time_ms"]) / 1000)
    return {
        name: (last - first) / seconds
        for name, first, last in counters
        if first is not None and last is not None and last >= first
    }
