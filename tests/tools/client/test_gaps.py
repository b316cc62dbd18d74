"""Both consumers, and who administers, on a log from which recovery took a damaged batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from triolog.protocol.errors import CorruptRecordError, InvalidRequestError, UnknownTopicOrPartitionError
from triolog.protocol.native import messages as m
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from triolog.tools.client.admin import Admin
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient, BlockingConsumer
from triolog.tools.client.connection import connect
from triolog.tools.client.consumer import open_consumer

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Offsets 0 to 8 in three batches, of which the middle one was damaged before an unclean start."""
    with BlockingBroker(tmp_path, durability="os", config={"retention.ms": "-1"}) as running:
        running.create_topic("t")
        for first in (0, 3, 6):
            running.append("t", [b"%d" % number for number in range(first, first + 3)])
    log = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    sizes = [len(batch) for _, batch in iter_batches(bytes(data))]
    data[sizes[0] + sizes[1] - 1] ^= 1
    log.write_bytes(data)
    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    (tmp_path / RECOVERY_POINT_FILE).unlink()
    with BlockingBroker(tmp_path, durability="os") as running:
        yield running


def test_a_fetch_inside_the_gap_is_refused_or_goes_on_behind_it(broker: BlockingBroker) -> None:
    assert broker.native is not None
    with BlockingClient(broker.native) as client:
        (entry,) = client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 4),), gaps=m.Gaps.REFUSE)).partitions
        assert isinstance(entry.error, CorruptRecordError)
        assert "3 to 5" in entry.error.message
        for shape in m.Format:
            (entry,) = client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 4),), format=shape, gaps=m.Gaps.SKIP)).partitions
            if isinstance(entry.records, tuple):
                assert ([record.offset for record in entry.records], entry.next_offset) == ([6, 7, 8], 9)
            else:
                assert [header.base_offset for header, _ in iter_batches(entry.records)] == [6]


def read(client: BlockingClient, **options: Any) -> list[int]:
    with BlockingConsumer(client, follow=False, partition_max_bytes=1, **options) as consumer:
        consumer.assign(T0)
        return [record.offset for _, record in consumer.records()]


def test_where_the_consumer_says_nothing_the_topic_does(broker: BlockingBroker) -> None:
    assert broker.native is not None
    with BlockingClient(broker.native) as client:
        assert read(client) == [0, 1, 2, 6, 7, 8]
        broker.alter_config("t", {"gap.policy": "refuse"})
        with pytest.raises(CorruptRecordError, match=r"3 to 5; .* `triolog gaps accept t 0 3`"):
            read(client)
        assert read(client, skip_gaps=True) == [0, 1, 2, 6, 7, 8]


def test_a_gap_is_listed_and_accepted_and_stays_accepted(broker: BlockingBroker) -> None:
    broker.alter_config("t", {"gap.policy": "refuse"})
    broker.create_topic("whole")
    assert broker.native is not None
    with BlockingClient(broker.native) as client:
        admin = BlockingAdmin(client)
        (topic,) = admin.list_gaps()
        ((gap,),) = [partition.gaps for partition in topic.partitions]
        assert (topic.name, gap.start_offset, gap.end_offset, gap.accepted_ms) == ("t", 3, 6, m.NOT_KNOWN)
        assert gap.file is not None
        assert min(gap.size_bytes, gap.found_ms) > 61
        assert admin.list_gaps("whole", "t") == [m.TopicGaps("whole"), topic]
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.list_gaps("t", "nowhere")
        with pytest.raises(InvalidRequestError, match="t-0: no gap starts at offset 4; offset 4 lies in the one from 3"):
            admin.accept_gap(T0, 4)
        assert admin.accept_gap(T0, 3) == 6
        assert read(client) == [0, 1, 2, 6, 7, 8]
        with pytest.raises(CorruptRecordError, match="3 to 5"):
            read(client, skip_gaps=False)
    broker.crash()
    broker.restart()
    with BlockingClient(broker.native) as client:
        assert read(client) == [0, 1, 2, 6, 7, 8]
        (topic,) = BlockingAdmin(client).list_gaps("t")
        accepted_ms = topic.partitions[0].gaps[0].accepted_ms
        assert accepted_ms >= gap.found_ms
        assert topic.partitions[0].gaps == (attrs.evolve(gap, accepted_ms=accepted_ms),)


async def test_the_trio_client_lists_and_accepts(broker: BlockingBroker) -> None:
    assert broker.native is not None
    async with connect(*broker.native) as client:
        admin = Admin(client)
        assert [topic.name for topic in await admin.list_gaps()] == ["t"]
        assert await admin.accept_gap(T0, 3) == 6


async def test_the_trio_consumer_is_told_or_passes_over(broker: BlockingBroker) -> None:
    assert broker.native is not None
    async with connect(*broker.native) as client:
        async with open_consumer(client, follow=False, skip_gaps=False, partition_max_bytes=1) as consumer:
            await consumer.assign(T0)
            assert await consumer.next_batch() is not None
            with pytest.raises(CorruptRecordError, match="3 to 5"):
                await consumer.next_batch()
        async with open_consumer(client, follow=False, skip_gaps=True) as consumer:
            await consumer.assign(T0)
            assert [record.offset async for _, record in consumer.records()] == [0, 1, 2, 6, 7, 8]


def test_the_blocking_consumer_is_told_at_once_or_passes_over(broker: BlockingBroker) -> None:
    assert broker.native is not None
    with BlockingClient(broker.native) as client:
        with BlockingConsumer(client, follow=False, skip_gaps=False, partition_max_bytes=1) as consumer:
            consumer.assign(T0)
            assert consumer.next_batch() is not None
            with pytest.raises(CorruptRecordError, match="3 to 5"):
                consumer.next_batch()
        with BlockingConsumer(client, follow=False, skip_gaps=True) as consumer:
            consumer.assign(T0)
            assert [record.offset for _, record in consumer.records()] == [0, 1, 2, 6, 7, 8]
