"""Opening the logs of all topics at the start, several side by side, and how far that is.

Threads, not processes: see "Several logs at once" in docs/operations/directories.md for the measurement.

Making the partitions of a topic: in threads, many in one hop, and what is to be on the device is brought there for all of
them at once.

Nobody knows of the topic before all of it is there, and `topics-in-creation.json` says so to the next start: in which order
their files reach the device is no matter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from ...protocol.errors import RequestError, TriologError
from ...protocol.types import Bytes, TopicPartition
from ..config import LogConfig
from ..storage.directory.catalogue import Found
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.partition_directory import check_topic_id, create_partition, delete_directory
from ..storage.directory.topics_file import Topic
from ..storage.disk.filesystem_layers import LaterSyncs, Layer, RememberedNames
from ..storage.disk.paths import LOG_SUFFIX, base_offset_of, may_be_trimmed, partition_directory
from ..storage.errors import LogDirectoryError, LogOfflineError, is_out_of_space
from ..storage.log.log import Log
from ..storage.recovery.recovery import OpenLog, open_log
from ..system.clock import NowMs
from .log_directories import LogDirectories, Unsynced, side_by_side

LOGGER: Final = logging.getLogger(__name__)

OPENED_PER_HOP: Final = 16
"""Logs that one thread hop opens: enough to forget the hop, few enough to let others have the interpreter."""
OPENERS: Final = 2
"""Threads. They wait for the device side by side, but the interpreter runs one of them at a time: more only took turns."""
REPORT_S: Final = 0.2


@attrs.frozen(kw_only=True)
class StartProgress:
    """The progress of the start. Bytes are those that have to be scanned, because the last shutdown was not clean."""

    logs: int
    logs_done: int
    scan_bytes: int
    scanned_bytes: int


Report = Callable[[StartProgress], None]
"""Told of the progress five times a second while logs are opened, and once at the end. Must not block."""


@attrs.frozen
class WaitsForSpace:
    """The request that opens a log once there is space, and the error that refused it."""

    request: OpenLog
    why: OSError


@attrs.frozen
class Opened:
    """The outcome of opening one partition."""

    topic_partition: TopicPartition
    log: Log | RequestError
    directory: LogDirectory | None
    waits: WaitsForSpace | None = None
    """Given where it was the device that had no room."""


@attrs.frozen
class Job:
    """A partition to open."""

    topic: Topic
    config: LogConfig
    topic_partition: TopicPartition


@attrs.define(eq=False, repr=False, kw_only=True)
class _Opening(Unsynced):
    """A log that is opened."""

    job: Job
    opened: Opened


@attrs.define(eq=False, repr=False)
class LogOpener:
    """Opens logs in threads; used once."""

    directories: LogDirectories
    now_ms: NowMs
    found: Found
    report: Report | None
    _meter: _ReadMeter = attrs.field(init=False)
    _scan_bytes: int = 0
    _done: int = 0
    _written_back: set[int] = attrs.field(factory=set)
    """The `id` of each directory where nothing was dirty before the logs were opened."""

    def __attrs_post_init__(self) -> None:
        self._meter = _ReadMeter(self.directories.disk.fs)

    async def open_all(self, jobs: Sequence[Job]) -> list[Opened]:
        """In the order of the jobs. A log that cannot be opened is answered as the error its partition will give."""
        disk = self.directories.disk
        if self.report is not None:
            self._scan_bytes = await disk.call(self._count_scan_bytes, jobs)
        await disk.call(self._write_back, jobs)
        step = max(1, min(OPENED_PER_HOP, -(-len(jobs) // OPENERS)))
        opened: dict[int, list[_Opening]] = {}

        async def work(start: int) -> None:
            opened[start] = await disk.call(self._open_logs, jobs[start : start + step])

        async with trio.open_nursery() as reporting:
            await reporting.start(self._stop_when_cancelled)
            if self.report is not None:
                reporting.start_soon(self._report_regularly, self.report, len(jobs))
            await side_by_side(OPENERS, range(0, len(jobs), step), work)
            openings = [each for _, some in sorted(opened.items()) for each in some]
            due = [each for each in openings if len(each.syncs) and each.directory in self.directories.live]
            await self.directories.force(due, lambda: self._meter.is_stopped)
            for each in due:
                if each.failure is not None:
                    await disk.call(self._open_again, each)
            reporting.cancel_scope.cancel()
        if self.report is not None:
            self.report(self._progress(len(jobs)))
        return [each.opened for each in openings]

    async def _stop_when_cancelled(self, *, task_status: trio.TaskStatus[None]) -> None:
        """A thread cannot be cancelled: it is told to stop, and does with its next read."""
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            self._meter.is_stopped = True

    async def _report_regularly(self, report: Report, logs: int) -> None:
        while True:
            report(self._progress(logs))
            await trio.sleep(REPORT_S)

    def _progress(self, logs: int) -> StartProgress:
        scanned = self._scan_bytes if self._done == logs else min(self._meter.bytes_read, self._scan_bytes)
        return StartProgress(logs=logs, logs_done=self._done, scan_bytes=self._scan_bytes, scanned_bytes=scanned)

    def _count_scan_bytes(self, jobs: Sequence[Job]) -> int:
        return sum(self._scan_bytes_of(job.topic_partition) for job in jobs)

    def _scan_bytes_of(self, topic_partition: TopicPartition) -> int:
        """Log bytes from the recovery point's segment on; what cannot be looked at is told by opening it."""
        directory, path = self.found.partitions.get(topic_partition, (None, ""))
        if directory is None or directory.was_clean:
            return 0
        fs = self.directories.disk.fs
        recovery_point = directory.recovery_points.get(topic_partition, 0)
        try:
            logs = sorted(name for name in fs.list_directory(path) if name.endswith(LOG_SUFFIX))
            bases = [base_offset_of(name) or 0 for name in logs]
            first = max((slot for slot, base in enumerate(bases) if base <= recovery_point), default=0)
            return sum(fs.file_size(f"{path}/{name}") or 0 for name in logs[first:])
        except OSError:
            return 0

    def _write_back(self, jobs: Sequence[Job]) -> None:
        """Have the device take what the last run has left behind: then the pages of a log that is written again need only be
        forgotten, where each would cost a sync before."""
        places = Counter(id(self.found.partitions.get(job.topic_partition, (None, ""))[0]) for job in jobs)
        for directory in self.directories.live:
            if not directory.was_clean and places[id(directory)] and directory.sync_all_instead(places[id(directory)]):
                self._written_back.add(id(directory))

    def _open_logs(self, jobs: Sequence[Job]) -> list[_Opening]:
        openings = []
        for job in jobs:
            if self._meter.is_stopped:
                break
            _, path = self.found.partitions.get(job.topic_partition, (None, ""))
            names = RememberedNames(self._meter.fs, path)
            syncs = LaterSyncs(names.fs)
            try:
                opened = self._open_log(job, names, syncs)
            except StartStopped:
                break
            names.look_again()
            directory = opened.directory or self.directories.live[0]  # of one that was not found nothing is due
            openings.append(_Opening(job=job, opened=opened, directory=directory, syncs=syncs))
            self._done += 1
        return openings

    def _open_again(self, opening: _Opening) -> None:
        """Open a log that could not be forced to the device, as the failed attempt left it."""
        job = opening.job
        LOGGER.warning("cannot sync %s to the device, opening it again: %s", job.topic_partition, opening.failure)
        _, path = self.found.partitions[job.topic_partition]
        opening.opened = self._open_log(job, RememberedNames(self._meter.fs, path))

    def _open_log(self, job: Job, names: RememberedNames, syncs: LaterSyncs | None = None) -> Opened:
        topic_partition = job.topic_partition
        directory, path = self.found.partitions.get(topic_partition, (None, ""))
        try:
            if directory is None:
                raise LogOfflineError(self._not_found())
            check_topic_id(self._meter.fs, path, job.topic.topic_id)
            request = self.request(directory, topic_partition, path, job.config)
            if syncs is not None:
                syncs.is_written_back = id(directory) in self._written_back
            try:
                log = open_log(names.fs, request, None if syncs is None else syncs.fs)
            except OSError as exc:
                if not is_out_of_space(exc):
                    raise
                error = LogOfflineError(f"{topic_partition} waits for space: {exc}. Free some, and it opens without a restart")
                return Opened(topic_partition, error, directory, WaitsForSpace(request, exc.with_traceback(None)))
            log.drop_maps()
            return Opened(topic_partition, log, directory)
        except Exception as exc:
            if not isinstance(exc, (OSError, TriologError, ValueError)):
                LOGGER.exception("unhandled exception: opening %s", topic_partition)
            error = LogOfflineError(
                f"{topic_partition} has been offline since the start: {exc or repr(exc)}. `triolog dump` shows its files"
            )
            LOGGER.error("%s", error)
            return Opened(topic_partition, error, directory)

    def _not_found(self) -> str:
        live = ", ".join(directory.path for directory in self.directories.live)
        failed = "".join(f", and {path} is out of service: {why}" for path, why in self.directories.failed.items())
        return f"no log directory of {live} holds it{failed}"

    def request(self, directory: LogDirectory, topic_partition: TopicPartition, path: str, config: LogConfig) -> OpenLog:
        """Return the request that opens a partition's log as its log directory remembers it. Records of the server's own topics
        are never deleted by request, so a checkpoint with a log start offset for them is wrong. The state of the coordinators
        must not depend on it."""
        is_trimmed = may_be_trimmed(topic_partition.topic)
        return OpenLog(
            topic_partition=topic_partition,
            directory=path,
            config=config,
            now_ms=self.now_ms,
            was_clean=directory.was_clean,
            stopped_here=directory.stopped_here,
            recovery_point=directory.recovery_point_of(topic_partition),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0) if is_trimmed else 0,
            sync_metadata=self.directories.config.durable,
            max_producers=self.directories.config.max_producers_per_partition,
        )


