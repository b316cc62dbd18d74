"""Both consumers, and who administers, on a log from which recovery took a damaged batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.protocol.errors import CorruptRecordError, InvalidRequestError, UnknownTopicOrPartitionError
from triolog.protocol.native import messages as m
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker

from tests.support.damaged_batches import damage_batch

from .doors import Door

T0 = TopicPartition("t", 0)


@pytest.fixture
def gapped(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Offsets 0 to 8 in three batches, of which the middle one was damaged before an unclean start."""
    with BlockingBroker(tmp_path, durability="os", config={"retention.ms": "-1"}) as running:
        running.create_topic("t")
        for first in (0, 3, 6):
            running.append("t", [b"%d" % number for number in range(first, first + 3)])
    assert damage_batch(tmp_path, "t-0", 1) == (3, 6)
    with BlockingBroker(tmp_path, durability="os") as running:
        yield running


async def read(door: Door, client: Any, **options: Any) -> list[int]:
    """Offsets up to the end, or with those before an error."""
    async with door.consumer(client, follow=False, partition_max_bytes=1, **options) as consumer:
        await consumer.assign(T0)
        assert await consumer.next_batch() is not None, "what comes before it is handed out"
        return [record.offset async for _, record in consumer.records()]


async def test_a_gap_is_refused_or_passed_over_as_the_request_or_the_topic_says(gapped: BlockingBroker, door: Door) -> None:
    async with door.client(gapped.native) as client:
        for shape in m.Format:
            request = m.FetchRequest((m.FetchPartition("t", 0, 4),), format=shape, gaps=m.Gaps.SKIP)
            (entry,) = (await client.fetch(request)).partitions
            if isinstance(entry.records, tuple):
                assert ([record.offset for record in entry.records], entry.next_offset) == ([6, 7, 8], 9)
            else:
                assert [header.base_offset for header, _ in iter_batches(entry.records)] == [6]
        (entry,) = (await client.fetch(attrs.evolve(request, gaps=m.Gaps.REFUSE))).partitions
        assert isinstance(entry.error, CorruptRecordError)
        assert "3 to 5" in entry.error.message
        assert await read(door, client) == [6, 7, 8]
        with pytest.raises(CorruptRecordError, match="3 to 5"):
            await read(door, client, skip_gaps=False)
        gapped.alter_config("t", {"gap.policy": "refuse"})
        with pytest.raises(CorruptRecordError, match=r"3 to 5; .* `triolog gaps accept t 0 3`"):
            await read(door, client)
        assert await read(door, client, skip_gaps=True) == [6, 7, 8]


async def test_a_gap_is_listed_and_accepted_and_stays_accepted(gapped: BlockingBroker, door: Door) -> None:
    gapped.alter_config("t", {"gap.policy": "refuse"})
    gapped.create_topic("whole")
    async with door.client(gapped.native) as client:
        admin = door.admin(client)
        (topic,) = await admin.list_gaps()
        ((gap,),) = [partition.gaps for partition in topic.partitions]
        assert (topic.name, gap.start_offset, gap.end_offset, gap.accepted_ms) == ("t", 3, 6, m.NOT_KNOWN)
        assert gap.file is not None
        assert min(gap.size_bytes, gap.found_ms) > 61
        assert await admin.list_gaps("whole", "t") == [m.TopicGaps("whole"), topic]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.list_gaps("t", "nowhere")
        with pytest.raises(InvalidRequestError, match="t-0: no gap starts at offset 4; offset 4 lies in the one from 3"):
            await admin.accept_gap(T0, 4)
        assert await admin.accept_gap(T0, 3) == 6
        assert await read(door, client) == [6, 7, 8]
        with pytest.raises(CorruptRecordError, match="3 to 5"):
            await read(door, client, skip_gaps=False)
    await trio.to_thread.run_sync(gapped.crash)
    await trio.to_thread.run_sync(gapped.restart)
    async with door.client(gapped.native) as client:
        assert await read(door, client) == [6, 7, 8]
        (topic,) = await door.admin(client).list_gaps("t")
        accepted_ms = topic.partitions[0].gaps[0].accepted_ms
        assert accepted_ms >= gap.found_ms
        assert topic.partitions[0].gaps == (attrs.evolve(gap, accepted_ms=accepted_ms),)
