"""The partition's actor: groups, when an append is answered and visible, what a failing disk does, and callers that go away."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import AppendResult, TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.partitions.partition import PartitionActor
from triolog.server.storage.errors import AppendFailedError, LogOfflineError
from triolog.server.storage.log.changes import truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.prepare import prepare_append

from tests.support.brokers import (
    LARGE,
    PARTITION,
    PATIENCE_S,
    TOPIC,
    actor_of,
    one_partition,
    records_from,
    until,
    value,
    values_from,
)
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, batch

settled = trio.testing.wait_all_tasks_blocked


def losing(broker: Broker, fs: GateFileSystem, times: int = 1) -> Callable[[AppendResult | RequestError], None]:
    """The log's file is closed with the answer, and cannot be opened the next `times` times."""

    def lose(answer: AppendResult | RequestError) -> None:
        broker.disk.files.release([actor_of(broker).log.active.log], [])
        fs.fail("open", ".log", number=errno.EMFILE, times=times)

    return lose


async def visible(broker: Broker) -> int:
    return len(await values_from(broker))


@pytest.mark.parametrize("durability", ["fsync", "group:50", "os"])
async def test_appends_during_a_write_are_one_group_in_order(tmp_path: Path, fs: GateFileSystem, durability: str) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, durability=durability) as broker:
        actor = actor_of(broker)
        async with held(fs.hold("write", ".log"), send, actor, answers):
            await send(actor, answers, count=100)
            assert actor.statistics().waiting_commands == 100
        await answered(answers, 101)
        assert offsets(answers) == list(range(101))
        statistics = actor.statistics()
        assert (statistics.groups, statistics.appends) == (2, 101)
        assert fs.count("write", ".log") == 2
        assert durability != "fsync" or (fs.count("sync", ".log"), statistics.syncs) == (2, 2)
        assert statistics.waiting_commands == 0
        assert [record.offset for record in await records_from(broker)] == list(range(101))


async def test_a_group_rolls_and_refuses_only_appends_that_are_too_large(tmp_path: Path, fs: GateFileSystem) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, topic={"segment.bytes": "2000"}) as broker:
        actor = actor_of(broker)
        async with held(fs.hold("write", ".log"), send, actor, answers):
            await send(actor, answers, size=500, count=10)
            await send(actor, answers, size=3000)
            await send(actor, answers, size=500, count=10)
        await answered(answers, 22)
        refused = answers.pop(11)
        assert isinstance(refused, RequestError)
        assert refused.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert offsets(answers) == list(range(21))
        assert len(actor.log.segments) > 5
        assert len(await records_from(broker)) == 21


async def test_fsync_answers_acks_all_and_shows_the_record_only_after_the_sync(tmp_path: Path, fs: GateFileSystem) -> None:
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        actor = actor_of(broker)
        async with held(fs.hold("sync", ".log"), send, actor, answers):
            await settled()
            assert answers == []
            assert (actor.log.high_watermark, actor.log.recovery_point) == (0, 0)
            assert await visible(broker) == 0
        await answered(answers, 1)
        assert actor.log.high_watermark == actor.log.recovery_point == actor.log.log_end_offset == 1
        assert await visible(broker) == 1


async def test_fsync_answers_acks_one_after_the_write_and_shows_it_after_the_sync(tmp_path: Path, fs: GateFileSystem) -> None:
    leader: Answered = []
    everyone: Answered = []
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        actor = actor_of(broker)
        with fs.hold("write", ".log") as writing, fs.hold("sync", ".log") as syncing:
            await send(actor, [])
            await writing.reached()
            await send(actor, leader, acks=1)
            await send(actor, everyone)
            writing.release()
            await syncing.reached()
            syncing.release()
        with fs.hold("sync", ".log") as syncing:
            await send(actor, leader, acks=1)
            await send(actor, everyone)
            await syncing.reached()
            await answered(leader, 2)
            assert offsets(leader) == [1, 3]
            assert actor.log.high_watermark == actor.log.recovery_point < actor.log.log_end_offset
            assert await visible(broker) == actor.log.high_watermark
            answer = (await broker.reader.fetch([FetchPartition(PARTITION, 3, LARGE)], max_bytes=LARGE))[0]
            assert answer.fetched is not None
            assert answer.fetched.records == b""
        await answered(everyone, 2)
        assert offsets(everyone) == [2, 4]
        assert actor.log.high_watermark == actor.log.recovery_point == 5
        assert await visible(broker) == 5


