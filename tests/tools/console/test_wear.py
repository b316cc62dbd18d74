from __future__ import annotations

from pathlib import Path
from typing import Any

from triolog.tools.console.around.wear import _disks
from triolog.tools.console.watching.history import wear_series

from ..cli.top.test_wear import NOTHING_TOLD
from .conftest import shown_broker

TELLS_NOTHING: dict[str, Any] = {"disks": [], **dict.fromkeys(NOTHING_TOLD)}


def counted(time_ms: int, process: int | None, **disks: int | None) -> dict[str, Any]:
    directories = [{"disks": name.split("_"), "disk_written_bytes": written} for name, written in disks.items()]
    return {"time_ms": time_ms, "wear": {"process_written_bytes": process, "directories": directories}}


def test_series_are_what_counters_grew_by_each_second_and_a_disk_is_told_once() -> None:
    after = counted(3000, 5000, sda=900, sdb_sdc=10)
    assert wear_series(counted(1000, 1000, sda=500, sdb_sdc=None), after) == {"written_by_process": 2000, "disk:sda": 200}
    assert wear_series(counted(1000, None, sda=901), after) == {}  # another disk, or a machine that started anew
    assert wear_series({"time_ms": 1000}, after) == {}  # a server that is older
    rated = {**TELLS_NOTHING, "disks": ["mmcblk0"], "disk_bytes_per_second": 100.0, "disk_bytes_per_appended_byte": 4.5}
    first, memory = _disks([{"path": "/a", **rated}, {"path": "/b", **rated}, {"path": "/c", **TELLS_NOTHING}])
    assert (first["name"], first["paths"]) == ("mmcblk0", ["/a", "/b"])
    assert (first["bytes_per_day"], first["bytes_per_appended_byte"]) == (8_640_000, 4.5)
    assert (memory["name"], memory["paths"], memory["bytes_per_day"]) == ("", ["/c"], None)


async def test_topics_are_counted_by_the_durability_that_they_have(tmp_path: Path) -> None:
    async with shown_broker(path=tmp_path, durability="group:100") as shown:
        await shown.broker.create_topic("usual")
        await shown.broker.create_topic("other")
        await shown.broker.create_topic("safe", config={"durability": "fsync"})
        await shown.broker.append("safe", [b"x" * 1000])
        told = (await shown.browser.get("/api/wear")).json
        assert told["is_known"] is True
        modes = {each["mode"]: (each["topics"], each["size_bytes"] > 1000) for each in told["durability"]}
        assert modes == {"group:100": (2, False), "fsync": (1, True)}
        assert [each["paths"] for each in told["disks"]] == [[str(tmp_path)]]
        assert told["history"].keys() == {"times", "series"}
