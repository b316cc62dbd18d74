from __future__ import annotations

from typing import Any

from triolog.protocol.native.messages import PlainRecord

from .conftest import Shown, shown_broker, told

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
