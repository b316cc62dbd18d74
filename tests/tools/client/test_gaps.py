"""Both consumers on a log from which recovery took a damaged batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.native import messages as m
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from triolog.tools.client.blocking import BlockingClient, BlockingConsumer
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
        (entry,) = client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 4),))).partitions
        assert isinstance(entry.error, CorruptRecordError)
        assert "3 to 5" in entry.error.message
        for shape in m.Format:
            (entry,) = client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 4),), format=shape, gaps=m.Gaps.SKIP)).partitions
            if isinstance(entry.records, tuple):
                assert ([record.offset for record in entry.records], entry.next_offset) == ([6, 7, 8], 9)
            else:
                assert [header.base_offset for header, _ in iter_batches(entry.records)] == [6]


async def test_the_trio_consumer_is_told_or_passes_over(broker: BlockingBroker) -> None:
    assert broker.native is not None
    async with connect(*broker.native) as client:
        async with open_consumer(client, follow=False, partition_max_bytes=1) as consumer:
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
        with BlockingConsumer(client, follow=False, partition_max_bytes=1) as consumer:
            consumer.assign(T0)
            assert consumer.next_batch() is not None
            with pytest.raises(CorruptRecordError, match="3 to 5"):
                consumer.next_batch()
        with BlockingConsumer(client, follow=False, skip_gaps=True) as consumer:
            consumer.assign(T0)
            assert [record.offset for _, record in consumer.records()] == [0, 1, 2, 6, 7, 8]
