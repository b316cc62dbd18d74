"""Opening the logs of all topics at the start, several side by side, and how far that is.

Threads, not processes: see "Several logs at once" in docs/operations.md for the measurement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import attrs
import trio

from ...protocol.errors import RequestError, TriologError
from ...protocol.types import Bytes, TopicPartition
from ..clock import NowMs
from ..config import LogConfig
from ..storage.catalogue import Found
from ..storage.errors import LogOfflineError, is_out_of_space
from ..storage.filesystem import FileSystem
from ..storage.log import Log
from ..storage.log_directory import LogDirectory
from ..storage.partition_directory import check_topic_id
from ..storage.paths import LOG_SUFFIX, base_offset_of, is_internal
from ..storage.recovery import OpenLog, open_log
from ..storage.topics_file import Topic
from .log_directories import LogDirectories

LOGGER: Final = logging.getLogger(__name__)

OPENED_PER_HOP: Final = 16
"""Logs that one thread hop opens: enough to forget the hop, few enough to let others have the interpreter."""
OPENERS: Final = 2
"""Threads. They wait for the device side by side, but the interpreter runs one of them at a time: more only took turns."""
REPORT_S: Final = 0.2


@attrs.frozen(kw_only=True)
class StartProgress:
    """How far the start is. Bytes are those that have to be scanned, because the last stop was not clean."""

    logs: int
    logs_done: int
    scan_bytes: int
    scanned_bytes: int


Report = Callable[[StartProgress], None]
"""Told of the progress five times a second while logs are opened, and once at the end. Must not block."""


@attrs.frozen
class WaitsForSpace:
    """What opens a log once there is space, and what was refused."""

    request: OpenLog
    why: OSError


@attrs.frozen
class Opened:
    """What became of one partition."""

    topic_partition: TopicPartition
    log: Log | RequestError
    directory: LogDirectory | None
    waits: WaitsForSpace | None = None
    """Given where it was the device that had no room."""


@attrs.frozen
class Job:
    """One partition to open."""

    topic: Topic
    config: LogConfig
    topic_partition: TopicPartition


@attrs.define(eq=False)
class LogOpener:
    """Opens logs in threads; used once."""

    directories: LogDirectories
    now_ms: NowMs
    found: Found
    report: Report | None
    _meter: _ReadMeter = attrs.field(init=False)
    _scan_bytes: int = 0
    _done: int = 0

    def __attrs_post_init__(self) -> None:
        self._meter = _ReadMeter(self.directories.disk.fs)

    async def open_all(self, jobs: Sequence[Job]) -> list[Opened]:
        """In the order of the jobs. A log that cannot be opened is answered as the error its partition will give."""
        disk = self.directories.disk
        if self.report is not None:
            self._scan_bytes = await disk.call(self._count_scan_bytes, jobs)
        step = max(1, min(OPENED_PER_HOP, -(-len(jobs) // OPENERS)))
        opened: list[list[Opened]] = [[] for _ in range(0, len(jobs), step)]
        remaining = iter(range(len(opened)))

        async def work() -> None:
            for number in remaining:
                opened[number] = await disk.call(self._open_logs, jobs[number * step : (number + 1) * step])

        async with trio.open_nursery() as reporting:
            if self.report is not None:
                reporting.start_soon(self._report_regularly, self.report, len(jobs))
            async with trio.open_nursery() as workers:
                for _ in range(min(OPENERS, len(opened))):
                    workers.start_soon(work)
            reporting.cancel_scope.cancel()
        if self.report is not None:
            self.report(self._progress(len(jobs)))
        return [each for chunk in opened for each in chunk]

    async def _report_regularly(self, report: Report, logs: int) -> None:
        while True:
            report(self._progress(logs))
            await trio.sleep(REPORT_S)

    def _progress(self, logs: int) -> StartProgress:
        scanned = self._scan_bytes if self._done == logs else min(self._meter.bytes_read, self._scan_bytes)
        return StartProgress(logs=logs, logs_done=self._done, scan_bytes=self._scan_bytes, scanned_bytes=scanned)

    # ---- in threads --------------------------------------------------------------------------------------------------------

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

    def _open_logs(self, jobs: Sequence[Job]) -> list[Opened]:
        opened = []
        for job in jobs:
            opened.append(self._open_log(job))
            self._done += 1
        return opened

    def _open_log(self, job: Job) -> Opened:
        topic_partition = job.topic_partition
        directory, path = self.found.partitions.get(topic_partition, (None, ""))
        try:
            if directory is None:
                raise LogOfflineError(self._not_found())
            check_topic_id(self._meter.fs, path, job.topic.topic_id)
            request = self.request(directory, topic_partition, path, job.config)
            try:
                log = open_log(self._meter.fs, request)
            except OSError as exc:
                if not is_out_of_space(exc):
                    raise
                error = LogOfflineError(f"{topic_partition} waits for space: {exc}; free some, it is opened without a restart")
                return Opened(topic_partition, error, directory, WaitsForSpace(request, exc.with_traceback(None)))
            log.drop_maps()
            return Opened(topic_partition, log, directory)
        except (OSError, TriologError, ValueError) as exc:
            error = LogOfflineError(
                f"{topic_partition} is offline since the start: {exc}; `triolog dump` shows what is in its files"
            )
            LOGGER.error("%s", error)
            return Opened(topic_partition, error, directory)

    def _not_found(self) -> str:
        live = ", ".join(directory.path for directory in self.directories.live)
        failed = "".join(f", and {path} is out of service: {why}" for path, why in self.directories.failed.items())
        return f"none of the log directories {live} holds it{failed}"

    def request(self, directory: LogDirectory, topic_partition: TopicPartition, path: str, config: LogConfig) -> OpenLog:
        """What opens a partition's log as its log directory remembers it. Nobody deletes records of the server's own topics, so
        a checkpoint that says so is wrong, and the state of the coordinators must not hang on it."""
        is_trimmed = not is_internal(topic_partition.topic)
        return OpenLog(
            topic_partition=topic_partition,
            directory=path,
            config=config,
            now_ms=self.now_ms,
            was_clean=directory.was_clean,
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0) if is_trimmed else 0,
            sync_metadata=self.directories.config.durable,
            max_producers=self.directories.config.max_producers_per_partition,
        )


@attrs.define(eq=False)
class _ReadMeter:
    """A file system that counts the bytes which are read through it. Worker threads share it: a lost addition only makes the
    progress look smaller."""

    _fs: FileSystem
    bytes_read: int = 0

    @property
    def fs(self) -> FileSystem:
        return cast(FileSystem, self)

    def read(self, fd: int, size: int, position: int) -> Bytes:
        data = self._fs.read(fd, size, position)
        self.bytes_read += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)
