from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.native.messages import PlainRecord
from triolog.server.embedded import BlockingBroker
from triolog.tools.console.views import topics
from triolog.tools.console.views.topics import Bar, merged

from tests.support.damaged_batches import damage_batch

from .conftest import Shown, shown_broker


async def names(shown: Shown, query: str = "") -> list[str]:
    told = (await shown.browser.get(f"/api/topics?{query}")).json
    return [each["name"] for each in told["topics"]]


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
async def test_segments_come_with_their_sizes_and_times_however_many_answers_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
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
    with BlockingBroker(tmp_path, config={"retention.ms": "-1"}) as running:
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
