"""The broker's door: reads that never wait for an append, long polls, fan-out, and truncation under a reader."""

from __future__ import annotations

import errno
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol import errors, limits, types
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TimestampAndOffset
from triolog.server.broker import LOOKUPS_PER_TURN, READER_TASKS, Broker, FetchAnswer, FetchPartition
from triolog.server.logs.reader import (
    BYTES_PER_STEP,
    ENDS_AT_ONE_MOMENT,
    STEPS_AT_ONCE,
    STEPS_OF_LONG_LOOKUP,
    STEPS_PER_LOOKUP,
)
from triolog.server.loop.procedures import Procedure, perform
from triolog.server.loop.turns import STEPS_PER_TURN
from triolog.server.storage.errors import LogOfflineError
from triolog.server.storage.log.changes import truncate_to

from tests.support.brokers import (
    LARGE,
    PARTITION,
    PATIENCE_S,
    TOPIC,
    actor_of,
    one_partition,
    running_broker,
    until,
    value,
    values_from,
)
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS

settled = trio.testing.wait_all_tasks_blocked
NONE = TimestampAndOffset(-1, -1, -1)


def question(offset: int = 0, partition: types.TopicPartition = PARTITION, max_bytes: int = LARGE) -> FetchPartition:
    return FetchPartition(partition, offset, max_bytes)


def fetched_bytes(answer: FetchAnswer) -> bytes:
    """The records of an answer; its error is raised."""
    if answer.error is not None:
        raise answer.error
    assert answer.fetched is not None
    return bytes(answer.fetched.records)


async def fill(broker: Broker, count: int, partition: types.TopicPartition = PARTITION) -> None:
    """Records of value `<offset>`, a millisecond apart."""
    for number in range(count):
        await broker.writer.append(partition, value(str(number), START_MS + number))


