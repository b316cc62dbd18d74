from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import triolog
from triolog.protocol.native.messages import PlainRecord
from triolog.tools.client.admin import Admin
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.console.around.wear import _disks
from triolog.tools.console.views import topics
from triolog.tools.console.views.topics import Bar, merged
from triolog.tools.console.watching.history import CountedBefore, wear_series

from tests.support.damaged_batches import damage_batch
from tests.tools.cli.top.test_command import NOTHING_TOLD
from tests.tools.console.conftest import Shown, shown_broker, told


async def names(shown: Shown, query: str = "") -> list[str]:
    told = (await shown.browser.get(f"/api/topics?{query}")).json
    return [each["name"] for each in told["topics"]]


@pytest.mark.merge
async def test_topics_are_filtered_sorted_and_cut_into_pages() -> None:
    topics = {f"t{i:03d}": 1 + i % 3 for i in range(230)}
    async with shown_broker(topics=topics) as shown:
        await shown.broker.append("t007", [b"x" * 1000] * 9)
        await shown.broker.append("t100", [b"x"] * 20)
        told = (await shown.browser.get("/api/topics")).json
        assert (told["total"], told["found"], told["pages"], told["page"]) == (230, 230, 3, 1)
        assert await names(shown) == [f"t{i:03d}" for i in range(100)]
        assert await names(shown, "page=3") == [f"t{i:03d}" for i in range(200, 230)]
        assert await names(shown, "page=99") == [f"t{i:03d}" for i in range(200, 230)]
        assert await names(shown, "order=desc") == [f"t{i:03d}" for i in range(229, 129, -1)]
        assert await names(shown, "q=T22") == [f"t{i:03d}" for i in range(220, 230)]
        assert (await names(shown, "sort=records"))[:2] == ["t100", "t007"]
        assert (await names(shown, "sort=size"))[:2] == ["t007", "t100"]
        assert (await names(shown, "sort=partitions&order=asc"))[0] == "t000"
        assert await names(shown, "q=nothing") == []


async def test_topics_of_the_server_are_shown_when_they_are_asked_for(shown: Shown) -> None:
    await shown.broker.create_topic("__audit")
    async with shown.broker.transaction("id") as transaction:
        await transaction.append("flights", [b"x"])
    told = (await shown.browser.get("/api/topics")).json
    assert told["internal"] == 1
    assert "__transaction_state" not in [each["name"] for each in told["topics"]]
    assert "__audit" in [each["name"] for each in told["topics"]], "a topic of a user"
    assert "__transaction_state" in await names(shown, "internal=1")


async def test_a_topic_has_its_partitions_and_where_its_configuration_comes_from() -> None:
    async with shown_broker() as shown:
        await shown.broker.create_topic("t", partitions=2, config={"retention.ms": "12345"})
        await shown.broker.append("t", [b"a", b"b"], partition=1)
        told = (await shown.browser.get("/api/topics/t")).json
        assert [each["records"] for each in told["partitions"]] == [0, 2]
        [bar] = told["partitions"][1]["segments"]
        assert (bar["base"], bar["next"], bar["active"]) == (0, 2, True)
        assert 0 < bar["least"] <= bar["max"]
        assert told["partitions"][0]["segments"] == [] or told["partitions"][0]["segments"][0]["next"] == 0
        config = {each["key"]: (each["value"], each["source"]) for each in told["config"]}
        assert config["retention.ms"] == ("12345", "topic")
        assert config["segment.bytes"][1] in ("default", "server")


@pytest.mark.parametrize("most", [2, 10_000])
async def test_segments_come_with_sizes_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(topics, "MAX_DESCRIBED_SEGMENTS", most)
    async with shown_broker(path=tmp_path) as shown:
        await shown.broker.create_topic("t", partitions=2, config={"segment.bytes": "1024", "retention.ms": "-1"})
        for i in range(5):
            await shown.broker.append("t", [PlainRecord(1000 * i, None, b"v" * 900)], partition=i % 2)
        first, second = (await shown.browser.get("/api/topics/t")).json["partitions"]
        found = [(each["base"], each["next"], each["active"]) for each in first["segments"]]
        assert found == [(0, 1, False), (1, 2, False), (2, 3, True)]
        assert [(each["least"], each["max"]) for each in first["segments"]] == [(0, 0), (2000, 2000), (4000, 4000)]
        assert [(each["least"], each["max"]) for each in second["segments"]] == [(1000, 1000), (3000, 3000)]
        assert sum(each["size"] for each in first["segments"]) == first["size_bytes"]
    async with shown_broker(path=tmp_path) as shown:  # which has not looked at any record since its start
        first, _ = (await shown.browser.get("/api/topics/t")).json["partitions"]
        found = [(each["least"], each["max"], each["guessed"]) for each in first["segments"]]
        assert found == [(0, 0, True), (0, 2000, True), (2000, 4000, True)]


