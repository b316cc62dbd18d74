"""Offers of records: what is checked and enqueued on the spot, and what is left to those who wait."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints
from triolog.protocol.errors import CorruptRecordError, InvalidTopicError, UnknownTopicOrPartitionError
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.broker import Broker
from triolog.server.broker.writer import STEPS_PER_APPEND
from triolog.server.loop.turns import STEPS_PER_TURN
from triolog.server.partitions.disk import STEPS_PER_PROCEDURE
from triolog.server.storage.log.prepare import BYTES_PER_STEP, SMALL_BYTES, steps_of

from tests.server.partitions.appending import Answered, answered
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, until, values_from, with_quick_writes
from tests.support.logs import START_MS, batch


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[None]]:
    """A task that does nothing but take its turns, and a list with an entry for each of them."""
    turns: list[None] = []

    async def take() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.lowlevel.checkpoint()
        turns.clear()
        yield turns
        nursery.cancel_scope.cancel()


def offer(broker: Broker, records: Any, partition: TopicPartition = PARTITION) -> Any:
    return broker.writer.offer(partition, records, -1, lambda _: None)


async def test_a_small_batch_is_checked_on_the_spot_as_by_those_who_wait(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        actor, records = actor_of(broker), batch(value=b"now")
        assert broker.writer._check_in_turn(actor, records) == await broker.writer.check(PARTITION, records)
        answers: Answered = []
        assert broker.writer.offer(PARTITION, records, -1, answers.append) is None
        assert answers == []
        await answered(answers, 1)
        assert await values_from(broker) == [b"now"]


@pytest.mark.parametrize(
    "records",
    [batch(value=bytes(200_000)), batch(value=bytes(200_000), compression_type=CompressionType.GZIP), batch() * 2],
    ids=["large", "large when it is unpacked", "two batches"],
)
async def test_what_is_not_small_and_plain_has_to_be_waited_for(tmp_path: Path, records: bytes) -> None:
    async with one_partition(tmp_path) as broker:
        await offer(broker, records)()
        await until(lambda: actor_of(broker).log.log_end_offset > 0)


async def test_damage_is_told_by_those_who_wait(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        records = bytearray(batch())
        records[-3] ^= 1
        work = offer(broker, records)
        with pytest.raises(CorruptRecordError, match=f"{TOPIC}-0: "):
            await work()


async def test_where_no_client_may_write_is_told_at_once(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        with pytest.raises(InvalidTopicError):
            offer(broker, batch(), TopicPartition("__consumer_offsets", 0))
        for missing in (TopicPartition("missing", 0), TopicPartition(TOPIC, 1), TopicPartition(TOPIC, -1)):
            with pytest.raises(UnknownTopicOrPartitionError):
                offer(broker, batch(), missing)


@pytest.mark.parametrize("size", [100, 15_000, 120_000])
async def test_many_batches_leave_others_their_turn(tmp_path: Path, size: int) -> None:
    """What would be one too many has to be waited for, and lets others have their turn; then it goes on."""
    records = batch(value=bytes(size))
    steps = steps_of(records) if len(records) > SMALL_BYTES else len(records) // BYTES_PER_STEP
    per_turn = (STEPS_PER_TURN - 1 - STEPS_PER_PROCEDURE) // (STEPS_PER_PROCEDURE + steps)
    async with one_partition(tmp_path) as broker:
        rounds = []
        for _ in range(3):
            checked = 0
            while (work := offer(broker, records)) is None:
                checked += 1
            rounds.append(checked)
            with assert_checkpoints():
                await work()
        assert rounds[0] <= per_turn + 1
        assert set(rounds[1:]) <= {per_turn, per_turn + 1}
        assert per_turn >= 4


@pytest.mark.parametrize("records", [batch(value=b"x"), [(None, None, b"x", ())]], ids=["a batch", "plain records"])
async def test_an_append_to_a_partition_that_rests_is_answered_without_a_turn_of_the_scheduler(
    tmp_path: Path, records: Any
) -> None:
    async with one_partition(tmp_path, durability="os") as broker, turns_of_others() as turns:
        await with_quick_writes(broker).writer.append(PARTITION, records)  # which opens the file
        broker.disk.turns.begin()
        turns.clear()
        for offset in range(1, 5):
            assert (await broker.writer.append(PARTITION, records)).base_offset == offset
        assert turns == []
        assert await values_from(broker) == [b"x"] * 5


async def test_many_appends_leave_others_their_turn(tmp_path: Path) -> None:
    unindexed = {"index.interval.bytes": "1000000"}  # the files of indexes are opened in a thread
    async with one_partition(tmp_path, durability="os", topic=unindexed) as broker, turns_of_others() as turns:
        await with_quick_writes(broker).writer.append(PARTITION, batch())
        turns.clear()
        count = 4 * STEPS_PER_TURN // STEPS_PER_APPEND
        for _ in range(count):
            await broker.writer.append(PARTITION, batch())
        assert len(turns) >= 4
        assert len(turns) <= count // 8


async def test_records_that_expire_at_once_are_warned_of_on_the_spot_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_partition(tmp_path, topic={"retention.ms": "1000"}) as broker:
        with caplog.at_level(logging.WARNING):
            for timestamp in (START_MS - 1000, START_MS - 1001, START_MS - 1001):
                assert offer(broker, batch(timestamp)) is None
        warnings = [record.getMessage() for record in caplog.records if "retention.ms" in record.getMessage()]
        assert len(warnings) == 1
        assert str(START_MS - 1001) in warnings[0]