@asynccontextmanager
async def polling(broker: Broker, *questions: FetchPartition, min_bytes: int = 1) -> AsyncIterator[list[FetchAnswer]]:
    """A fetch that waits for its last partition when the block begins, and is answered when the block has ended."""
    answers: list[FetchAnswer] = []

    async def poll() -> None:
        fetch = broker.reader.fetch(questions, max_bytes=LARGE, min_bytes=min_bytes, max_wait_s=PATIENCE_S)
        answers.extend(await fetch)

    with trio.fail_after(PATIENCE_S / 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await until(lambda: len(actor_of(broker, questions[-1].topic_partition).waiters) == 1)
            yield answers


@pytest.mark.parametrize(("held", "cached_reads"), [("write", True), ("sync", True), ("write", False)])
async def test_lookups_fetches_and_descriptions_await_no_append(tmp_path: Path, held: str, cached_reads: bool) -> None:
    fs = GateFileSystem(cached_reads=cached_reads)
    async with one_partition(tmp_path, fs=fs, durability="fsync", topic={"index.interval.bytes": "0"}) as broker:
        await fill(broker, 20)
        async with trio.open_nursery() as nursery:
            with fs.hold(held, ".log") as gate:
                for _ in range(3):
                    nursery.start_soon(broker.writer.append, PARTITION, value("waiting", START_MS + 100))
                await gate.reached()
                with trio.fail_after(PATIENCE_S):
                    assert await broker.reader.offset_for_time(PARTITION, START_MS + 7) == (START_MS + 7, 7, 0)
                    assert await broker.reader.offset_for_time(PARTITION, types.LATEST_TIMESTAMP) == (-1, 20, 0)
                    assert await broker.reader.offset_for_time(PARTITION, types.EARLIEST_TIMESTAMP) == (-1, 0, 0)
                    assert await broker.reader.offset_for_time(PARTITION, types.MAX_TIMESTAMP) == (START_MS + 19, 19, 0)
                    assert await broker.reader.offset_for_time(PARTITION, START_MS + 100) == NONE
                    many = await perform(
                        broker.reader.offsets_for_times([(PARTITION, START_MS + number) for number in range(20)])
                    )
                    assert [found.offset for found in many if isinstance(found, TimestampAndOffset)] == list(range(20))
                    assert await values_from(broker) == [str(number).encode() for number in range(20)]
                    assert (await broker.reader.explain(PARTITION, timestamp=START_MS + 7))["answer"]["offset"] == 7
                    assert (await broker.reader.explain(PARTITION, offset=7))["answer"]["batch_base_offset"] == 7
                    assert broker.topics.describe(TOPIC).partitions[0].high_watermark == 20
                    assert broker.reader.snapshot(PARTITION).high_watermark == 20
                    assert broker.logs.statistics(PARTITION).appends == 20
                assert actor_of(broker).log.log_end_offset == 20
                gate.release()
        assert await broker.reader.offset_for_time(PARTITION, START_MS + 100) == (START_MS + 100, 20, 0)


async def test_appends_do_not_wait_for_readers(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    async with one_partition(tmp_path, fs=fs) as broker:
        await fill(broker, 2)
        async with trio.open_nursery() as nursery:
            with fs.hold("read", ".log") as gate:
                for _ in range(READER_TASKS + 4):
                    nursery.start_soon(values_from, broker)
                await gate.reached(READER_TASKS)
                with trio.fail_after(PATIENCE_S):
                    assert (await broker.writer.append(PARTITION, value("c"))).base_offset == 2
                gate.release()


async def test_lookups_fan_out_to_at_most_sixteen_readers_and_answer_in_order(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    partitions = [types.TopicPartition("many", number) for number in range(40)]
    asked = partitions * LOOKUPS_PER_TURN
    async with running_broker(tmp_path, fs=fs, durable=False) as broker:
        await broker.topics.create("many", len(partitions))
        for partition in partitions[::5]:
            await broker.writer.append(partition, value("x", START_MS + partition.partition))
        answers: list[TimestampAndOffset | errors.RequestError] = []

        async def ask() -> None:
            answers.extend(await perform(broker.reader.offsets_for_times([(partition, START_MS) for partition in asked])))

        async with trio.open_nursery() as nursery:
            with fs.hold("read", ".log") as gate:
                nursery.start_soon(ask)
                await gate.reached(READER_TASKS)
                await settled()
                assert gate.arrived == READER_TASKS
                gate.release()
        for partition, answer in zip(asked, answers, strict=True):
            number = partition.partition
            assert answer == (NONE if number % 5 else (START_MS + number, 0, 0))


async def test_lookups_of_what_is_cached_take_no_task_and_no_thread(broker: Broker) -> None:
    await fill(broker, 20)
    questions = [(PARTITION, START_MS + number % 20) for number in range(40)]
    await perform(broker.reader.offsets_for_times(questions))
    spawned: list[trio.lowlevel.Task] = []

    class Spawned(trio.abc.Instrument):
        def task_spawned(self, task: trio.lowlevel.Task) -> None:
            spawned.append(task)

    watching, before = Spawned(), actor_of(broker).disk.statistics()
    trio.lowlevel.add_instrument(watching)
    answers = await perform(broker.reader.offsets_for_times(questions))
    trio.lowlevel.remove_instrument(watching)
    after = actor_of(broker).disk.statistics()
    assert [answer.offset for answer in answers if isinstance(answer, TimestampAndOffset)] == [*range(20), *range(20)]
    assert spawned == []
    assert (after.hops, after.cold_reads, after.cached_reads) == (before.hops, before.cold_reads, before.cached_reads + 40)


async def test_many_lookups_let_others_have_their_turn(broker: Broker) -> None:
    await fill(broker, 2)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await perform(broker.reader.offsets_for_times([(PARTITION, START_MS)] * 4_800))
        assert turns >= 9 * (4_800 * STEPS_PER_LOOKUP // STEPS_PER_TURN) // 10
        nursery.cancel_scope.cancel()


def in_turn(procedure: Procedure[Any]) -> Any:
    """What a procedure returns without waiting for anything; None where it waits."""
    try:
        next(procedure)
    except StopIteration as stop:
        return stop.value
    return None


async def test_what_is_cached_is_answered_on_the_spot_as_it_is_by_who_waits(broker: Broker) -> None:
    await fill(broker, 3)
    gone = types.TopicPartition("gone", 0)
    asked = [FetchPartition(PARTITION, 1, 100), FetchPartition(gone, 0, 100), FetchPartition(PARTITION, 3, 100)]
    at_once = in_turn(broker.reader.read(asked, max_bytes=1_000))
    answers, is_enough = await perform(broker.reader.read(asked, max_bytes=1_000))
    assert at_once is not None
    assert at_once[1] is is_enough
    assert [(each.topic_partition, each.fetched) for each in at_once[0]] == [
        (each.topic_partition, each.fetched) for each in answers
    ]
    questions = [(PARTITION, START_MS), (gone, 0), (PARTITION, -1), (PARTITION, -17)]
    told = [in_turn(broker.reader.offsets_for_times(questions)), await perform(broker.reader.offsets_for_times(questions))]
    first, second = ([getattr(each, "code", each) for each in answers or ()] for answers in told)
    assert first == second
    assert len(first) == 4


async def test_what_has_to_be_waited_for_is_not_answered_on_the_spot_and_not_counted(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    async with one_partition(tmp_path, fs=fs) as broker:
        await fill(broker, 3)
        asked = [FetchPartition(PARTITION, 3, 100), FetchPartition(PARTITION, 1, 100)]
        assert in_turn(broker.reader.read(asked, max_bytes=1_000)) is None
        assert in_turn(broker.reader.offsets_for_times([(PARTITION, -1), (PARTITION, START_MS)])) is None
        assert actor_of(broker).fetched_bytes == 0
        answers, _ = await perform(broker.reader.read(asked, max_bytes=1_000))
        assert (
            actor_of(broker).fetched_bytes == sum(len(each.fetched.records) for each in answers if each.fetched is not None) > 0
        )


async def test_no_more_is_answered_on_the_spot_than_fits_a_turn(broker: Broker) -> None:
    await fill(broker, 3)
    turns = broker.disk.turns
    turns.begin()
    fits = (STEPS_PER_TURN - 1) // (STEPS_AT_ONCE + STEPS_OF_LONG_LOOKUP)
    assert in_turn(broker.reader.offsets_for_times([(PARTITION, -3)] * (fits + 1))) is None, "they need not be short"
    turns.begin()
    assert in_turn(broker.reader.offsets_for_times([(PARTITION, -3)] * fits)) is not None
    turns.begin()
    assert in_turn(broker.reader.offsets_for_times([(PARTITION, -1)] * ENDS_AT_ONE_MOMENT)) is not None, "a mirror's cut"
    assert in_turn(broker.reader.offsets_for_times([(PARTITION, -1)] * (ENDS_AT_ONE_MOMENT + 1))) is None
    turns.begin()
    fits = (STEPS_PER_TURN - 1) // STEPS_AT_ONCE
    assert in_turn(broker.reader.offsets_for_times([(PARTITION, START_MS)] * fits)) is not None
    assert in_turn(broker.reader.offsets_for_times([(PARTITION, START_MS)])) is None
    assert in_turn(broker.reader.read([FetchPartition(PARTITION, 0, 100)], max_bytes=100)) is None
    turns.begin()
    assert in_turn(broker.reader.read([FetchPartition(PARTITION, 0, 100)], max_bytes=100)) is not None


async def test_a_large_answer_takes_the_turn_from_what_follows(broker: Broker) -> None:
    await broker.writer.append(PARTITION, build_batch([(START_MS, None, bytes(limits.MIB - 1_000), ())]))
    asked = [FetchPartition(PARTITION, 0, limits.MIB)]
    count = (STEPS_PER_TURN - 1) // (STEPS_PER_LOOKUP + limits.MIB // BYTES_PER_STEP)
    broker.disk.turns.begin()
    assert in_turn(broker.reader.read(asked * count, max_bytes=count * limits.MIB)) is not None
    assert in_turn(broker.reader.read(asked * 2, max_bytes=2 * limits.MIB)) is None


async def test_an_error_of_one_lookup_is_its_answer_and_the_others_are_answered(broker: Broker) -> None:
    await fill(broker, 3)
    questions = [
        (PARTITION, START_MS),
        (types.TopicPartition("gone", 0), 0),
        (PARTITION, -17),
        (PARTITION._replace(partition=9), 0),
    ]
    answers = await perform(broker.reader.offsets_for_times(questions * 10))
    assert len(answers) == 40
    for first, gone, refused, beyond in zip(*[iter(answers)] * 4, strict=True):
        assert first == (START_MS, 0, 0)
        assert isinstance(gone, errors.UnknownTopicOrPartitionError)
        assert isinstance(refused, errors.RequestError)
        assert isinstance(beyond, errors.UnknownTopicOrPartitionError)
    assert await perform(broker.reader.offsets_for_times([])) == []


async def test_a_fetch_answers_each_partition_in_order_with_its_own_error(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("t", 2)
        first, second = types.TopicPartition("t", 0), types.TopicPartition("t", 1)
        await fill(broker, 2, first)
        await fill(broker, 3, second)
        asked = [question(0, second), question(9, first), question(0, types.TopicPartition("gone", 0)), question(1, first)]
        answers = await broker.reader.fetch(asked, max_bytes=LARGE)
        assert [answer.topic_partition for answer in answers] == [each.topic_partition for each in asked]
        assert [header.base_offset for header, _ in iter_batches(fetched_bytes(answers[0]))] == [0, 1, 2]
        assert isinstance(answers[1].error, errors.OffsetOutOfRangeError)
        assert isinstance(answers[2].error, errors.UnknownTopicOrPartitionError)
        assert [header.base_offset for header, _ in iter_batches(fetched_bytes(answers[3]))] == [1]


async def test_a_fetch_stops_at_its_bytes_but_always_gives_one_batch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("t", 2)
        first, second = types.TopicPartition("t", 0), types.TopicPartition("t", 1)
        await fill(broker, 10, first)
        await fill(broker, 10, second)
        one = len(next(iter_batches(fetched_bytes((await broker.reader.fetch([question(0, first)], max_bytes=1))[0])))[1])
        both = await broker.reader.fetch([question(0, first), question(0, second)], max_bytes=1)
        assert [len(fetched_bytes(answer)) for answer in both] == [one, 0]
        both = await broker.reader.fetch([question(0, first, 2 * one), question(0, second)], max_bytes=5 * one)
        assert [len(fetched_bytes(answer)) for answer in both] == [2 * one, 3 * one]
        nothing_first = await broker.reader.fetch([question(10, first), question(0, second)], max_bytes=1)
        assert [len(fetched_bytes(answer)) for answer in nothing_first] == [0, one]


async def test_a_long_poll_ends_with_the_append_it_waits_for(broker: Broker) -> None:
    async with polling(broker, question()) as answers:
        await broker.writer.append(PARTITION, value("news"))
    assert fetched_bytes(answers[0])
    assert len(actor_of(broker).waiters) == 0


async def test_a_long_poll_wakes_when_the_high_watermark_moves_not_when_the_record_is_written(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        async with polling(broker, question()) as answers:
            with fs.hold("sync", ".log") as gate:
                await broker.writer.append(PARTITION, value("news"), acks=1)
                await gate.reached()
                await settled()
                assert answers == []
                gate.release()
        assert fetched_bytes(answers[0])


async def test_a_long_poll_waits_for_min_bytes_over_all_its_partitions(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("t", 2)
        first, second = types.TopicPartition("t", 0), types.TopicPartition("t", 1)
        await fill(broker, 1, first)
        one = len(fetched_bytes((await broker.reader.fetch([question(0, first)], max_bytes=LARGE))[0]))
        async with polling(broker, question(0, first), question(0, second), min_bytes=3 * one) as answers:
            await broker.writer.append(second, value("0"))
            await settled()
            assert answers == []
            await broker.writer.append(second, value("1"))
        assert [len(fetched_bytes(answer)) for answer in answers] == [one, 2 * one]


async def test_a_long_poll_that_runs_out_answers_what_is_there(broker: Broker) -> None:
    await fill(broker, 1)
    answers = await broker.reader.fetch([question()], max_bytes=LARGE, min_bytes=10_000, max_wait_s=0.001)
    assert len(fetched_bytes(answers[0])) > 0
    answers = await broker.reader.fetch([question(1)], max_bytes=LARGE, min_bytes=1, max_wait_s=0.001)
    assert fetched_bytes(answers[0]) == b""
    assert len(actor_of(broker).waiters) == 0


async def test_without_min_bytes_or_with_an_error_nothing_is_waited_for(broker: Broker) -> None:
    with trio.fail_after(PATIENCE_S / 2):
        answers = await broker.reader.fetch([question()], max_bytes=LARGE, min_bytes=0, max_wait_s=PATIENCE_S)
    assert fetched_bytes(answers[0]) == b""
    with trio.fail_after(PATIENCE_S / 2):
        asked = [question(), question(0, types.TopicPartition("gone", 0))]
        answers = await broker.reader.fetch(asked, max_bytes=LARGE, max_wait_s=PATIENCE_S)
    assert fetched_bytes(answers[0]) == b""
    assert isinstance(answers[1].error, errors.UnknownTopicOrPartitionError)


async def test_deleting_the_topic_ends_a_long_poll_with_an_error_as_value(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("stays")
        await broker.topics.create(TOPIC)
        async with polling(broker, question(0, types.TopicPartition("stays", 0)), question()) as answers:
            await broker.topics.delete(TOPIC)
        assert fetched_bytes(answers[0]) == b""
        assert isinstance(answers[1].error, errors.UnknownTopicOrPartitionError)


async def test_the_error_of_a_log_that_is_offline_does_not_grow_with_every_append(tmp_path: Path) -> None:
    """It is kept, and would collect the frames, and with them the records, of every call that it ended."""
    depths = []
    async with one_partition(tmp_path) as broker:
        actor_of(broker).take_offline("a test says so")
        for _ in range(3):
            with pytest.raises(LogOfflineError) as raised:
                await broker.writer.append(PARTITION, value("x"))
            depths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(set(depths)) == 1


async def test_a_log_that_goes_offline_ends_a_long_poll(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        async with polling(broker, question()) as answers:
            fs.fail("sync", ".log", number=errno.EIO)
            with pytest.raises(LogOfflineError):
                await broker.writer.append(PARTITION, value("x"))
        assert isinstance(answers[0].error, LogOfflineError)


async def test_a_reader_whose_log_is_cut_meanwhile_answers_from_the_log_as_it_is(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    async with one_partition(tmp_path, fs=fs) as broker:
        await fill(broker, 6)
        found: list[list[bytes | None]] = []
        lookups: list[TimestampAndOffset] = []

        async def reader() -> None:
            found.append(await values_from(broker))

        async def looker() -> None:
            lookups.append(await broker.reader.offset_for_time(PARTITION, START_MS + 5))

        async with trio.open_nursery() as nursery:
            with fs.hold("read", ".log", most=2) as gate:
                nursery.start_soon(reader)
                nursery.start_soon(looker)
                await gate.reached(2)
                await actor_of(broker).perform(lambda log: truncate_to(log, 2))
                for text in ("new 2", "new 3"):
                    await broker.writer.append(PARTITION, value(text, START_MS + 50))
                gate.release()
        assert found == [[b"0", b"1", b"new 2", b"new 3"]]
        assert lookups == [(START_MS + 50, 2, 0)]


async def test_a_reader_beyond_the_cut_is_told_that_its_offset_is_out_of_range(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with one_partition(tmp_path, fs=fs, topic={"segment.bytes": "200"}) as broker:
        for number in range(6):
            await broker.writer.append(PARTITION, value(f"{number}" * 80))
        await actor_of(broker).perform(lambda log: truncate_to(log, 1))
        with pytest.raises(errors.OffsetOutOfRangeError):
            await values_from(broker, offset=5)
        assert (await broker.writer.append(PARTITION, value("1"))).base_offset == 1
        assert len(await values_from(broker)) == 2


@pytest.mark.parametrize("held", ["read", "open"])
async def test_a_reader_whose_topic_is_deleted_meanwhile_is_told_so(tmp_path: Path, held: str) -> None:
    fs = GateFileSystem(cached_reads=False)
    async with one_partition(tmp_path, fs=fs) as broker:
        await fill(broker, 2)
        if held == "open":
            broker.disk.files.release([actor_of(broker).log.active.log], [])

        async def reader() -> None:
            with pytest.raises(errors.RequestError, match=r"^UNKNOWN_TOPIC_OR_PARTITION"):
                await values_from(broker)

        async with trio.open_nursery() as nursery:
            with fs.hold(held, ".log") as gate:
                nursery.start_soon(reader)
                await gate.reached()
                await broker.topics.delete(TOPIC)
                gate.release()


async def test_plain_records_take_the_topics_codec_and_the_clock(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, configs={"compression.type": "gzip"})
        await broker.writer.append(PARTITION, [(None, b"k", b"v" * 100, (("h", b"1"),)), (START_MS + 5, None, None, ())])
        header, _ = next(iter_batches(fetched_bytes((await broker.reader.fetch([question()], max_bytes=LARGE))[0])))
        assert (header.compression_type, header.max_timestamp) == (types.CompressionType.GZIP, START_MS + 5)
        assert await broker.reader.offset_for_time(PARTITION, START_MS) == (START_MS, 0, 0)


async def test_appends_to_what_is_not_there_are_refused(broker: Broker) -> None:
    for partition in (types.TopicPartition("gone", 0), PARTITION._replace(partition=1), PARTITION._replace(partition=-1)):
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await broker.writer.append(partition, value("x"))
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await broker.reader.offset_for_time(partition, 0)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            broker.reader.snapshot(partition)
    with pytest.raises(errors.InvalidRecordError, match="no records"):
        await broker.writer.append(PARTITION, [])


async def test_a_topic_is_described_with_what_it_overrides_and_with_all_it_has(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topic_id = await broker.topics.create(TOPIC, 2, {"segment.ms": "1000"})
        await fill(broker, 3)
        description = broker.topics.describe(TOPIC)
        assert (description.topic_id, description.config) == (topic_id, {"segment.ms": "1000"})
        first, second = description.partitions
        assert (first.log_start_offset, first.high_watermark, first.log_end_offset, first.segments) == (0, 3, 3, 1)
        assert first.size_bytes > second.size_bytes == 0
        configs = broker.topics.describe_config(TOPIC)
        assert configs["segment.ms"] == ("1000", "topic")
        assert configs["retention.ms"][1] == "default"