class StartStopped(BaseException):
    """The start was cancelled. Nothing that opens a log contains it."""


class _ReadMeter(Layer):
    """Counts the bytes which are read through it, and ends the reading when the start is cancelled. Worker threads share it: a
    lost addition only makes the progress look smaller."""

    frequent = ("open", "close", "size", "file_size", "is_directory", "list_directory", "write", "sync", "unlink", "rename")
    bytes_read = 0
    is_stopped = False

    def read(self, fd: int, size: int, position: int) -> Bytes:
        if self.is_stopped:
            raise StartStopped
        data = self._fs.read(fd, size, position)
        self.bytes_read += len(data)
        return data


MADE_PER_HOP: Final = 16
"""Enough to forget the hop, few enough to let others have the interpreter."""


@attrs.define(eq=False, repr=False, kw_only=True)
class Made(Unsynced):
    """A partition that is there, but may not be on the device."""

    number: int
    log: Log


@attrs.define(eq=False, repr=False)
class PartitionMaker:
    """The partitions created so far. Used once, and by one task."""

    directories: LogDirectories
    now_ms: NowMs
    topic: Topic
    config: LogConfig
    leader_epoch: int = 0
    """In which their logs begin."""
    made: list[Made] = attrs.field(factory=list)
    leaves_something: bool = False
    """Whether something of what was refused could not be removed."""
    _loads: Counter[int] = attrs.field(factory=Counter)

    async def make(self, first: int) -> None:
        """Make the partitions from `first` on; on the device when this returns, but for the names of their directories.
        Raises OSError when no directory takes one, StorageError; then `made` are those that are there."""
        self._loads = self.directories.loads()
        for start in range(first, self.topic.partitions, MADE_PER_HOP):
            numbers = range(start, min(start + MADE_PER_HOP, self.topic.partitions))
            await self.directories.disk.call(self._make_some, numbers)
        await self.directories.force([each for each in self.made if each.directory in self.directories.live])
        for each in [each for each in self.made if each.failure is not None]:
            await self.directories.disk.call(self._make_elsewhere, each)

    def _make_some(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._make(number, self.directories.by_load(self._loads))

    def _make(self, number: int, places: Sequence[LogDirectory], refused: OSError | None = None) -> Made:
        """In the first place that takes it. Raises the OSError of the last one, LogDirectoryError when there is none."""
        topic_partition = TopicPartition(self.topic.name, number)
        for directory in places:
            syncs = LaterSyncs(self.directories.disk.fs)
            request = OpenLog(
                topic_partition=topic_partition,
                directory=f"{directory.path}/{partition_directory(topic_partition)}",
                config=self.config,
                now_ms=self.now_ms,
                was_clean=True,
                sync_metadata=self.directories.config.durable,
                max_producers=self.directories.config.max_producers_per_partition,
            )
            try:
                log = create_partition(
                    RememberedNames(syncs.fs, request.directory).fs, request, self.topic.topic_id, self.leader_epoch
                )
            except OSError as exc:
                refused = self._refuse(directory, request.directory, topic_partition, exc)
            else:
                self.made.append(Made(number=number, log=log, directory=directory, syncs=syncs))
                self._loads[id(directory)] += 1
                return self.made[-1]
        raise refused or LogDirectoryError("no log directory is in service")

    def _make_elsewhere(self, made: Made) -> None:
        """Give up one that could not be forced to the device, and make it in another directory."""
        assert isinstance(made.failure, OSError)
        self.made.remove(made)
        self._loads[id(made.directory)] -= 1
        self._refuse(made.directory, made.log.directory, made.log.topic_partition, made.failure)
        others = [each for each in self.directories.by_load(self._loads) if each is not made.directory]
        self._make(made.number, others, made.failure).syncs.settle()

    def _refuse(self, directory: LogDirectory, path: str, topic_partition: TopicPartition, error: OSError) -> OSError:
        LOGGER.error("cannot create %s in %s: %s", topic_partition, directory.path, error)
        self.leaves_something = not remove_partition(self.directories, directory, path) or self.leaves_something
        return error


def remove_partition(directories: LogDirectories, directory: LogDirectory, path: str) -> bool:
    """Remove the directory of a partition for good; return whether that succeeded. Blocks."""
    try:
        delete_directory(directories.disk.fs, path)
        directory.sync_names()
    except OSError as exc:
        LOGGER.error("cannot remove %s: %s. The next start tries again.", path, exc)
        return False
    return True