async def test_os_never_syncs_and_shows_the_record_after_the_write(tmp_path: Path, fs: GateFileSystem) -> None:
    """Until the durability changes; fsync then syncs appends with acks=0 too."""
    async with one_partition(tmp_path, fs=fs, durability="os") as broker:
        created = fs.count("sync", ".log")
        for number in range(5):
            assert (await broker.writer.append(PARTITION, value(str(number)))).base_offset == number
        assert await visible(broker) == 5
        assert fs.count("sync", ".log") == created
        log = actor_of(broker).log
        assert (log.high_watermark, log.recovery_point) == (5, 0)
        assert actor_of(broker).statistics().unsynced_ms >= 0
        await broker.topics.alter_configs(TOPIC, {"durability": "fsync"})
        assert log.recovery_point == 5, "what was written before is synced with the change"
        await broker.topics.alter_configs(TOPIC, {"durability": "group:1"})
        await broker.writer.append(PARTITION, value("b"))
        await until(lambda: log.recovery_point == 6)
        await broker.topics.alter_configs(TOPIC, {"durability": "fsync"})
        before = fs.count("sync", ".log")
        assert await broker.writer.append(PARTITION, value("a"), acks=0) == AppendResult(-1, -1, -1, -1)
        await until(lambda: log.recovery_point == 7)
        assert fs.count("sync", ".log") == before + 1


async def test_group_durability_syncs_at_most_once_per_interval(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="group:100") as broker:
        actor, began = actor_of(broker), trio.current_time()
        for number in range(30):
            await broker.writer.append(PARTITION, value(str(number)))
        assert await visible(broker) == 30
        with trio.fail_after(PATIENCE_S):
            while actor.log.recovery_point < 30:
                await broker.writer.append(PARTITION, value("more"))
        passed_ms = (trio.current_time() - began) * 1000
        assert fs.count("sync", ".log") <= 2 + passed_ms // 100


async def test_group_durability_tells_the_age_of_what_is_not_synced(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="group:1") as broker:
        actor = actor_of(broker)
        assert actor.statistics().unsynced_ms == 0.0
        async with held(fs.hold("sync", ".log"), broker.writer.append, PARTITION, value("a")):
            younger = actor.statistics().unsynced_ms
            with trio.fail_after(PATIENCE_S):
                for number in range(1, 20):
                    assert (await broker.writer.append(PARTITION, value(str(number)))).base_offset == number
            assert await visible(broker) == 20
            assert fs.count("sync", ".log") == 1
            assert actor.statistics().unsynced_ms > younger > 0.0
            assert actor.log.recovery_point == 0
        await until(lambda: actor.log.recovery_point == 20)
        await settled()
        assert actor.statistics().unsynced_ms == 0.0


async def test_flush_messages_is_honoured_under_os(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="os", topic={"flush.messages": "10"}) as broker:
        log = actor_of(broker).log
        for number in range(9):
            await broker.writer.append(PARTITION, value(str(number)))
        await settled()
        assert fs.count("sync", ".log") == 0
        await broker.writer.append(PARTITION, value("9"))
        await until(lambda: log.recovery_point == 10)
        assert fs.count("sync", ".log") == 1


async def test_flush_ms_is_honoured_under_os(tmp_path: Path, fs: GateFileSystem) -> None:
    """Kafka: LogManagerTest.testTimeBasedFlush."""
    async with one_partition(tmp_path, fs=fs, durability="os", topic={"flush.ms": "1"}) as broker:
        log = actor_of(broker).log
        await broker.writer.append(PARTITION, value("a"))
        await until(lambda: log.recovery_point == 1)
        assert fs.count("sync", ".log") == 1


