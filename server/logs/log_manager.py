"""Owner of the log directories and of the map from topic to actor (Kafka: LogManager).

Start: lock every directory, take its clean marker, open the logs in threads, write checkpoints, run the actors. Stop: close the
mailboxes, let the actors drain, flush and trim every log, write checkpoints, put the clean marker, unlock.

What it owns is divided: `log_directories` (which are in service, checkpoints), `changes` (topics made, configured, deleted, one
at a time), `retention` (what is deleted while it runs), `holds` (what of that groups still need), `guard` (the reserve of the
disks), `waiting` (logs that found no space at the start), `gap_passes` (who has passed over what damage took out).

`run_maintenance` runs them:

| what | how often |
|---|---|
| checkpoints | `checkpoint_interval_ms` |
| retention | `retention_check_interval_ms`, first after 30 s or that, whichever is less |
| producers whose ids expired | 10 minutes |
| unlinking removed files, the space on the disks, logs that wait for space | one second; the space also on request |
| directories of logs that went offline, the clock | one second |

Closing all logs when the server stops: in threads, many in one hop, and what they wrote is brought to the device at once.

Closing a log is a dozen operations and six syncs. Nothing is promised before the checkpoints are written, so in which order the
files of all logs reach the device is no matter. A log's recovery point counts once its files are there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.errors import InvalidConfigError, RequestError, TriologError
from ...protocol.limits import INT64_MAX
from ...protocol.records.steps import BatchLimits
from ...protocol.types import TopicPartition
from ..config import LogConfig
from ..config.broker_config import BrokerConfig, waiting_logs_bytes
from ..loop.procedures import in_turns
from ..partitions.disk import Disk
from ..partitions.partition import PartitionActor
from ..partitions.task_errors import TaskErrors
from ..storage.directory.catalogue import Catalogue, Found
from ..storage.directory.topics_file import TOPICS_FILE, Topic
from ..storage.disk.diskops import FileHandle, Procedure, drive
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.filesystem_layers import LaterSyncs
from ..storage.errors import CheckpointError, StorageError
from ..storage.log.log import Log
from ..system.client_memory import ClientMemory
from ..system.clock import NowMs, ServerClock
from .disk_guard import DiskGuard
from .gap_passes import GapPasses
from .log_directories import LogDirectories, Unsynced, side_by_side
from .log_opening import Job, LogOpener, Opened, Report, WaitsForSpace
from .log_retention import Holds, LogRetention
from .topic_changes import TopicChanges
from .topics import HostedPartition, HostedTopic, OfflinePartition, Topics
from .undated_records import UndatedRecords
from .waiting_logs import WaitingLogs

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class LogManager:
    """See the module. Use `open_log_manager`."""

    config: BrokerConfig
    disk: Disk
    clock: ServerClock
    nursery: trio.Nursery
    topics: Topics = attrs.field(factory=Topics)
    log_directories: LogDirectories = attrs.field(init=False)
    changes: TopicChanges = attrs.field(init=False)
    undated: UndatedRecords = attrs.field(init=False)
    holds: Holds = attrs.field(factory=Holds)
    gap_passes: GapPasses = attrs.field(init=False)
    retention: LogRetention = attrs.field(init=False)
    guard: DiskGuard = attrs.field(init=False)
    batch_limits: BatchLimits = attrs.field(init=False)
    """Of what clients send."""
    waiting: WaitingLogs = attrs.field(init=False)
    client_memory: ClientMemory = attrs.field(init=False)
    """What is kept on behalf of clients."""
    _catalogue: Catalogue = attrs.field(init=False)
    _stop_by_s: float | None = None
    """In trio's time, once the stop has begun."""
    _unclean: set[int] = attrs.field(factory=set)
    """Directories that will not be marked clean."""

    def __attrs_post_init__(self) -> None:
        self._catalogue = Catalogue(self.disk.fs)
        config = self.config
        self.batch_limits = BatchLimits(
            config.max_records_per_batch, config.max_headers_per_record, unpacked_bytes=config.max_unpacked_bytes
        )
        self.client_memory = ClientMemory(config.max_client_memory_bytes)
        self.topics.account = self.client_memory.account("topic configurations")
        self.gap_passes = GapPasses(self.topics)
        self.log_directories = LogDirectories(self.disk, self.config, self.topics)
        self.undated = UndatedRecords(self.log_directories, self.topics, self.clock)
        self.changes = TopicChanges(self.log_directories, self.topics, self._catalogue, self.now_ms, self.nursery)
        self.retention = LogRetention(self.disk, self.log_directories, self.topics, self.now_ms, self.holds)
        self.waiting = WaitingLogs(
            self.disk,
            self.topics,
            self.nursery,
            self.log_directories.live,
            self.retention,
            max_bytes=waiting_logs_bytes(config.max_memory_bytes),
            adopt=self.undated.adopt,
        )
        self.guard = DiskGuard(
            self.log_directories, self.topics, self.retention, config.disk_reserve_bytes, config.log_max_bytes
        )

    @property
    def now_ms(self) -> NowMs:
        """The function that returns the server's time in ms since the epoch."""
        return self.clock.now_ms

    def accepted_by(self, config: LogConfig) -> LogConfig:
        """Return the configuration that checks appends of clients: without limits by the clock while it is implausible."""
        if self.clock.is_plausible:
            return config
        return attrs.evolve(config, message_timestamp_after_max_ms=INT64_MAX, message_timestamp_before_max_ms=INT64_MAX)

    async def start(self, report: Report | None = None) -> None:
        """Open everything and start the actors. On an error everything that was locked is unlocked."""
        for path in self.config.data_dirs:
            self.disk.add_directory(path)
        try:
            await self.disk.call(self.log_directories.open)
            await self._open_topics(report)
            await self.undated.begin()
            try:
                await self.log_directories.write_checkpoints()
            except OSError as exc:
                LOGGER.error("cannot write checkpoints, trying again: %s", exc)
        except BaseException:
            self.log_directories.close()
            raise
        self.nursery.start_soon(self.disk.files.run_closer)
        for hosted in self.topics.hosted():
            self.nursery.start_soon(hosted.actor.run)

    async def _open_topics(self, report: Report | None) -> None:
        found, topics = await self.disk.call(self._settle_topics)
        failed = self.log_directories.failed
        forgets = bool(self._catalogue.deleted) and not failed
        if forgets:
            self._catalogue.deleted.clear()
        # A directory that is out of service now is behind by a generation when it returns (see `Catalogue`).
        if forgets or failed or not found.is_uniform or topics != found.newest:
            await self._write_topics(topics)
        await self.changes.resume(found.unfinished)
        delete_at = trio.current_time() + self.config.topic_defaults.file_delete_delay_ms / 1000
        self.changes.doomed += [(delete_at, path) for path in found.doomed]
        jobs: list[Job] = []
        for topic in topics:
            try:
                config = self.config.topic_defaults.overlay(topic.configs, lenient=True)
            except InvalidConfigError as exc:
                path = f"{self.log_directories.live[0].path}/{TOPICS_FILE}"
                raise CheckpointError(
                    f"{path}, topic {topic.name!r}: {exc.message}. Correct it, and remove the line crc32c"
                ) from exc
            self.topics.add(HostedTopic(topic, config, []))
            jobs += [Job(topic, config, TopicPartition(topic.name, number)) for number in range(topic.partitions)]
        for opened in await LogOpener(self.log_directories, self.now_ms, found, report).open_all(jobs):
            self._host(opened if opened.waits is None else await self._open_in_memory(opened, opened.waits))

    async def _write_topics(self, topics: list[Topic]) -> None:
        """Write `topics.json`, but tolerate an OSError: the next start would come to the same result, so a full device does not
        prevent the start."""
        try:
            await self.log_directories.write_topics(self._catalogue, topics)
        except OSError as exc:
            LOGGER.warning("topics.json is unchanged, the next change of a topic writes it: %s", exc)

    def _settle_topics(self) -> tuple[Found, list[Topic]]:
        """Raises InvalidConfigError before a configuration that cannot be is written for topics that would be adopted."""
        for configs in self.config.adopted_topics.values():
            self.config.topic_defaults.overlay(configs, lenient=True)
        found = self._catalogue.find(self.log_directories.read())
        topics = self._catalogue.settle(found, self.config.adopted_topics, is_whole=not self.log_directories.failed)
        self.log_directories.note_stray(found.stray)
        return found, topics

    async def _open_in_memory(self, opened: Opened, waits: WaitsForSpace) -> Opened:
        self.waiting.add(waits.request)
        try:
            log = await self.disk.call(self.waiting.open_in_memory, waits.request, waits.why)
        except (OSError, TriologError, ValueError) as exc:
            LOGGER.error("%s: it cannot be read until then: %s", opened.log, exc)
            return opened
        return attrs.evolve(opened, log=log)

    def _host(self, opened: Opened) -> None:
        hosted: HostedPartition | OfflinePartition
        if isinstance(opened.log, Log):
            assert opened.directory is not None
            opened.log.mirror_of = self.topics.get(opened.topic_partition.topic).topic.mirror_of
            disk = self.disk if opened.log.waiting is None else self.waiting.memory
            hosted = HostedPartition(PartitionActor(opened.log, disk, self.nursery), opened.directory)
        else:
            hosted = OfflinePartition(opened.topic_partition, opened.log, opened.directory)
        self.topics.get(opened.topic_partition.topic).partitions.append(hosted)

    async def delete_doomed(self) -> None:
        """Delete directories and segment files whose delay is over. Raises an OSError once everything had its turn."""
        try:
            await self.changes.delete_doomed()
        finally:
            await self.retention.delete_doomed()

    def stop_by(self) -> float:
        """Return the time at which the stop is over, by trio's clock: stop_timeout_ms after the first call."""
        if self._stop_by_s is None:
            self._stop_by_s = trio.current_time() + self.config.stop_timeout_ms / 1000
        return self._stop_by_s

    def coordinators_stop_by(self) -> float:
        """Return the time by which tasks that append in the name of the server must have ended: the logs need the rest."""
        return (trio.current_time() + self.stop_by()) / 2

    async def drain(self) -> None:
        """Let the actors finish, flush and trim every log. What takes longer than stop_timeout_ms is abandoned, unclean."""
        self.waiting.is_stopping = True
        partitions = self.topics.hosted()
        with trio.move_on_at(self.stop_by()) as in_time:
            try:
                await self._delete_doomed()
            finally:  # nothing else ends an actor
                for hosted in partitions:
                    hosted.actor.close()
            for hosted in partitions:
                await hosted.actor.stopped()
            self._unclean |= await close_logs(self.log_directories, partitions)
        if in_time.cancelled_caught:
            LOGGER.error("shutdown is not clean: not everything was written within %d ms", self.config.stop_timeout_ms)
            self._unclean.update(id(directory) for directory in self.log_directories.live)
            for hosted in partitions:
                hosted.actor.abandon()

    async def _delete_doomed(self) -> None:
        """Nobody reads any more, so what is deleted does not stay until the next start for want of its file.delete.delay.ms."""
        try:
            await self.changes.delete_doomed(at_once=True)
            for directory in self.log_directories.live:
                await self.retention.unlink_of(directory)
        except OSError as exc:
            LOGGER.warning("deleted files stay until the next start: %s", exc)

    async def close(self) -> None:
        """Checkpoint, mark clean, unlock; every task has ended. A disk operation that still runs is waited for: it must not
        meet a closed descriptor, nor a directory that belongs to someone else by now."""
        try:
            await self.waiting.memory.files.close_all()
            await self.disk.files.close_all()
            await self.log_directories.write_checkpoints()
            await self.log_directories.mark_clean(self._unclean | {id(offline.directory) for offline in self.topics.offline()})
        finally:
            self.log_directories.close()


