"""Flash wear by the logs: bytes written to each disk per day and per appended byte, its remaining life, and the durability of
topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ....protocol.native.messages import TopicMetadata
from ..routes import Call, Route, page
from ..watching.history import DISK, PROCESS, disk_name, shortened
from ..watching.watcher import now_ms

POINTS: Final = 180
DAY_S: Final = 86_400
APPENDED: Final = "appended_bytes_per_second"
DURABILITY: Final = "durability"
KEPT: Final = (
    "device",
    "disk_written_bytes",
    "lifetime_written_bytes",
    "life_used_percent",
    "pre_eol",
    "days_left",
    "full_in_s",
)


async def wear(call: Call) -> dict[str, Any]:
    """Everything, with 15 minutes of what was written."""
    watcher = call.watcher
    await watcher.first_sample()
    if watcher.refused is not None:
        raise watcher.refused
    found = watcher.moment
    told: dict[str, Any] = {"status": watcher.status.to_json(), "now_ms": now_ms(), "is_known": False}
    if found is None or found["wear"] is None:
        return told
    worn = found["wear"]
    disks = list(_disks(worn["directories"]))
    return {
        **told,
        "is_known": True,
        "process": _rates(worn, "process") | {"written_bytes": worn["process_written_bytes"]},
        "disks": disks,
        "syncs": _syncs(found),
        "longest_unsynced_ms": worn["longest_unsynced_ms"],
        "durability": await _durability(call, found),
        "history": watcher.history.read([APPENDED, PROCESS, *(DISK + each["name"] for each in disks)], now_ms(), POINTS),
    }


def _rates(told: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Of the last ten minutes; None: that cannot be said."""
    per_second, per_appended = told[f"{prefix}_bytes_per_second"], told[f"{prefix}_bytes_per_appended_byte"]
    return {
        "bytes_per_second": _shortened(per_second),
        "bytes_per_day": None if per_second is None else shortened(per_second * DAY_S),
        "bytes_per_appended_byte": _shortened(per_appended),
    }


def _shortened(value: float | None) -> float | None:
    return None if value is None else shortened(value)


def _disks(directories: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each disk once, with the directories on it; a directory without a disk has a line of its own."""
    by_name: dict[str, dict[str, Any]] = {}
    for each in directories:
        name = disk_name(each)
        if name and name in by_name:
            by_name[name]["paths"].append(each["path"])
            continue
        told = {"name": name, "paths": [each["path"]], **{key: each[key] for key in KEPT}, **_rates(each, "disk")}
        by_name[name or each["path"]] = told
    yield from by_name.values()


def _syncs(found: Mapping[str, Any]) -> dict[str, Any]:
    """In the last interval."""
    per_second, appended = found["syncs_per_second"], found[APPENDED]
    return {
        "per_second": _shortened(per_second),
        "p99_ms": _shortened(found["sync_p99_ms"]),
        "appended_bytes": shortened(appended / per_second) if per_second and appended is not None else None,
    }


async def _durability(call: Call, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Topics by their durability, those with most appended first; rates of those that `statistics` tells of."""
    topics = await call.watcher.topics()
    usual = await _usual(call, topics)
    rates = {each["topic"]: each for each in found["topics"]}
    modes: dict[str, dict[str, Any]] = {}
    for each in topics:
        mode = each.config.get(DURABILITY, usual)
        of_mode = modes.setdefault(mode, {"mode": mode, "topics": 0, "size_bytes": 0, APPENDED: 0.0, "loss_window_ms": 0.0})
        told = rates.get(each.name, {})
        of_mode["topics"] += 1
        of_mode["size_bytes"] += sum(partition.size_bytes for partition in each.partitions)
        of_mode[APPENDED] += told.get(APPENDED) or 0.0
        of_mode["loss_window_ms"] = max(of_mode["loss_window_ms"], told.get("loss_window_ms") or 0.0)
    for of_mode in modes.values():
        of_mode[APPENDED] = shortened(of_mode[APPENDED])
    return sorted(modes.values(), key=lambda each: (-each[APPENDED], -each["size_bytes"], each["mode"]))


async def _usual(call: Call, topics: Iterable[TopicMetadata]) -> str:
    """Return the durability of topics without their own setting, read from any of them; empty when all set it."""
    silent = next((each.name for each in topics if DURABILITY not in each.config), None)
    return "" if silent is None else (await call.watcher.admin.describe_config(silent))[DURABILITY].value


ROUTES: Final[tuple[Route, ...]] = (page("/wear", wear),)