@pytest.mark.parametrize(("durability", "acks"), [("fsync", -1), ("fsync", 1), ("group:1", -1)])
async def test_a_failed_sync_takes_its_log_offline(tmp_path: Path, fs: GateFileSystem, durability: str, acks: int) -> None:
    other = TopicPartition("other", 0)
    async with one_partition(tmp_path, fs=fs, durability=durability) as broker:
        await broker.topics.create("other")
        await broker.writer.append(PARTITION, value("before"))
        fs.fail("sync", f"{TOPIC}-0/00000000000000000000.log", number=errno.EIO)
        with pytest.raises(LogOfflineError) if (durability, acks) == ("fsync", -1) else contextlib.nullcontext():
            await broker.writer.append(PARTITION, value("lost"), acks=acks)
        await until(lambda: actor_of(broker).log.offline is not None)
        fs.heal()
        for _ in range(2):
            for attempt in (lambda: broker.writer.append(PARTITION, value("x")), lambda: values_from(broker)):
                with pytest.raises(LogOfflineError) as raised:
                    await attempt()
                assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
                for said in (str(tmp_path / "topic-0"), "sync failed", "restart the server"):
                    assert said in raised.value.message
        with pytest.raises(LogOfflineError):
            await broker.reader.offset_for_time(PARTITION, 0)
        assert broker.topics.describe(TOPIC).partitions[0].error is not None
        await broker.writer.append(other, value("alive"))
        assert await values_from(broker, other) == [b"alive"]
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with one_partition(tmp_path, durability="fsync") as broker:
        assert (await values_from(broker))[0] == b"before"


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_full_disk_in_the_middle_of_a_write_leaves_nothing(tmp_path: Path, fs: GateFileSystem, durability: str) -> None:
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, durability=durability) as broker:
        actor = actor_of(broker)
        await broker.writer.append(PARTITION, value("before"))
        size = path.stat().st_size
        fs.fail("write", ".log", after_bytes=70)
        with pytest.raises(RequestError, match="Nothing of the append is stored"):
            await broker.writer.append(PARTITION, value("torn"))
        assert path.stat().st_size == size, "not only when the next append comes"
        async with held(fs.hold("write", ".log"), send, actor, answers):
            fs.fail("write", ".log", after_bytes=70)
            await send(actor, answers, count=5)
        await answered(answers, 6)
        errors = [answer for answer in answers if isinstance(answer, RequestError)]
        assert errors
        for error in errors:
            assert isinstance(error, AppendFailedError)
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert str(path) in error.message
            assert "No space left" in error.message
            assert "Free space" in error.message
        done = len(offsets([answer for answer in answers if not isinstance(answer, RequestError)]))
        log = actor.log
        assert path.stat().st_size == log.active.size >= size
        assert log.log_end_offset == log.high_watermark == 1 + done
        assert await visible(broker) == 1 + done
        result = await broker.writer.append(PARTITION, value("after"))
        assert result.base_offset == 1 + done
        assert (await values_from(broker))[-1] == b"after"
    async with one_partition(tmp_path) as broker:
        assert (await values_from(broker))[-1] == b"after"


async def test_a_full_disk_while_rolling_refuses_the_append_and_the_next_one_rolls(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, topic={"segment.bytes": "200"}) as broker:
        await broker.writer.append(PARTITION, value("a" * 80))
        fs.fail("open", "00000000000000000001.log")
        with pytest.raises(AppendFailedError, match="starting a new segment") as raised:
            await broker.writer.append(PARTITION, value("b" * 80))
        assert str(tmp_path / "topic-0") in raised.value.message
        assert await visible(broker) == 1
        result = await broker.writer.append(PARTITION, value("c" * 80))
        assert result.base_offset == 1
        assert [text[:1] for text in await values_from(broker) if text] == [b"a", b"c"]
        assert await broker.reader.offset_for_time(PARTITION, START_MS) == (START_MS, 0, 0)
    async with one_partition(tmp_path) as broker:
        assert await visible(broker) == 2


@pytest.mark.parametrize(
    ("suffix", "durability"),
    [("0.log", "fsync"), ("0.index", "fsync"), ("0.timeindex", "fsync"), (".snapshot", "fsync"), (".snapshot", "group:1")],
)
async def test_a_roll_whose_sync_fails_ends_the_log(tmp_path: Path, fs: GateFileSystem, suffix: str, durability: str) -> None:
    """The recovery point has passed the segment: recovery would trust a file that the kernel has lost. A second sync may
    succeed silently, for the kernel has forgotten what it could not write."""
    async with one_partition(tmp_path, fs=fs, durability=durability, topic={"segment.bytes": "200"}) as broker:
        await broker.writer.append(PARTITION, value("a" * 80))
        fs.fail("sync", suffix, number=errno.EIO)
        with contextlib.nullcontext() if durability == "group:1" else pytest.raises(LogOfflineError):
            await broker.writer.append(PARTITION, value("b" * 80))
        await until(lambda: actor_of(broker).log.offline is not None)
        with pytest.raises(LogOfflineError, match=rf"a sync failed.*{suffix}.*restart the server"):
            await broker.writer.append(PARTITION, value("c" * 80))
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [text * 80 for text in ([b"a", b"b"] if suffix == ".snapshot" else [b"a"])]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
async def test_an_index_that_cannot_be_written_refuses_the_append(tmp_path: Path, fs: GateFileSystem, suffix: str) -> None:
    topic = {"index.interval.bytes": "0"}
    async with one_partition(tmp_path, fs=fs, topic=topic) as broker:
        await broker.writer.append(PARTITION, value("a"))
        fs.fail("write", suffix)
        with pytest.raises(AppendFailedError) as raised:
            await broker.writer.append(PARTITION, value("b"))
        assert f"00000000000000000000{suffix}" in raised.value.message
        assert await values_from(broker) == [b"a"]
        for number in range(1, 5):
            assert (await broker.writer.append(PARTITION, value(str(number), START_MS + number))).base_offset == number
        assert await values_from(broker) == [b"a", b"1", b"2", b"3", b"4"]
        for number in range(1, 5):
            assert (await broker.reader.offset_for_time(PARTITION, START_MS + number)).offset == number


