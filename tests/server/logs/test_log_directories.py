"""Several log directories: one that fails goes out of service with its partitions, the others serve."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.directory.log_directory import PROBE_FILE, WATCHDOG_FILE, is_passing
from triolog.server.storage.directory.topics_file import TOPICS_FILE
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, decode_offsets
from triolog.server.storage.disk.paths import DELETE_DIR_SUFFIX, marked_directory
from triolog.server.storage.errors import LogDirectoryError, LogOfflineError

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.counting_fs import SyncCountingFileSystem, made_directories
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


async def filled(directory: Path) -> tuple[Path, Path]:
    """Partition 0 in the first directory, 1 in the second, a record in each."""
    one, two = directory / "one", directory / "two"
    async with running_broker(one, two) as broker:
        await broker.topics.create(TOPIC, 2)
        for partition in (FIRST, SECOND):
            await broker.writer.append(partition, value(str(partition.partition)))
        assert (one / "topic-0").exists()
        assert (two / "topic-1").exists()
    return one, two


def errors_of(broker: Broker) -> list[bool]:
    """Which of the directories are out of service."""
    return [each.error is not None for each in broker.directories.describe()]


def a_file_in_its_place(fs: GateFileSystem, path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.touch()


def a_read_only_mount(fs: GateFileSystem, path: Path) -> None:
    fs.fail("write", f"{path.name}/{TOPICS_FILE}.tmp", number=errno.EROFS, times=None)
    fs.fail("unlink", f"{path.name}/{CLEAN_SHUTDOWN_FILE}", number=errno.EROFS, times=None)


def a_device_that_cannot_be_read(fs: GateFileSystem, path: Path) -> None:
    fs.fail("open", f"{path.name}/{TOPICS_FILE}", number=errno.EIO, times=None)


@pytest.mark.parametrize("breaks", [a_file_in_its_place, a_read_only_mount, a_device_that_cannot_be_read])
async def test_a_directory_that_cannot_be_used_at_the_start_is_left_out_and_the_others_serve(
    tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture, breaks: Callable[[GateFileSystem, Path], None]
) -> None:
    """Kafka: LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash (the directory goes offline, the start goes on)."""
    one, two = await filled(tmp_path)
    breaks(fs, two)
    async with running_broker(one, two, fs=fs) as broker:
        assert errors_of(broker) == [False, True]
        assert await values_from(broker, FIRST) == [b"0"]
        with pytest.raises(LogOfflineError, match=f"{two} is out of service") as raised:
            await broker.writer.append(SECOND, value("x"))
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await broker.topics.create("other", 2)
        assert {path.name for path in one.iterdir() if path.is_dir()} == {"topic-0", "other-0", "other-1"}
    assert next(record.levelname for record in caplog.records if "out of service" in record.getMessage()) == "CRITICAL"
    assert (one / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_directory_that_is_back_serves_its_partitions_but_not_deleted_ones(tmp_path: Path) -> None:
    one, two = await filled(tmp_path)
    for step in ("append", "delete", "create"):
        fs = GateFileSystem()
        a_device_that_cannot_be_read(fs, two)
        async with running_broker(one, two, fs=fs) as broker:
            if step == "append":
                await broker.writer.append(FIRST, value("more"))
            elif step == "delete":
                await broker.topics.delete(TOPIC)
            else:
                await broker.topics.create(TOPIC, 2)
                await broker.writer.append(SECOND, value("new"))
        if step == "append":
            async with running_broker(one, two) as broker:
                assert errors_of(broker) == [False, False]
                assert await values_from(broker, SECOND) == [b"1"]
                assert await values_from(broker, FIRST) == [b"0", b"more"]
    for _ in range(2):
        async with running_broker(one, two, topic={"file.delete.delay.ms": "0"}) as broker:
            assert await values_from(broker, SECOND) == [b"new"]
            await broker._manager.delete_doomed()
            assert [path.name for path in two.iterdir() if path.is_dir()] == []
            assert "deleted_topic_ids" not in (one / TOPICS_FILE).read_text()


@pytest.mark.parametrize("is_created_again", [True, False])
async def test_a_deletion_that_a_start_completes_without_a_directory_holds_when_that_is_back(
    tmp_path: Path, is_created_again: bool
) -> None:
    """A kill in the middle of a deletion leaves its first rename: the start that completes it may lack the other directory."""
    one, two = await filled(tmp_path)
    (one / "topic-0").rename(one / marked_directory(FIRST, DELETE_DIR_SUFFIX))
    fs = GateFileSystem()
    a_device_that_cannot_be_read(fs, two)
    async with running_broker(one, two, fs=fs) as broker:
        assert list(broker.topics.names()) == []
        if is_created_again:
            await broker.topics.create(TOPIC, 2)
            await broker.writer.append(SECOND, value("new"))
    async with running_broker(one, two, topic={"file.delete.delay.ms": "0"}) as broker:
        assert list(broker.topics.names()) == ([TOPIC] if is_created_again else [])
        if is_created_again:
            assert await values_from(broker, SECOND) == [b"new"]
        await broker._manager.delete_doomed()
        assert [path.name for path in two.iterdir() if path.is_dir()] == []


async def test_a_deletion_that_began_in_a_directory_without_which_the_topic_was_served_is_undone(tmp_path: Path) -> None:
    """Else records that were acknowledged meanwhile go with it."""
    one, two = await filled(tmp_path)
    (two / "topic-1").rename(two / marked_directory(SECOND, DELETE_DIR_SUFFIX))
    fs = GateFileSystem()
    a_device_that_cannot_be_read(fs, two)
    async with running_broker(one, two, fs=fs) as broker:
        await broker.writer.append(FIRST, value("more"))
    for _ in range(2):
        async with running_broker(one, two) as broker:
            assert await values_from(broker, FIRST) == [b"0", b"more"]
            assert await values_from(broker, SECOND) == [b"1"]


async def test_a_deletion_that_began_is_completed_where_no_directory_was_missing(tmp_path: Path) -> None:
    one, two = await filled(tmp_path)
    (two / "topic-1").rename(two / marked_directory(SECOND, DELETE_DIR_SUFFIX))
    async with running_broker(one, two) as broker:
        assert list(broker.topics.names()) == []


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
async def test_a_directory_whose_checkpoints_fail_is_taken_out_with_its_partitions(
    tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    one, two = await filled(tmp_path)
    async with running_broker(one, two, fs=fs) as broker:
        await broker.writer.append(SECOND, value("x"))
        fs.fail(operation, f"two/{RECOVERY_POINT_FILE}.tmp", number=errno.EIO, times=None)
        actor_of(broker, SECOND).log.recovery_point = 0
        await broker._manager.log_directories.write_checkpoints()
        assert errors_of(broker) == [False, True]
        for attempt in (broker.writer.append(SECOND, value("y")), values_from(broker, SECOND)):
            with pytest.raises(LogOfflineError, match="is out of service"):
                await attempt
        await broker.writer.append(FIRST, value("y"))
        assert await values_from(broker, FIRST) == [b"0", b"y"]
        await broker.topics.create("other", 1)
        assert (one / "other-0").exists()
    assert any(record.levelname == "CRITICAL" and "two is out of service" in record.getMessage() for record in caplog.records)
    assert (one / CLEAN_SHUTDOWN_FILE).exists()
    assert not (two / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_full_disk_takes_nothing_out_of_service(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await broker.writer.append(FIRST, value("x"))
        fs.fail("write", f"{RECOVERY_POINT_FILE}.tmp", number=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            await broker._manager.log_directories.write_checkpoints()
        fs.fail("write", WATCHDOG_FILE, number=errno.ENOSPC)
        await broker.directories.feed_watchdog()
        assert errors_of(broker) == [False]
        await broker._manager.log_directories.write_checkpoints()


async def test_without_any_directory_the_server_does_not_start_or_ends(tmp_path: Path, fs: GateFileSystem) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch()
    with pytest.raises(LogDirectoryError, match=r"no log directory can be used: .*one: .*; .*two: "):
        async with running_broker(tmp_path / "one", tmp_path / "two"):
            pass
    with pytest.RaisesGroup(LogDirectoryError, allow_unwrapped=True, flatten_subgroups=True):
        async with one_partition(tmp_path / "three", fs=fs, checkpoint_interval_ms=100) as broker:
            fs.fail("write", f"{RECOVERY_POINT_FILE}.tmp", number=errno.EIO, times=None)
            await broker.writer.append(FIRST, value("x"))
            await trio.sleep_forever()


@pytest.mark.parametrize("is_writable", [True, False])
async def test_a_failed_log_takes_an_unwritable_directory_along(tmp_path: Path, fs: GateFileSystem, is_writable: bool) -> None:
    one, two, beside = tmp_path / "one", tmp_path / "two", TopicPartition(TOPIC, 2)
    async with running_broker(one, two, fs=fs, durability="fsync", checkpoint_interval_ms=100) as broker:
        await broker.topics.create(TOPIC, 4)
        fs.fail("sync", "topic-0/00000000000000000000.log", number=errno.EIO)
        if not is_writable:
            fs.fail("sync", f"one/{PROBE_FILE}.tmp", number=errno.EIO)
        with pytest.raises(LogOfflineError, match="a sync failed"):
            await broker.writer.append(FIRST, value("x"))
        if is_writable:
            await until(lambda: fs.count("unlink", f"one/{PROBE_FILE}") == 1)
            await broker.writer.append(beside, value("x"))
        else:
            await until(lambda: errors_of(broker) == [True, False])
            with pytest.raises(RequestError, match=r"its log directory .*one is out of service"):
                await broker.writer.append(beside, value("x"))
        assert errors_of(broker) == [not is_writable, False]
        await broker.writer.append(TopicPartition(TOPIC, 3), value("x"))


async def test_the_watchdog_waits_for_the_slowest_directory_and_for_nothing_else(tmp_path: Path, fs: GateFileSystem) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two, fs=fs) as broker, trio.open_nursery() as nursery:
        with fs.hold("sync", f"two/{WATCHDOG_FILE}") as gate:
            nursery.start_soon(broker.directories.feed_watchdog)
            await gate.reached()
            await until(lambda: fs.count("close", f"one/{WATCHDOG_FILE}") == 1)
            assert len(nursery.child_tasks) == 1
    assert fs.count("close", f"two/{WATCHDOG_FILE}") == 1
    assert (two / WATCHDOG_FILE).read_bytes() == b"%020d\n" % broker.now_ms()


async def test_a_directory_that_does_not_take_the_watchdogs_write_is_out_of_service(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path / "one", tmp_path / "two", fs=fs) as broker:
        fs.fail("sync", f"one/{WATCHDOG_FILE}", number=errno.EIO)
        await broker.directories.feed_watchdog()
        assert errors_of(broker) == [True, False]
        await broker.directories.feed_watchdog()
    assert fs.count("sync", f"one/{WATCHDOG_FILE}") == 1
    assert fs.count("sync", f"two/{WATCHDOG_FILE}") == 2


async def test_a_partition_goes_to_the_next_directory_when_one_refuses_it(tmp_path: Path, fs: GateFileSystem) -> None:
    """Kafka: LogManagerTest.testCreateLogWithLogDirFallback."""
    paths = [tmp_path / str(number) for number in range(5)]
    async with running_broker(*paths, fs=fs) as broker:
        fs.fail("make_directory", "topic-0", number=errno.EIO, times=2)
        await broker.topics.create(TOPIC)
        assert [path.name for path in paths if (path / "topic-0").exists()] == ["2"]
        await broker.writer.append(FIRST, value("x"))
    assert fs.count("make_directory", "topic-0") == 3


def test_errors_that_may_pass_are_told_from_others() -> None:
    for number in (errno.ENOSPC, errno.EMFILE, errno.EIO, errno.EROFS, errno.ENOENT):
        assert is_passing(OSError(number, "x")) == (number in (errno.ENOSPC, errno.EMFILE))


async def test_stray_directories_are_reported_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stray = tmp_path / f"old-3.{'0' * 32}-stray"
    future = tmp_path / f"old-4.{'1' * 32}-future"
    for path in (stray, future):
        path.mkdir()
        (path / "kept").touch()
    async with running_broker(tmp_path) as broker:
        assert list(broker.topics.names()) == []
        (described,) = broker.directories.describe()
        assert set(described.stray) == {str(stray), str(future)}
    assert (stray / "kept").exists()
    assert (future / "kept").exists()
    assert sum("ignored: it is stray" in record.getMessage() for record in caplog.records) == 2


LOG = "00000000000000000000.log"


async def fill(broker: Broker, partitions: int) -> None:
    await broker.topics.create("t", partitions)
    for number in range(partitions):
        for text in ("one", "two", "three"):
            await broker.writer.append(TopicPartition("t", number), value(text))


def recovery_points(device: CrashFileSystem, directory: Path) -> dict[int, int]:
    path = f"{directory}/{RECOVERY_POINT_FILE}"
    return {tp.partition: offset for tp, offset in decode_offsets(path, device.content(path)).items()}


def contents(device: CrashFileSystem, path: Path, *, durable: bool = False) -> list[bytes | None]:
    """Of each log, or what the device has of it."""
    names = sorted(name for name in device.list_directory(str(path)) if name.startswith("t-"))
    return [(device.durable_content if durable else device.content)(f"{path}/{name}/{LOG}") for name in names]


@pytest.fixture
def device() -> SyncCountingFileSystem:
    return SyncCountingFileSystem()


@pytest.fixture
def path(device: SyncCountingFileSystem, tmp_path: Path) -> Path:
    """A log directory, which is on the device."""
    (path,) = made_directories(device, tmp_path, 1)
    return path


async def left_unclean(device: CrashFileSystem, path: Path, partitions: int) -> None:
    """Logs of which none was ever forced to the device, as a killed server leaves them."""
    async with running_broker(path, fs=device) as broker:
        await fill(broker, partitions)
        killed = device.copy()
    device._root = killed._root
    assert device.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is None


def end_offsets(broker: Broker) -> list[int]:
    return [partition.log_end_offset for partition in broker.topics.describe("t").partitions]


async def syncs(tmp_path: Path, partitions: int, when: str) -> int:
    """Of a stop, or of a start."""
    device = SyncCountingFileSystem()
    tmp_path.mkdir()
    (path,) = made_directories(device, tmp_path, 1)
    if when == "start":
        await left_unclean(device, path, partitions)
    before = device.syncs
    async with running_broker(path, fs=device) as broker:
        if when == "start":
            assert end_offsets(broker) == [3] * partitions
            return device.syncs - before
        await fill(broker, partitions)
        before = device.syncs
    return device.syncs - before


@pytest.mark.parametrize("when", ["start", "stop"])
async def test_fifty_logs_take_as_many_syncs_as_two(tmp_path: Path, when: str) -> None:
    assert await syncs(tmp_path / "two", 2, when) == await syncs(tmp_path / "fifty", 50, when)


async def test_after_a_stop_a_power_cut_takes_nothing_and_a_start_is_clean(device: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=device) as broker:
        await fill(broker, 10)
    for seed in range(20):
        after = device.copy().crash(random.Random(seed))
        assert after.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is not None
        assert recovery_points(after, path) == dict.fromkeys(range(10), 3)
        assert contents(after, path) == contents(device, path)
        assert all(contents(after, path))


async def test_what_is_served_after_a_kill_outlives_a_power_cut(device: SyncCountingFileSystem, path: Path) -> None:
    await left_unclean(device, path, 5)
    async with running_broker(path, fs=device) as broker:
        assert end_offsets(broker) == [3] * 5
        for seed in range(20):
            after = device.copy().crash(random.Random(seed))
            assert contents(after, path) == contents(device, path)
            assert all(contents(after, path))


async def test_what_the_device_refused_before_the_kill_is_written_again(device: SyncCountingFileSystem, path: Path) -> None:
    """A sync of all files alone would not bring it there: its pages are clean."""
    await left_unclean(device, path, 5)
    device.fail_write_back(f"{path}/t-3/{LOG}")
    async with running_broker(path, fs=device) as broker:
        assert end_offsets(broker) == [3] * 5
        assert contents(device, path, durable=True) == contents(device, path)
        assert all(contents(device, path))


async def test_a_log_that_cannot_be_synced_at_a_start_is_offline(device: SyncCountingFileSystem, path: Path) -> None:
    await left_unclean(device, path, 5)
    device.fail_next("sync_all", errno.EIO)
    device.fail_next("sync_all", errno.EIO)
    device.refuses = f"t-3/{LOG}"
    async with running_broker(path, fs=device) as broker:
        partitions = broker.topics.describe("t").partitions
        assert [partition.error is None for partition in partitions] == [True, True, True, False, True]
        for number in (0, 1, 2, 4):
            assert contents(device, path, durable=True)[number] == contents(device, path)[number] != b""


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_log_not_on_the_device_is_not_called_clean(device: SyncCountingFileSystem, path: Path, is_lost: bool) -> None:
    """Also where the kernel has lost its pages: the error belongs to one file, all of the file system is synced at once, and
    nobody had asked about that file before."""
    async with running_broker(path, fs=device) as broker:
        await fill(broker, 10)
        if is_lost:
            device.fail_write_back(f"{path}/t-7/{LOG}")
        else:
            device.fail_next("sync_all", errno.EIO)
            device.refuses = f"t-7/{LOG}"
    assert device.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is None
    assert recovery_points(device, path) == {number: 0 if number == 7 else 3 for number in range(10)}
    for number in set(range(10)) - {7}:
        assert contents(device, path, durable=True)[number] == contents(device, path)[number] != b""


async def test_a_stop_writes_where_a_log_begins_that_could_not_be_written_before(tmp_path: Path) -> None:
    """Simulated seed 2677: deleted records came back."""
    async with one_partition(tmp_path) as broker:
        for text in ("one", "two", "three"):
            await broker.writer.append(PARTITION, value(text))
        assert await broker.logs.delete_records(PARTITION, 1) == 1
    device = GateFileSystem()
    async with one_partition(tmp_path, fs=device) as broker:
        device.fail("write", "derived.json.tmp", number=errno.EIO)
        assert await broker.logs.delete_records(PARTITION, 2) == 2
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker, offset=2) == [b"three"]
        assert actor_of(broker).log.log_start_offset == 2


async def test_a_hundred_partitions_take_as_many_syncs_as_one(device: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=device) as broker:
        taken = []
        for name, count in (("one", 1), ("many", 100)):
            before = device.syncs
            await broker.topics.create(name, count)
            taken.append(device.syncs - before)
    assert taken[0] == taken[1] < 10


async def test_where_not_all_can_be_synced_at_once_each_file_is(device: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=device) as broker:
        device.fail_next("sync_all", errno.EIO)
        before = device.syncs
        await broker.topics.create("many", 50)
        assert device.syncs - before > 100
        for number in range(50):
            assert device.durable_content(f"{path}/many-{number}/partition.metadata") is not None
            assert device.durable_content(f"{path}/many-{number}/00000000000000000000.log") == b""


async def test_what_one_directory_cannot_sync_is_made_in_another(device: SyncCountingFileSystem, tmp_path: Path) -> None:
    paths = made_directories(device, tmp_path, 2)
    async with running_broker(*paths, fs=device) as broker:
        for _ in paths:
            device.fail_next("sync_all", errno.EIO)
        device.refuses = f"{paths[0]}/many-"
        await broker.topics.create("many", 4)
        made = [[name for name in device.list_directory(str(path)) if name.startswith("many-")] for path in paths]
        assert made == [[], ["many-0", "many-1", "many-2", "many-3"]]
    async with running_broker(*paths, fs=device) as broker:
        assert [each.error for each in broker.topics.describe("many").partitions] == [None] * 4


async def test_a_topic_that_no_directory_can_sync_is_not_made_nor_left(device: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=device) as broker:
        device.fail_next("sync_all", errno.EIO)
        device.refuses = "many-2/"
        with pytest.raises(LogOfflineError, match="cannot create topic"):
            await broker.topics.create("many", 4)
        assert "many" not in broker.topics.names()
        assert [name for name in device.list_directory(str(path)) if name.startswith("many-")] == []


async def test_what_no_directory_can_store_is_refused(tmp_path: Path) -> None:
    """Simulated seed 591: producer ids that no directory knew were given out again, and a record was taken for another's."""
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("many", 2)
        directories = broker._manager.changes.directories
        with pytest.raises(LogDirectoryError):
            directories.fail(directories.live[0], OSError(errno.EIO, "gone"))
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: broker.topics.create("more", 4),
            lambda: broker.producers.init(None, 0),
            lambda: broker.topics.alter_configs("many", {"retention.ms": "1"}, ()),
            lambda: broker.topics.create_partitions("many", 3),
            lambda: broker.group_configs.change("a", lambda _: {"share.delivery.count.limit": "3"}),
            lambda: broker.topics.delete("many"),
        ]
        for change in refused:
            with pytest.raises(LogOfflineError, match=r"no log directory (can be used|is in service)"):
                await change()
        assert broker.group_configs.overrides() == {}
        assert "more" not in broker.topics.names()
    async with running_broker(tmp_path) as broker:
        assert broker.topics.describe("many").config == {}


@pytest.mark.parametrize("skipped", range(4))
async def test_a_topic_is_whole_or_absent_if_any_sync_fails(device: SyncCountingFileSystem, path: Path, skipped: int) -> None:
    """Simulated seed 90541: topics.json named it, and its files were taken back."""
    async with running_broker(path, fs=device) as broker:
        device.fail_next("sync_directory", errno.EIO, skip=skipped)
        with contextlib.suppress(LogOfflineError, LogDirectoryError):
            await broker.topics.create("many", 2)
        device.forget_failures()
    async with running_broker(path, fs=device) as broker:
        names = list(broker.topics.names())
        assert [each.error for name in names for each in broker.topics.describe(name).partitions] == [None, None] * len(names)
        if not names:
            await broker.topics.create("many", 2)
