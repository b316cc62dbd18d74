"""The clients on a real server: connections cut between a write and its answer, ranges of times, gaps, stages."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import triolog
from triolog.protocol.errors import CorruptRecordError, InvalidRequestError, UnknownTopicOrPartitionError
from triolog.protocol.native import messages as m
from triolog.protocol.native.messages import SplitPoint
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Isolation, TimeRange, TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.connection import Client, connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.producer import open_producer

from tests.support.damaged_batches import damage_batch
from tests.support.logs import START_MS
from tests.tools.client.doors import QUICK, RETRIES, Door, WrappedStream

BEGIN_MS = 1_700_000_000_000
TIMES = [(number * 37) % 50 for number in range(120)]
"""Out of order, every time more than once."""


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[BlockingBroker]:
    with triolog.blocking.open(tmp_path, durability="os", native="127.0.0.1:0") as running:
        running.create_topic("t", 2, {"retention.ms": "-1", "segment.bytes": "1000"})
        for offset, time in enumerate(TIMES):
            running.append("t", [(BEGIN_MS + time, None, b"%d" % offset, ())])
        yield running


def offsets_of(start: int, end: int) -> list[int]:
    return [offset for offset, time in enumerate(TIMES) if start <= time < end]


def times(start: int, end: int) -> TimeRange:
    return TimeRange(BEGIN_MS + start, BEGIN_MS + end)


@pytest.mark.merge
@pytest.mark.parametrize("options", [{}, {"follow": False}, {"partition_max_bytes": 1}, {"isolation": "read_committed"}])
async def test_exactly_the_range_is_read_and_explained(timed: BlockingBroker, door: Door, options: dict[str, Any]) -> None:
    async with door.client(timed.native) as client, door.consumer(client, **options) as consumer:
        for start, end in ((10, 13), (0, 50), (49, 90), (90, 95), (7, 7)):
            await consumer.assign("t", times=times(start, end))
            found = [(partition, record.offset) async for partition, record in consumer.records()]
            assert found == [(T0, offset) for offset in offsets_of(start, end)]
        await consumer.assign(T0, times=times(10, 13))
        assert [record.offset async for _, record in consumer.records()] == offsets_of(10, 13)
        assert consumer.position(T0) == len(TIMES)
        await consumer.assign(T0, times=TimeRange(start=BEGIN_MS + 40))
        assert [record.offset async for _, record in consumer.records()] == offsets_of(40, 50)
        await consumer.assign("t", times=times(3, 2))
        with pytest.raises(InvalidRequestError, match=r"t-[01]: end_timestamp"):
            await consumer.next_batch()
        admin = door.admin(client)
        walk = await admin.explain(T0, times(10, 13), with_segments=True)
        assert walk["answer"]["offset"] <= offsets_of(10, 13)[0]
        assert len(walk["log_segments"]) == walk["segment_count"]
        assert walk["log_segments"][0]["max_timestamp"] >= walk["log_segments"][0]["least_timestamp"] >= BEGIN_MS
        walk = await admin.explain(T0, TimeRange(end=BEGIN_MS + 1))
        assert walk["asked"]["start_timestamp"] == 0
        assert "log_segments" not in walk


@pytest.fixture
def gapped(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Offsets 0 to 8 in three batches, of which the middle one was damaged before an unclean start."""
    with triolog.blocking.open(tmp_path, durability="os", config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t")
        for first in (0, 3, 6):
            running.append("t", [b"%d" % number for number in range(first, first + 3)])
    assert damage_batch(tmp_path, "t-0", 1) == (3, 6)
    with triolog.blocking.open(tmp_path, durability="os", native="127.0.0.1:0") as running:
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
            (entry,) = (await client.call_fetch(request)).partitions
            if isinstance(entry.records, tuple):
                assert ([record.offset for record in entry.records], entry.next_offset) == ([6, 7, 8], 9)
            else:
                assert [header.base_offset for header, _ in iter_batches(entry.records)] == [6]
        (entry,) = (await client.call_fetch(attrs.evolve(request, gaps=m.Gaps.REFUSE))).partitions
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
        with pytest.raises(InvalidRequestError, match="Offset 4 is in the gap from 3"):
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


GONE = TopicPartition("gone", 0)
STAGED = build_batch([(START_MS, None, b"a", ())])


async def test_a_stage_is_committed_once(broker: BlockingBroker, door: Door) -> None:
    async with door.client(broker.native) as client:
        admin = door.admin(client)
        assert await admin.last_commit("query") is None
        staged = await admin.stage("query", 3, "task", {T0: STAGED})
        await admin.stage("query", 3, "zombie", {T0: STAGED})
        await admin.abort_stage("query", 3, ["zombie"])
        assert (await admin.commit_stage("query", 3, {"task": staged})).committed
        assert not (await admin.commit_stage("query", 3, {"task": staged})).committed
        assert await admin.last_commit("query") == 3
        assert [record.value for record in broker.fetch("t", 0)] == [b"a"]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.stage("query", 4, "task", {GONE: STAGED})
        with pytest.raises(InvalidRequestError, match="nothing staged"):
            await admin.commit_stage("query", 4, {"task": staged})


async def test_ranges_are_split_and_files_leased(broker: BlockingBroker, door: Door) -> None:
    broker.append("t", STAGED)
    async with door.client(broker.native) as client:
        admin = door.admin(client)
        assert await admin.split_points({T0: (0, 1)}, 1000) == {T0: (SplitPoint(0, len(STAGED)),)}
        lease = await admin.lease_segments([T0], 60_000)
        [segment] = lease.partitions[0].segments
        assert lease.partitions[0].high_watermark == 1
        assert Path(segment.path).read_bytes()[: segment.size_bytes] != b""
        assert await admin.lease_segments([T0], 60_000, lease.lease_id) == lease
        await admin.lease_segments([], 0, lease.lease_id)
        assert not Path(segment.path).exists()
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.lease_segments([T0, GONE], 60_000)
        assert list(Path(segment.path).parents[2].rglob("*.log")) == [], "nobody could end this lease"


T0 = TopicPartition("t", 0)


@pytest.fixture
def three() -> Iterator[BlockingBroker]:
    """Topic t with three partitions; `os` durability, as nothing crashes."""
    with triolog.blocking.open(config={"retention.ms": "-1"}, native="127.0.0.1:0") as running:
        running.create_topic("t", 3)
        yield running


class CutStream(WrappedStream):
    """A connection that breaks when an answer has arrived, before anybody has seen it."""

    def __init__(self, stream: trio.SocketStream, source: random.Random) -> None:
        super().__init__(stream)
        self.answers_left = source.randrange(2, 6)  # the first one is to hello

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = await super().receive_some(max_bytes)
        self.answers_left -= 1
        if not self.answers_left:
            await self.aclose()
            raise trio.BrokenResourceError("cut")
        return data


class Cutter:
    """Opens streams that are cut; counts them."""

    def __init__(self, broker: BlockingBroker, seed: int) -> None:
        self.broker = broker
        self.source = random.Random(seed)
        self.opened = 0

    async def open_stream(self) -> trio.abc.Stream:
        self.opened += 1
        return CutStream(await trio.open_tcp_stream(*self.broker.native), self.source)


@asynccontextmanager
async def cut_client(cutter: Cutter) -> AsyncIterator[Client]:
    async with connect(open_stream=cutter.open_stream, config=QUICK) as client:
        yield client


async def values(three: BlockingBroker, partition: int = 0, **options: Any) -> list[int]:
    async with connect(*three.native) as client, open_consumer(client, follow=False, **options) as consumer:
        await consumer.assign(TopicPartition("t", partition))
        return [int(record.value or b"") async for _, record in consumer.records()]


@pytest.mark.parametrize("seed", range(2))
async def test_answers_that_are_cut_off_leave_no_duplicates_and_no_other_order(three: BlockingBroker, seed: int) -> None:
    cutter = Cutter(three, seed)
    async with cut_client(cutter) as client:
        async with open_producer(client, linger_ms=0, batch_bytes=300, **RETRIES) as producer:
            sent = []
            for number in range(300):
                sent.append(await producer.send("t", b"%d" % number, partition=number % 3))
                if cutter.source.random() < 0.1:
                    await producer.flush()
    assert cutter.opened > 5
    for partition in range(3):
        assert await values(three, partition) == list(range(partition, 300, 3))
    assert [record.value().offset for record in sent] == [number // 3 for number in range(300)]


@pytest.mark.parametrize("seed", range(2))
async def test_transactions_over_cut_connections_are_seen_whole_and_once(three: BlockingBroker, seed: int) -> None:
    cutter = Cutter(three, seed)
    expected = []
    async with cut_client(cutter) as client, open_producer(client, transactional_id="x", linger_ms=0, **RETRIES) as producer:
        for number in range(15):
            transaction = producer.transaction()
            await transaction.begin()
            for step in range(3):
                await producer.send("t", b"%d" % (number * 3 + step), partition=0)
            await transaction.send_offsets("g", {T0: number})
            if number % 3 == 2:
                await transaction.abort()
            else:
                await transaction.commit()
                expected += [number * 3 + step for step in range(3)]
    assert cutter.opened > 5
    assert await values(three, isolation=Isolation.READ_COMMITTED) == expected
    async with connect(*three.native) as client, open_consumer(client, group="g") as consumer:
        await consumer.assign(T0)
        assert (await consumer.committed())[T0].offset == 13


async def test_reading_and_writing_in_transactions_copies_each_record_once(three: BlockingBroker, door: Door) -> None:
    """Read, write and commit the position in one transaction; every second one aborts and is done again."""
    for number in range(10):
        three.append("t", [b"%d" % number], partition=0)
    async with door.client(three.native) as client, door.producer(client, transactional_id="copier") as producer:
        for attempt in range(30):
            reading = {"follow": False, "group": "g", "isolation": "read_committed", "max_bytes": 1}
            async with door.consumer(client, **reading) as consumer:
                await consumer.assign(T0)
                await consumer.seek_to_committed()
                batch = await consumer.next_batch()
                if batch is None:
                    break
                transaction = producer.transaction()
                await transaction.begin()
                for record in batch.records():
                    await producer.send("t", record.value, partition=1)
                await transaction.send_offsets("g", {T0: batch.next_offset})
                await (transaction.abort() if attempt % 2 else transaction.commit())
    assert await values(three, 1, isolation=Isolation.READ_COMMITTED) == list(range(10))


async def test_a_committed_follower_is_woken_by_the_commit(three: BlockingBroker, door: Door) -> None:
    async with door.client(three.native) as client, door.producer(client, transactional_id="x", linger_ms=0) as producer:
        async with door.consumer(client, isolation="read_committed", max_wait_ms=600_000) as consumer:
            await consumer.assign(T0)
            with trio.fail_after(30):
                async with producer.transaction():
                    await (await producer.send("t", b"1", partition=0))
                batch = await consumer.next_batch()
                assert [record.value for record in batch.records()] == [b"1"]


async def test_a_transaction_that_the_server_never_heard_of_ends_either_way(three: BlockingBroker, door: Door) -> None:
    async with door.client(three.native) as client:
        async with door.producer(client, transactional_id="x", linger_ms=60_000) as producer:
            async with producer.transaction():
                await producer.send("t", b"0", partition=0)
            transaction = producer.transaction()
            for flushes in (False, True):
                await transaction.begin()
                await producer.send("t", b"1", partition=0)
                if flushes:
                    await producer.flush()
                await transaction.abort()
            async with producer.transaction() as transaction:
                await transaction.send_offsets("g", {})
            async with producer.transaction():
                await producer.send("t", b"3", partition=0)
    assert await values(three, isolation=Isolation.READ_COMMITTED) == [0, 3]
