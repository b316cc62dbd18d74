"""The log manager: start and stop, clean or not; topics made and deleted; directories of Kafka; what is offline and why."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode, InvalidConfigError, RequestError, TopicAlreadyExistsError
from triolog.protocol.types import LATEST_TIMESTAMP, TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.directory.topics_file import TOPICS_FILE, decode_topics
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.errors import CheckpointError, LogDirectoryError, LogOfflineError, StorageError

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem, held
from tests.support.golden import GOLDEN

settled = trio.testing.wait_all_tasks_blocked
EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())

MARKERS_SINCE: Final = {"txn": 1}
"""After its last answer Kafka aborted the transaction that was left open: there is one marker more on disk."""


def has_marker(directory: Path) -> bool:
    return (directory / checkpoints.CLEAN_SHUTDOWN_FILE).exists()


def offsets_in(directory: Path, name: str) -> dict[TopicPartition, int]:
    return checkpoints.decode_offsets(name, (directory / name).read_bytes())


def topics_in(directory: Path) -> tuple[int, list[str]]:
    """Generation and names of topics.json."""
    generation, topics = decode_topics(TOPICS_FILE, (directory / TOPICS_FILE).read_bytes())
    return generation, [topic.name for topic in topics]


def partition_directories(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


async def test_a_topic_is_on_the_device_before_its_creation_is_answered(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        async with held(fs.hold("sync", f"{TOPICS_FILE}.tmp"), broker.topics.create, TOPIC) as nursery:
            await settled()
            assert len(nursery.child_tasks) == 1
        assert topics_in(tmp_path)[1] == [TOPIC]
        assert fs.count("sync_directory", f"/{TOPIC}-0") >= 1


async def test_a_creation_that_is_cancelled_half_way_is_made_all_the_same(tmp_path: Path, fs: GateFileSystem) -> None:
    holding = fs.hold("open", f"{TOPIC}-0/00000000000000000000.log", most=1)
    async with running_broker(tmp_path, fs=fs) as broker:
        async with held(holding, broker.topics.create, TOPIC, 2) as nursery:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await settled()
        assert len(broker.topics.describe(TOPIC).partitions) == 2
        await broker.writer.append(PARTITION, value("x"))


IMPOSSIBLE: Final[list[tuple[str, int, dict[str, str], ErrorCode, str]]] = [
    *((name, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "") for name in ("", ".", "..", "a b", "ä", "a/b", "x" * 250)),
    ("a_b.c", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "a.b_c"),
    ("a.b_c", 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS, ""),
    *((TOPIC, partitions, {}, ErrorCode.INVALID_PARTITIONS, "") for partitions in (0, -1, 10_001)),
    (TOPIC, 1, {"no.such.key": "1"}, ErrorCode.INVALID_CONFIG, "no.such.key"),
    (TOPIC, 1, {"segment.bytes": "many"}, ErrorCode.INVALID_CONFIG, "segment.bytes"),
    (TOPIC, 1, {"segment.bytes": "1"}, ErrorCode.INVALID_CONFIG, "segment.bytes"),
    (TOPIC, 1, {"durability": "sometimes"}, ErrorCode.INVALID_CONFIG, "durability"),
]


async def test_an_impossible_topic_is_refused_also_by_validation(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("a.b_c")
        for name, partitions, configs, code, said in IMPOSSIBLE:
            errors: list[tuple[object, str]] = []
            for validate_only in (True, False):
                with pytest.raises(RequestError, match=said or None) as refused:
                    await broker.topics.create(name, partitions, configs, validate_only=validate_only)
                errors.append((refused.value.code, refused.value.message))
            assert errors == [(code, errors[0][1])] * 2
        assert await broker.topics.create("a-b-c", 2, {"retention.ms": "5"}, validate_only=True) == ""
        assert list(broker.topics.names()) == ["a.b_c"]
        assert partition_directories(tmp_path) == ["a.b_c-0"]


async def test_of_two_creations_at_once_one_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        with pytest.RaisesGroup(TopicAlreadyExistsError):
            async with trio.open_nursery(strict_exception_groups=True) as nursery:
                nursery.start_soon(broker.topics.create, TOPIC)
                nursery.start_soon(broker.topics.create, TOPIC)
        assert list(broker.topics.names()) == [TOPIC]


@pytest.mark.parametrize(
    ("operation", "suffix"), [("write", f"{TOPICS_FILE}.tmp"), ("open", f"{TOPIC}-1/00000000000000000000.log")]
)
async def test_a_refused_creation_leaves_nothing(tmp_path: Path, fs: GateFileSystem, operation: str, suffix: str) -> None:
    async with running_broker(tmp_path / "one", tmp_path / "two", fs=fs) as broker:
        fs.fail(operation, suffix, times=2)
        with pytest.raises(LogOfflineError, match="cannot create topic"):
            await broker.topics.create(TOPIC, 2)
        assert list(broker.topics.names()) == []
        assert partition_directories(tmp_path / "one") == partition_directories(tmp_path / "two") == []
        fs.heal()
        await broker.topics.create(TOPIC, 2)
    assert fs.open_paths == []


async def test_new_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    """Kafka: LogManagerTest.testLeastLoadedAssignment."""
    directories = [tmp_path / name for name in ("one", "two", "three")]
    async with running_broker(*directories) as broker:
        for number in range(20):
            await broker.topics.create(f"topic-{number}")
            counts = [len(partition_directories(directory)) for directory in directories]
            assert max(counts) <= min(counts) + 1
        await broker.topics.create("wide", 7)
        assert sorted(len(partition_directories(directory)) for directory in directories) == [9, 9, 9]
    async with running_broker(*directories) as broker:
        assert len(list(broker.topics.names())) == 21
        await broker.writer.append(TopicPartition("wide", 6), value("x"))


async def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay(tmp_path: Path) -> None:
    """Or after the next start."""
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 2, {"file.delete.delay.ms": "0"})
        await broker.topics.create("later")
        await broker.writer.append(PARTITION, value("x"))
        await broker.topics.delete(TOPIC)
        await broker.topics.delete("later")
        assert list(broker.topics.names()) == topics_in(tmp_path)[1] == []
        assert all(name.endswith("-delete") for name in partition_directories(tmp_path))
        await broker._manager.delete_doomed()
        [left] = partition_directories(tmp_path)
        assert left.startswith("later-0.")
        with pytest.raises(RequestError, match="there is no topic"):
            await broker.topics.delete(TOPIC)
    async with running_broker(tmp_path, topic={"file.delete.delay.ms": "0"}) as broker:
        assert list(broker.topics.names()) == []
        await broker._manager.delete_doomed()
        assert partition_directories(tmp_path) == []


async def test_a_deleted_topic_can_be_made_again_and_its_old_files_do_not_delete_it(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        first = broker.topics.describe(TOPIC).topic_id
        await broker.writer.append(PARTITION, value("old"))
        await broker.topics.delete(TOPIC)
        assert await broker.topics.create(TOPIC) != first
        assert await values_from(broker) == []
        await broker.writer.append(PARTITION, value("new"))
        assert len(partition_directories(tmp_path)) == 2
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [b"new"]


async def test_a_deletion_that_failed_fails_again_until_the_next_start(tmp_path: Path, fs: GateFileSystem) -> None:
    """Simulated seed 528783830: a client that retried learnt that the topic did not exist, and the next start found it."""
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC)
        topic_id = broker._manager.topics.get(TOPIC).topic.id_bytes
        fs.fail("rename", f"{TOPIC}-0", number=errno.EIO)
        for deleted in (None, None, topic_id):
            with pytest.raises(LogOfflineError, match=r"no longer served.*restart the server"):
                await broker.topics.delete(TOPIC, topic_id=deleted)
        with pytest.raises(RequestError, match="there is no topic"):
            await broker.topics.delete("another")
    fs.heal()
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.delete(TOPIC)
    async with running_broker(tmp_path, fs=fs) as broker:
        assert list(broker.topics.names()) == []


async def test_a_new_topic_gets_no_partitions_of_a_failed_directory(tmp_path: Path, fs: GateFileSystem) -> None:
    """Simulated seed 90739: a partition was there twice, and the server did not start."""
    paths = [tmp_path / "one", tmp_path / "two"]
    async with running_broker(*paths, fs=fs) as broker:
        await broker.topics.create(TOPIC, 2)
        await broker.writer.append(PARTITION, value("old"))
        fs.fail("rename", f"{TOPIC}-0", number=errno.EIO)
        with pytest.raises(LogOfflineError, match=r"no longer served.*restart the server"):
            await broker.topics.delete(TOPIC)
        directories = broker._manager.changes.directories
        [keeper] = [each for each in directories.live if f"{TOPIC}-0" in partition_directories(Path(each.path))]
        directories.fail(keeper, OSError(errno.EIO, "gone"))
        await broker.topics.create(TOPIC, 2)
        topic_id = broker.topics.describe(TOPIC).topic_id
    async with running_broker(*paths, fs=fs) as broker:
        assert broker.topics.describe(TOPIC).topic_id == topic_id
        assert [each.error for each in broker.topics.describe(TOPIC).partitions] == [None, None]
        assert await values_from(broker) == []


async def test_after_a_clean_stop_there_is_a_marker_and_the_next_start_scans_no_log(tmp_path: Path) -> None:
    async with one_partition(tmp_path, topic={"index.interval.bytes": "0"}) as broker:
        assert not has_marker(tmp_path)
        for number in range(50):
            await broker.writer.append(PARTITION, value(f"{number}" * 1000))
    assert has_marker(tmp_path)
    log = tmp_path / "topic-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[5000] ^= 0xFF
    log.write_bytes(data)
    for was_clean in (True, False):
        async with one_partition(tmp_path) as broker:
            assert not has_marker(tmp_path)
            assert [directory.was_clean for directory in broker._manager.log_directories.live] == [was_clean]
            assert [gap.start_offset for gap in actor_of(broker).log.gaps] == ([] if was_clean else [4])
        (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).unlink()
        (tmp_path / checkpoints.RECOVERY_POINT_FILE).unlink()


async def test_checkpoints_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path, durability="fsync") as broker:
        await broker.topics.create("b", 2)
        await broker.topics.create("a")
        for partition in (TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("b", 1)):
            await broker.writer.append(partition, value("x"))
        await broker._manager.log_directories.write_checkpoints()
        assert (tmp_path / checkpoints.RECOVERY_POINT_FILE).read_text() == "0\n3\na 0 1\nb 0 0\nb 1 2\n"
        assert (tmp_path / checkpoints.HIGH_WATERMARK_FILE).read_text() == "0\n3\na 0 1\nb 0 0\nb 1 2\n"
        assert (tmp_path / checkpoints.LOG_START_FILE).read_text() == "0\n0\n"


async def test_what_is_enqueued_when_the_server_stops_is_still_done(tmp_path: Path, fs: GateFileSystem) -> None:
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        with fs.hold("write", ".log") as gate:
            async with one_partition(tmp_path, fs=fs) as broker:
                actor = actor_of(broker)
                for number in range(10):
                    prepared = await broker.writer.check(PARTITION, value(str(number)))
                    await actor.append(prepared, -1, answers.append)
                await gate.reached()

                async def release_later() -> None:
                    await settled()
                    gate.release()

                nursery.start_soon(release_later)
    assert [answer.base_offset for answer in answers] == list(range(10))
    assert has_marker(tmp_path)
    async with one_partition(tmp_path) as broker:
        assert len(await values_from(broker)) == 10


async def test_a_stop_that_takes_too_long_is_not_clean(tmp_path: Path, fs: GateFileSystem) -> None:
    async with trio.open_nursery() as nursery:
        with fs.hold("sync", ".log") as gate:
            async with one_partition(tmp_path, fs=fs, durability="fsync", stop_timeout_ms=1) as broker:
                prepared = await broker.writer.check(PARTITION, value("x"))
                await actor_of(broker).append(prepared, -1, lambda _: None)
                await gate.reached()

                async def release_later() -> None:
                    await until(lambda: actor_of(broker)._scope.cancel_called)
                    gate.release()

                nursery.start_soon(release_later)
    assert not has_marker(tmp_path)
    assert fs.open_paths == []
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker) == [b"x"]


@pytest.mark.parametrize("ends", [ZeroDivisionError, trio.Cancelled])
async def test_a_block_that_fails_or_is_cancelled_ends_in_a_clean_stop(tmp_path: Path, ends: type[BaseException]) -> None:
    async def block() -> None:
        async with one_partition(tmp_path) as broker:
            await broker.writer.append(PARTITION, value("x"))
            if ends is ZeroDivisionError:
                raise ZeroDivisionError
            scope.cancel()
            await trio.sleep_forever()

    with trio.CancelScope() as scope, contextlib.suppress(ZeroDivisionError):
        await block()
    assert scope.cancelled_caught is (ends is trio.Cancelled)
    assert has_marker(tmp_path)


async def test_a_failed_stop_keeps_the_error(tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    async def block() -> None:
        async with one_partition(tmp_path, fs=fs) as broker:
            await broker.writer.append(PARTITION, value("x"))
            fs.fail("open", ".tmp", number=errno.EIO, times=None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert not has_marker(tmp_path)
    assert "shutdown is not clean" in caplog.text


async def test_a_second_manager_is_refused_and_what_it_has_locked_before_is_free_again(tmp_path: Path) -> None:
    held, free = tmp_path / "held", tmp_path / "free"
    async with one_partition(held) as broker:
        for _ in range(2):
            with pytest.raises(LogDirectoryError, match=r"triolog, process \d+.* lock .*Stop it first"):
                async with running_broker(free, held):
                    pass
        async with running_broker(free):
            pass
        await broker.writer.append(PARTITION, value("x"))


async def test_identity_is_chosen_once_and_directories_of_others_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "one", tmp_path / "two") as broker:
        identity = broker.cluster_id, broker.node_id
    async with running_broker(tmp_path / "two", tmp_path / "one") as broker:
        assert (broker.cluster_id, broker.node_id) == identity
    fields = [
        checkpoints.decode_meta_properties("", (tmp_path / name / checkpoints.META_PROPERTIES_FILE).read_bytes())
        for name in ("one", "two")
    ]
    assert fields[0]["cluster.id"] == fields[1]["cluster.id"] == identity[0]
    assert fields[0]["directory.id"] != fields[1]["directory.id"]
    async with running_broker(tmp_path / "other"):
        pass
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"node_id": 7}, "two", "node.id=1"),
        ({"cluster_id": "elsewhere"}, "two", "cluster.id="),
        ({}, "other", "cluster.id="),
    ]
    for key, second, said in wrong:
        with pytest.raises(LogDirectoryError, match=rf"{checkpoints.META_PROPERTIES_FILE}.*{said}.*belongs to another server"):
            async with running_broker(tmp_path / "one", tmp_path / second, **key):
                pass


async def test_the_copy_of_topics_json_with_the_highest_generation_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two) as broker:
        await broker.topics.create("old", 2)
        older = (two / TOPICS_FILE).read_bytes()
        await broker.topics.create("new", 2, {"segment.ms": "12345"})
        assert topics_in(one) == topics_in(two)
    (two / TOPICS_FILE).write_bytes(older)
    for _ in range(2):
        async with running_broker(two, one) as broker:
            assert list(broker.topics.names()) == ["new", "old"]
            assert broker.topics.describe("new").config == {"segment.ms": "12345"}
    assert topics_in(one) == topics_in(two)
    before = topics_in(one)
    async with running_broker(one, two):
        assert topics_in(one) == before, "a start that changes nothing writes nothing"
    async with running_broker(one, two, tmp_path / "three"):
        assert topics_in(tmp_path / "three") == topics_in(one) == (before[0] + 1, ["new", "old"])


@pytest.mark.parametrize(
    ("name", "damage", "error"),
    [
        (TOPICS_FILE, lambda path: path.write_text("{"), CheckpointError),
        (TOPICS_FILE, lambda path: os.truncate(path, checkpoints.MAX_CHECKPOINT_BYTES + 1), StorageError),
        (checkpoints.META_PROPERTIES_FILE, lambda path: os.truncate(path, checkpoints.MAX_CHECKPOINT_BYTES + 1), StorageError),
        ("photos", Path.mkdir, LogDirectoryError),
    ],
    ids=["unreadable", "too large topics", "too large properties", "foreign directory"],
)
async def test_an_unreadable_or_foreign_file_keeps_the_server_from_starting(
    tmp_path: Path, name: str, damage: Callable[[Path], object], error: type[Exception]
) -> None:
    async with one_partition(tmp_path):
        pass
    damage(tmp_path / name)
    with pytest.raises(error, match=name):
        async with running_broker(tmp_path):
            pass


async def test_a_partition_in_two_directories_keeps_the_server_from_starting(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "one", tmp_path / "two") as broker:
        await broker.topics.create(TOPIC)
    shutil.copytree(tmp_path / "one" / "topic-0", tmp_path / "two" / "topic-0")
    with pytest.raises(LogDirectoryError, match="Move one of them away"):
        async with running_broker(tmp_path / "one", tmp_path / "two"):
            pass


async def offline_error(broker: Broker, partition: TopicPartition) -> str:
    """What every call for the partition is answered with."""
    messages = []
    for attempt in (
        lambda: broker.writer.append(partition, value("x")),
        lambda: values_from(broker, partition),
        lambda: broker.reader.offset_for_time(partition, 0),
    ):
        with pytest.raises(LogOfflineError) as raised:
            await attempt()
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        messages.append(raised.value.message)
    assert len(set(messages)) == 1
    assert broker.topics.describe(partition.topic).partitions[partition.partition].error is not None
    return messages[0]


async def make_three(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 3)
        for number in range(3):
            await broker.writer.append(TopicPartition(TOPIC, number), value(str(number)))


def a_directory_as_segment(directory: Path) -> None:
    (directory / "00000000000000000007.log").mkdir()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (a_directory_as_segment, "00000000000000000007.log"),
        (
            lambda path: (path / "partition.metadata").write_bytes(
                checkpoints.encode_partition_metadata(checkpoints.random_uuid())
            ),
            "topic id",
        ),
        (shutil.rmtree, "no log directory of {} holds it"),
    ],
)
async def test_a_partition_that_cannot_be_opened_is_offline(tmp_path: Path, damage: Any, said: str) -> None:
    await make_three(tmp_path)
    damage(tmp_path / "topic-1")
    async with running_broker(tmp_path) as broker:
        message = await offline_error(broker, TopicPartition(TOPIC, 1))
        assert "topic-1" in message
        assert damage is shutil.rmtree or "topic-1 has been offline since the start" in message
        assert said.format(tmp_path) in message
        for number in (0, 2):
            assert await values_from(broker, TopicPartition(TOPIC, number)) == [str(number).encode()]
        await broker.writer.append(PARTITION, value("more"))
    assert has_marker(tmp_path) is (damage is shutil.rmtree)


async def test_checkpoints_of_an_offline_partition_are_kept(tmp_path: Path) -> None:
    await make_three(tmp_path)
    (tmp_path / checkpoints.LOG_START_FILE).write_bytes(checkpoints.encode_offsets({TopicPartition(TOPIC, 1): 1}))
    a_directory_as_segment(tmp_path / "topic-1")
    async with running_broker(tmp_path):
        pass
    assert offsets_in(tmp_path, checkpoints.LOG_START_FILE) == {TopicPartition(TOPIC, 1): 1}
    assert offsets_in(tmp_path, checkpoints.RECOVERY_POINT_FILE) == {TopicPartition(TOPIC, number): 1 for number in range(3)}
    (tmp_path / "topic-1" / "00000000000000000007.log").rmdir()
    async with running_broker(tmp_path) as broker:
        assert broker.reader.snapshot(TopicPartition(TOPIC, 1)).log_start_offset == 1


async def test_a_topic_with_an_offline_partition_can_be_deleted_and_stays_deleted(tmp_path: Path) -> None:
    await make_three(tmp_path)
    a_directory_as_segment(tmp_path / "topic-1")
    shutil.rmtree(tmp_path / "topic-2")
    async with running_broker(tmp_path) as broker:
        assert "no log directory of" in await offline_error(broker, TopicPartition(TOPIC, 2))
        await broker.topics.delete(TOPIC)
        assert all(name.endswith("-delete") for name in partition_directories(tmp_path))
    async with running_broker(tmp_path) as broker:
        assert list(broker.topics.names()) == []
        await broker.topics.create(TOPIC)
        await broker.writer.append(PARTITION, value("x"))


def kafka_directory(tmp_path: Path, state: str) -> Path:
    """A writable copy."""
    directory = tmp_path / state
    shutil.copytree(GOLDEN / state, directory, copy_function=shutil.copyfile)
    for path in (directory, *directory.iterdir()):
        if path.is_dir():
            path.chmod(0o755)
    return directory


@pytest.mark.parametrize("state", ["clean", "unclean"])
async def test_every_topic_of_a_kafka_directory_is_adopted_and_served(tmp_path: Path, state: str) -> None:
    directory = kafka_directory(tmp_path, state)
    properties = checkpoints.decode_meta_properties("", (directory / checkpoints.META_PROPERTIES_FILE).read_bytes())
    configs = {name: topic["config"] for name, topic in EXPECTED.items()}
    for adopted in (configs, {}):
        async with running_broker(directory, adopted_topics=adopted) as broker:
            assert broker.cluster_id == properties["cluster.id"]
            assert list(broker.topics.names()) == sorted(EXPECTED)
            for name, topic in EXPECTED.items():
                description = broker.topics.describe(name)
                assert description.config == topic["config"]
                assert len(description.partitions) == len(topic["partitions"])
                for number, expected in topic["partitions"].items():
                    partition = TopicPartition(name, int(number))
                    answers = expected["read_uncommitted"]
                    latest = await broker.reader.offset_for_time(partition, LATEST_TIMESTAMP)
                    assert latest.offset == answers["latest"][0] + MARKERS_SINCE.get(name, 0), partition
                    assert broker.reader.snapshot(partition).log_start_offset == answers["earliest"][0], partition
    assert topics_in(directory)[1] == sorted(EXPECTED)
    topic_id = (directory / "codec-none-0" / "partition.metadata").read_text().rpartition(" ")[2]
    partition = TopicPartition("codec-none", 0)
    async with running_broker(directory) as broker:
        assert broker.topics.describe("codec-none").topic_id == topic_id
        assert (await broker.writer.append(partition, value("ours"))).base_offset == 150
    async with running_broker(directory) as broker:
        assert (await values_from(broker, partition))[150:] == [b"ours"]
        assert broker.topics.describe("codec-none").topic_id == topic_id


async def test_configuration_for_adopted_topics_that_is_wrong_keeps_the_server_from_starting(tmp_path: Path) -> None:
    directory = kafka_directory(tmp_path, "clean")
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
        async with running_broker(directory, adopted_topics={"times": {"segment.bytes": "-5"}}):
            pass
    for segment_bytes in ("500", "777"):
        async with running_broker(directory, adopted_topics={"times": {"segment.bytes": segment_bytes}}) as broker:
            assert broker.topics.describe("times").config["segment.bytes"] == "500", "it is adopted once"


async def test_topics_are_adopted_without_space_and_stored_with_the_next_change(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path) as broker:
        topic_id = broker.topics.describe(TOPIC).topic_id
        await broker.writer.append(PARTITION, value("kept"))
    for name in (TOPICS_FILE, checkpoints.META_PROPERTIES_FILE):
        (tmp_path / name).unlink()
    fs.fail("write", ".tmp", number=errno.ENOSPC, times=None)
    async with running_broker(tmp_path, fs=fs) as broker:
        assert await values_from(broker) == [b"kept"]
        assert broker.topics.describe(TOPIC).topic_id == topic_id
        assert not (tmp_path / TOPICS_FILE).exists()
        fs.heal()
        await broker.topics.create("other")
        assert topics_in(tmp_path)[1] == ["other", TOPIC]
        await broker._manager.log_directories.write_checkpoints()
        assert (tmp_path / checkpoints.META_PROPERTIES_FILE).exists()


async def test_a_directory_that_could_not_be_deleted_is_tried_again(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, topic={"file.delete.delay.ms": "0"}) as broker:
        await broker.topics.delete(TOPIC)
        fs.fail("unlink", ".log", number=errno.EBUSY)
        with pytest.raises(OSError, match="busy"):
            await broker._manager.delete_doomed()
        assert len(partition_directories(tmp_path)) == 1
        await broker._manager.delete_doomed()
        assert partition_directories(tmp_path) == []