async def test_a_write_that_cannot_be_taken_back_takes_the_log_offline(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await broker.writer.append(PARTITION, value("a"))
        fs.fail("write", ".log", after_bytes=10)
        fs.fail("truncate", ".log", number=errno.EIO)
        with pytest.raises(LogOfflineError, match="could not be taken back"):
            await broker.writer.append(PARTITION, value("b"))
        with pytest.raises(LogOfflineError, match="could not be taken back"):
            await values_from(broker)
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [b"a"]


@pytest.mark.parametrize("suffix", [".log", ".snapshot"])
async def test_a_file_that_cannot_be_opened_refuses_the_append_only(tmp_path: Path, fs: GateFileSystem, suffix: str) -> None:
    """A log file for its write, a producer snapshot for its sync."""
    async with one_partition(tmp_path, fs=fs, durability="fsync", topic={"segment.bytes": "200"}) as broker:
        await broker.writer.append(PARTITION, value("a" * 80))
        broker.disk.files.release([actor_of(broker).log.active.log], [])
        fs.fail("open", suffix, number=errno.EMFILE)
        with pytest.raises(AppendFailedError, match="Too many open files"):
            await broker.writer.append(PARTITION, value("b" * 80))
        assert (await broker.writer.append(PARTITION, value("c" * 80))).base_offset == 1


@pytest.mark.parametrize("durability", ["group:1", "os"])
async def test_a_file_that_cannot_be_opened_for_a_flush_is_no_failed_sync(
    tmp_path: Path, fs: GateFileSystem, durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_partition(tmp_path, fs=fs, durability=durability, topic={"flush.ms": "1"}) as broker:
        actor = actor_of(broker)

        await actor.append(prepared(actor), -1, losing(broker, fs, times=2))
        await until(lambda: actor.log.recovery_point == 1)
        assert actor.log.offline is None
        assert caplog.text.count("cannot sync written records to the device yet") == 1
        await broker.writer.append(PARTITION, value("after"))
        await until(lambda: actor.log.recovery_point == 2)


async def test_a_flush_that_finds_its_topic_deleted_is_not_tried_again(
    tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    """The rename of the directory comes between two steps of the flush behind a roll."""
    async with one_partition(tmp_path, fs=fs, topic={"segment.bytes": "200"}) as broker:
        await broker.writer.append(PARTITION, value("a" * 80))

        async with held(fs.hold("sync", ".log"), broker.writer.append, PARTITION, value("b" * 80)):
            await broker.topics.delete(PARTITION.topic)
        await until(lambda: not broker.disk.files._leases)  # the flush is over
        await trio.testing.wait_all_tasks_blocked()
    assert caplog.messages == []


@pytest.mark.parametrize("acks", [1, -1])
async def test_fsync_refuses_appends_whose_files_it_cannot_open(tmp_path: Path, fs: GateFileSystem, acks: int) -> None:
    """A mixed group is written first and synced later: in between the file can be closed for want of descriptors."""
    answers: Answered = []
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        actor = actor_of(broker)
        await broker.writer.append(PARTITION, value("before"))

        async with held(fs.hold("write", ".log"), send, actor, answers):
            await actor.append(prepared(actor), 1, losing(broker, fs))
            await send(actor, answers, acks=acks)
        await answered(answers, 2)
        assert isinstance(answers[1], AppendResult if acks == 1 else AppendFailedError)
        assert (actor.log.offline, actor.log.log_end_offset, actor.log.high_watermark) == (None, 4, 2)
        await until(lambda: actor.log.high_watermark == 4)
        assert await visible(broker) == 4


async def test_sending_again_what_is_written_and_not_synced_waits_for_the_sync(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        actor = actor_of(broker)
        again = prepare_append(
            batch(START_MS, producer_id=7, producer_epoch=0, base_sequence=0), PARTITION, actor.config, now_ms=START_MS
        )
        answers: Answered = []

        async with held(fs.hold("write", ".log"), send, actor, []):
            await actor.append(prepared(actor), 1, losing(broker, fs))
            await actor.append(again, -1, answers.append)
        await answered(answers, 1)
        assert isinstance(answers[0], AppendFailedError)
        await actor.append(again, -1, answers.append)
        await answered(answers, 2)
        assert answers[1] == AppendResult(2, 2, START_MS, 0)
        assert actor.log.recovery_point == actor.log.high_watermark == 3


async def test_a_read_that_fails_is_an_answer_and_appends_go_on(tmp_path: Path) -> None:
    fs = GateFileSystem(cached_reads=False)
    async with one_partition(tmp_path, fs=fs) as broker:
        await broker.writer.append(PARTITION, value("a"))
        fs.fail("read", ".log", number=errno.EIO)
        with pytest.raises(LogOfflineError, match="reading failed"):
            await values_from(broker)
        assert (await broker.writer.append(PARTITION, value("b"))).base_offset == 1
        assert await visible(broker) == 2


@pytest.mark.parametrize(
    ("operation", "suffix", "change"),
    [
        ("rename", f"{0:020d}.log", lambda log: truncate_fully_and_start_at(log, 10)),
        ("open", f"{10:020d}.log", lambda log: truncate_fully_and_start_at(log, 10)),
        ("truncate", ".log", lambda log: truncate_to(log, 1)),
    ],
)
async def test_a_change_of_the_log_that_fails_half_way_takes_it_offline(
    broker: Broker, fs: GateFileSystem, operation: str, suffix: str, change: Any
) -> None:
    for text in "ab":
        await broker.writer.append(PARTITION, value(text))
    fs.fail(operation, suffix, number=errno.EIO)
    with pytest.raises(LogOfflineError, match="half way"):
        await actor_of(broker).perform(change)
    with pytest.raises(LogOfflineError):
        await broker.writer.append(PARTITION, value("c"))


@pytest.mark.parametrize("operation", ["rename", "open"])
async def test_a_reader_of_a_log_being_emptied_finds_it_empty(broker: Broker, fs: GateFileSystem, operation: str) -> None:
    await broker.writer.append(PARTITION, value("a"))
    async with held(fs.hold(operation, ".log"), actor_of(broker).perform, lambda log: truncate_fully_and_start_at(log, 10)):
        snapshot = actor_of(broker).snapshot()
        assert (snapshot.log_start_offset, snapshot.high_watermark, snapshot.log_end_offset) == (10, 10, 10)
        assert await values_from(broker, offset=10) == []
    assert (await broker.writer.append(PARTITION, value("b"))).base_offset == 10
    assert await values_from(broker, offset=10) == [b"b"]


async def test_a_caller_cancelled_before_it_is_enqueued_changes_nothing(broker: Broker, fs: GateFileSystem) -> None:
    answers: Answered = []
    actor = actor_of(broker)
    actor._mailbox.max_commands = 1
    scope = trio.CancelScope()

    async def impatient() -> None:
        with scope:
            await broker.writer.append(PARTITION, value("never"))

    async with trio.open_nursery() as nursery:
        async with held(fs.hold("write", ".log"), send, actor, answers):
            await send(actor, answers)
            nursery.start_soon(impatient)
            await settled()
            scope.cancel()
            await settled()
            assert scope.cancelled_caught
    await answered(answers, 2)
    assert await visible(broker) == 2
    assert (await broker.writer.append(PARTITION, value("next"))).base_offset == 2


async def test_a_caller_cancelled_after_it_is_enqueued_has_its_append_done_whole(broker: Broker, fs: GateFileSystem) -> None:
    records = [(START_MS, None, b"1", ()), (START_MS, None, b"2", ())]
    async with held(fs.hold("write", ".log"), broker.writer.append, PARTITION, records) as nursery:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await settled()
        assert not nursery.child_tasks
    assert (await broker.writer.append(PARTITION, value("3"))).base_offset == 2
    assert await values_from(broker) == [b"1", b"2", b"3"]


async def test_an_append_that_times_out_happens_all_the_same(broker: Broker, fs: GateFileSystem) -> None:
    with fs.hold("write", ".log"):
        with pytest.raises(RequestError, match=r"^REQUEST_TIMED_OUT"):
            await broker.writer.append(PARTITION, value("late"), timeout_s=0.01)
    await broker.writer.append(PARTITION, value("next"))
    assert await values_from(broker) == [b"late", b"next"]


async def test_appends_that_wait_when_the_topic_is_deleted_are_all_answered(broker: Broker, fs: GateFileSystem) -> None:
    answers: Answered = []
    actor = actor_of(broker)
    actor._mailbox.max_commands = 3
    async with trio.open_nursery() as nursery:
        async with held(fs.hold("write", ".log"), send, actor, answers):
            await send(actor, answers, count=3)
            nursery.start_soon(send, actor, answers)
            await settled()
            nursery.start_soon(broker.topics.delete, TOPIC)
            await settled()
    assert len(answers) == 5
    refused = [answer for answer in answers if isinstance(answer, RequestError)]
    assert [each.code for each in refused] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with pytest.raises(RequestError, match="no topic"):
        await broker.writer.append(PARTITION, value("x"))
    await send(actor, answers)
    assert isinstance(answers[-1], RequestError)
    with pytest.raises(RequestError, match="deleted"):
        actor.snapshot()
    with pytest.raises(RequestError, match="deleted"):
        await actor.perform(lambda log: truncate_to(log, 0))


async def test_a_change_of_the_log_takes_its_turn_between_appends(broker: Broker, fs: GateFileSystem) -> None:
    answers: Answered = []
    outcomes: list[bool] = []
    actor = actor_of(broker)

    async def cut() -> None:
        outcomes.append(await actor.perform(lambda log: truncate_to(log, 2)))

    async with trio.open_nursery() as nursery:
        async with held(fs.hold("write", ".log"), send, actor, answers):
            await send(actor, answers, count=3)
            nursery.start_soon(cut)
            await settled()
            await send(actor, answers)
    await answered(answers, 5)
    with pytest.raises(ValueError, match="truncate to offset -1"):
        await actor.perform(lambda log: truncate_to(log, -1))
    assert outcomes == [True]
    assert offsets(answers) == [0, 1, 2, 3, 2]
    assert [record.offset for record in await records_from(broker)] == [0, 1, 2]


async def test_an_unhandled_exception_in_the_actor_takes_its_log_offline_and_answers_all(tmp_path: Path) -> None:
    """Callers that shield themselves would wait indefinitely. Other partitions are served, and the stop is not clean."""

    def bug(_: object) -> Any:
        raise ZeroDivisionError("a bug")

    said: list[str] = []
    async with one_partition(tmp_path) as broker:
        with trio.CancelScope(shield=True):
            for call in (
                lambda: actor_of(broker).perform(bug),
                lambda: actor_of(broker).perform(lambda log: truncate_to(log, 1)),
                lambda: broker.writer.append(PARTITION, value("a")),
            ):
                with trio.move_on_after(PATIENCE_S):
                    try:
                        await call()
                    except LogOfflineError as exc:
                        said.append(exc.message)
        await broker.topics.create("beside")
        assert (await broker.writer.append(TopicPartition("beside", 0), value("x"))).base_offset == 0
        assert broker.disk.errors.counts == {"partition": 1}
    assert ["unhandled exception (ZeroDivisionError" in text for text in said] == [True] * 3
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


Answered = list[AppendResult | RequestError]


def prepared(actor: PartitionActor, *, size: int = 5) -> Any:
    data = batch(START_MS, value=b"v" * size)
    return prepare_append(data, actor.topic_partition, actor.config, now_ms=START_MS)


async def send(actor: PartitionActor, answers: Answered, *, acks: int = -1, size: int = 5, count: int = 1) -> None:
    for _ in range(count):
        await actor.append(prepared(actor, size=size), acks, answers.append)


async def answered(answers: Answered, count: int) -> None:
    """Wait until so many callers have their answer."""
    await until(lambda: len(answers) >= count)


def offsets(answers: Answered) -> list[int]:
    """Base offsets of appends that were not refused."""
    return [answer.base_offset for answer in answers if isinstance(answer, AppendResult)]