@asynccontextmanager
async def open_log_manager(
    config: BrokerConfig, disk: Disk, clock: ServerClock, *, report: Report | None = None
) -> AsyncIterator[LogManager]:
    """A running log manager; leaving the block stops it in order, whatever ended the block. `report` is told how far the
    start is."""
    failure: BaseException | None = None
    started: LogManager | None = None
    try:
        async with trio.open_nursery() as nursery:
            manager = LogManager(config, disk, clock, nursery)
            try:
                await manager.start(report)
                started = manager
                try:
                    yield manager
                finally:
                    with trio.CancelScope(shield=True):
                        await manager.drain()
            except trio.Cancelled:
                raise
            except BaseException as exc:
                # Kept outside of the nursery, which would wrap it in a group.
                failure = exc
            nursery.cancel_scope.cancel()
    except trio.Cancelled:
        if started is not None:
            await _close(started, None)
        raise
    except BaseException as exc:
        # Of a task of its own; it says more than what the block saw of it.
        failure = exc
    if started is not None:
        await _close(started, failure)
    if failure is not None:
        raise failure


async def _close(manager: LogManager, failure: BaseException | None) -> None:
    """Close the manager; an earlier failure is not replaced by a failure to close, which often follows from it."""
    with trio.CancelScope(shield=True):
        try:
            await manager.close()
        except (OSError, StorageError) as exc:
            if failure is None:
                raise
            LOGGER.error("shutdown is not clean: %s", exc)