async def test_what_damage_took_out_is_told(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path, config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t")
        for _ in range(3):
            running.append("t", [b"v"] * 3)
    damage_batch(tmp_path, "t-0", 1)
    async with shown_broker(path=tmp_path) as shown:
        [gap] = (await shown.browser.get("/api/topics/t")).json["partitions"][0]["gaps"]
        assert (gap["start"], gap["end"], gap["records"], gap["accepted_ms"]) == (3, 6, 3, -1)
        damage = (await shown.browser.get("/api/")).json["damage"]
        assert (damage["gaps"], damage["gap_records"], damage["open_gaps"], damage["topics"]) == (1, 3, 1, ["t"])


def bar(base: int, **how: Any) -> Bar:
    return Bar(base_offset=base, next_offset=base + 10, size_bytes=100, least_timestamp=base, max_timestamp=base + 9, **how)


def test_neighbours_become_one_bar_and_nothing_is_left_out() -> None:
    bars = [*(bar(10 * i) for i in range(30)), bar(300, is_active=True)]
    for most in (1, 2, 7, 10, 30, 31, 100):
        few = merged(bars, most)
        assert len(few) <= max(2, most)
        assert sum(each.size_bytes for each in few) == 3100
        assert sum(each.count for each in few) == 31
        assert [each.base_offset for each in few[1:]] == [each.next_offset for each in few[:-1]]
        assert (few[0].least_timestamp, few[-1].max_timestamp) == (0, 309)
        assert few[-1] == bars[-1]


SMALL = {"segment.bytes": "4096", "index.interval.bytes": "100", "retention.ms": "-1"}


async def fill(shown: Shown) -> None:
    await shown.broker.create_topic("t", partitions=2, config=SMALL)
    for i in range(60):
        await shown.broker.append("t", [PlainRecord(1_000_000 + 1000 * i, None, b"v" * 200)])


async def walked(shown: Shown, query: str = "") -> Any:
    return await told(shown.browser, f"/topics/t/walk?{query}")


async def test_the_way_to_a_time_or_an_offset_and_all_segments_beside_it() -> None:
    async with shown_broker() as shown:
        await fill(shown)
        page = await walked(shown, "at=1037500")
        assert (page["first"], page["last"], page["partitions"]) == (1_000_000, 1_059_000, 2)
        assert len(page["segments"]) == page["walk"]["segment_count"] > 2
        assert page["walk"]["answer"]["offset"] == 38
        [step] = page["walk"]["segments"]
        assert step["segment"] <= 38
        assert 0 <= step["time_index"]["slot"] < step["time_index"]["entries"]
        assert 0 <= step["offset_index"]["slot"] < step["offset_index"]["entries"]
        assert sum(read["bytes"] for read in step["reads"]) == step["bytes_scanned"] > 0
        dragged = await walked(shown, "at=1037500&segments=0")
        assert dragged.keys() == {"topic", "partition", "at", "offset", "walk", "took_ms"}
        assert dragged["walk"]["answer"] == page["walk"]["answer"]
        middle = await walked(shown)
        assert (middle["at"], middle["walk"]["answer"]["offset"]) == (1_029_500, 30)
        page = await walked(shown, "offset=17&segments=0")
        assert (page["at"], page["offset"], page["walk"]["answer"]["batch_base_offset"]) == (None, 17, 17)
        gone = await shown.browser.get("/api/topics/t/walk?offset=61&segments=0")
        assert (gone.status, gone.json["error"]["name"]) == (422, "OFFSET_OUT_OF_RANGE")
        behind = await walked(shown, "at=9223372036854775807")
        assert behind["walk"]["answer"]["offset"] == -1
        empty = await walked(shown, "partition=1")
        assert (empty["first"], empty["last"], empty["walk"]["answer"]["offset"]) == (-1, -1, -1)


async def test_what_means_nothing_is_named_and_what_is_not_there_is_not_found(shown: Shown) -> None:
    for query in ("partition=7", "partition=-1", "at=-1", "at=x", "offset=x", "segments=2", "to=5"):
        refused = await shown.browser.get(f"/api/topics/flights/walk?{query}")
        assert refused.status == 400, query
        assert refused.json["error"]["message"].startswith(f"{query.partition('=')[0]}: ")
    assert (await shown.browser.get("/api/topics/flights/walk?partition=7&segments=0")).status == 404
    assert (await shown.browser.get("/api/topics/nothing/walk")).status == 404


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


async def test_who_is_connected_with_what(shown: Shown) -> None:
    async with connect(*shown.broker.native, config=ClientConfig(client_id="<b>me</b>")) as client:
        await Admin(client).alter_quotas({"client-id": "slow"}, {"producer_byte_rate": 1000.0})
        page = await told(shown.browser, "/connections")
        names = {each["client_id"]: each for each in page["connections"]}
        assert names.keys() == {"triolog-console", "<b>me</b>"}
        mine = names["<b>me</b>"]
        assert (mine["protocol"], mine["is_encrypted"], mine["is_throttled"]) == ("native", False, False)
        assert mine["requests_per_second"] is None  # asked for the first time
        assert page["quotas"] == [{"entity": {"client-id": "slow"}, "values": {"producer_byte_rate": 1000.0}}]
        assert "<b>" not in (await shown.browser.open("/connections")).text
        with trio.fail_after(60):
            while not next(each for each in page["connections"] if each["client_id"] == mine["client_id"])[
                "requests_per_second"
            ]:
                await Admin(client).list_topics()
                page = await told(shown.browser, "/connections")


def test_rates_are_those_since_the_last_count() -> None:
    counted = CountedBefore()
    assert counted.rates("a", {"requests": 10}, 1000) == {"requests_per_second": None}
    counted.keep({"a": {"requests": 10, "sent_bytes": -1}}, 1000)
    assert counted.rates("a", {"requests": 30, "sent_bytes": -1}, 3000) == {
        "requests_per_second": 10,
        "sent_bytes_per_second": None,
    }
    counted.keep({"a": {"requests": 11}}, 1100)  # too soon to count from
    assert counted.rates("a", {"requests": 30}, 3000) == {"requests_per_second": 10}
    assert counted.rates("b", {"requests": 30}, 3000) == {"requests_per_second": None}