TICK_S: Final = 1.0
FIRST_RETENTION_S: Final = 30.0
"""Kafka's log.initial.task.delay.ms: whoever started with a wrong clock or configuration has that long to stop."""
PRODUCER_CHECK_S: Final = 600.0


@attrs.define(eq=False, repr=False)
class _Job:
    """Something that is due again and again."""

    name: str
    run: Callable[[], Awaitable[object]]
    errors: TaskErrors
    interval_s: float
    due_s: float

    async def repeat(self) -> None:
        """Until cancelled. In a task of its own: deleting many segments must not hold up the guard of the disk."""
        while True:
            await trio.sleep_until(self.due_s)
            with self.errors.isolate("maintenance", self.name):
                try:
                    await self.run()
                except OSError as exc:
                    LOGGER.error("maintenance failed, trying again: %s", exc)
            self.due_s = trio.current_time() + self.interval_s


async def run_maintenance(manager: LogManager, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Until cancelled; started once it is known what room the disks have. What the disk refuses for now is said and tried
    again, and so is what a job did not expect; a directory that fails for good is taken out of service, and without any left
    LogDirectoryError ends the server."""
    config, clock = manager.config, manager.clock
    checkpoint_s, retention_s = config.checkpoint_interval_ms / 1000, config.retention_check_interval_ms / 1000
    tick_s = min(TICK_S, checkpoint_s, retention_s)
    first_retention_s = min(retention_s, FIRST_RETENTION_S)

    async def retain() -> None:
        await look_at_clock()
        await manager.retention.run_pass(by_time=clock.is_trusted)

    async def look_at_clock() -> None:
        try:
            await manager.undated.look()
        finally:
            manager.retention.trusts_clock = clock.is_trusted

    async def forget_producers() -> None:
        if clock.is_trusted:
            await expire_producers(manager.topics, manager.now_ms, config, manager.disk.errors)

    def job(name: str, run: Callable[[], Awaitable[object]], interval_s: float, first_s: float | None = None) -> _Job:
        due_s = trio.current_time() + (interval_s if first_s is None else first_s)
        return _Job(name, run, manager.disk.errors, interval_s, due_s)

    jobs = (
        job("clock", look_at_clock, tick_s),
        job("probe", manager.log_directories.probe, tick_s),
        job("deletion", manager.delete_doomed, tick_s),
        job("disk-guard", manager.guard.check, tick_s),
        job("waiting-logs", manager.waiting.check, tick_s),
        job("outgrown-logs", manager.retention.run_outgrown, tick_s),
        job("retention", retain, retention_s, first_retention_s),
        job("producer-expiry", forget_producers, PRODUCER_CHECK_S),
        job("checkpoints", manager.log_directories.write_checkpoints, checkpoint_s),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(manager.guard.watch)
        task_status.started()
        for each in jobs:
            nursery.start_soon(each.repeat)


async def expire_producers(topics: Topics, now_ms: NowMs, config: BrokerConfig, errors: TaskErrors) -> None:
    """Forget producers that have not appended for `producer_id_expiration_ms` (Kafka: PeriodicProducerExpirationCheck), in
    every log's turn; a log without producers is left alone."""

    def expire(log: Log) -> Procedure[int]:
        yield from ()
        return log.producers.expire(now_ms(), config.producer_id_expiration_ms, log.undated)

    async for hosted in in_turns(topics.hosted()):
        if hosted.actor.log.producers.entries and hosted.actor.log.refusal is None:
            with errors.isolate("producer-expiry", hosted.actor.topic_partition), contextlib.suppress(RequestError):
                await hosted.actor.perform(expire)


CLOSED_PER_HOP: Final = 16
CLOSERS: Final = 2
"""Threads that write; the interpreter runs one of them at a time."""


@attrs.define(eq=False, repr=False, kw_only=True)
class _Closing(Unsynced):
    """A log whose actor has ended."""

    hosted: HostedPartition
    log: Log
    recovery_point: int
    """What it was before."""


async def close_logs(directories: LogDirectories, partitions: Sequence[HostedPartition]) -> set[int]:
    """Force all logs to the device and trim their files; their actors have ended. Answers the `id` of each directory with a log
    that cannot be called clean. Cancelled: what is not known to be on the device is as if it were not."""
    refused = {id(hosted.directory) for hosted in partitions if hosted.actor.log.refusal is not None}
    closing = [
        _Closing(
            directory=each.directory,
            syncs=LaterSyncs(directories.disk.fs),
            hosted=each,
            log=log,
            recovery_point=log.recovery_point,
        )
        for each in partitions
        if (log := each.actor.log).refusal is None and log.is_stop_due
    ]
    is_done = False
    try:
        async with AsyncExitStack() as at_rest:
            for each in closing:
                await at_rest.enter_async_context(each.hosted.actor.at_rest)
            step = max(1, min(CLOSED_PER_HOP, len(closing) // CLOSERS))
            parts = [closing[start : start + step] for start in range(0, len(closing), step)]
            await side_by_side(CLOSERS, parts, partial(directories.disk.call, _write_each))
            await directories.force([each for each in closing if each.failure is None])
            is_done = True
    finally:
        for each in closing:
            if each.failure is not None or not is_done:
                each.log.recovery_point = each.recovery_point
            if each.failure is not None:
                each.hosted.actor.take_offline(f"closing failed ({each.failure})")
                refused.add(id(each.directory))
    return refused


def _write_each(closing: Sequence[_Closing]) -> None:
    for each in closing:
        try:
            _drive_apart(each.syncs.fs, each.log.close())
        except Exception as exc:
            if not isinstance(exc, (OSError, StorageError)):
                LOGGER.exception("unhandled exception: closing %s", each.log.topic_partition)
            each.failure = exc.with_traceback(None)


def _drive_apart(fs: FileSystem, procedure: Procedure[None]) -> None:
    """`drive` with descriptors of its own: those of the handles belong to the trio thread, where readers may be."""
    apart: dict[int, tuple[FileHandle, FileHandle]] = {}

    def own(file: FileHandle) -> FileHandle:
        return apart.setdefault(id(file), (file, attrs.evolve(file, fd=None)))[1]

    try:
        drive(fs, procedure, own)
    finally:
        for file, mine in apart.values():
            file.failed_sync = mine.failed_sync
