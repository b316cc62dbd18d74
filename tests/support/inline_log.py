"""A log with its disk in the same thread: what the partition's actor does, one operation after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import attrs
from triolog.protocol.errors import CorruptRecordError, RequestError
from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import AppendResult, Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import DiskOp, FileHandle, Open, Procedure, drive, execute
from triolog.server.storage.disk.filesystem import READ, FileSystem
from triolog.server.storage.errors import SyncFailedError
from triolog.server.storage.log.append import AppendPlan, abort_append, commit_append, plan_append
from triolog.server.storage.log.log import Log
from triolog.server.storage.log.prepare import PreparedAppend
from triolog.server.storage.recovery.recovery import OpenLog, open_log

T = TypeVar("T")
ORDERS: Final = TopicPartition("orders", 0)


def _ignore(_: AppendPlan) -> None:
    return None


def make_on_device(fs: FileSystem, directory: str) -> None:
    """Make a directory whose names no power cut takes, from the root on."""
    fs.make_directory(directory)
    for end, letter in enumerate(directory):
        if letter == "/":
            fs.sync_directory(directory[:end] or "/")


@attrs.define(eq=False)
class InlineLog:
    """Owner of the log and of the descriptors that it opens; they stay open until `close_descriptors`."""

    fs: FileSystem
    log: Log

    @classmethod
    def open(cls, fs: FileSystem, request: OpenLog) -> InlineLog:
        return cls(fs, open_log(fs, request))

    @classmethod
    def open_orders(
        cls, fs: FileSystem, directory: str, config: LogConfig, now_ms: Callable[[], int], **options: Any
    ) -> InlineLog:
        """Partition 0 of `orders`, after an unclean stop unless the options, which are OpenLog's, say otherwise."""
        told = {"topic_partition": ORDERS, "directory": directory, "config": config, "now_ms": now_ms, "was_clean": False}
        return cls.open(fs, OpenLog(**(told | options)))

    def run(self, procedure: Procedure[T]) -> T:
        return drive(self.fs, procedure)

    def execute(self, operations: Sequence[DiskOp], files: Iterable[FileHandle]) -> None:
        for file in files:
            if file.fd is None:
                file.fd = Open(file).run(self.fs)
        execute(self.fs, operations)

    def append(
        self,
        appends: Sequence[PreparedAppend],
        *,
        sync: bool = False,
        planned: Callable[[AppendPlan], None] = _ignore,
        committed: Callable[[AppendPlan], None] = _ignore,
    ) -> list[AppendResult | RequestError]:
        """Append them all, rolling where a plan asks for it. `planned` and `committed` see every plan.

        When the disk refuses a plan, what it wrote is taken back and its OSError raised; earlier plans stay. After a sync that
        failed nothing is taken back: the log is given up.
        """
        pending = list(appends)
        answers: list[AppendResult | RequestError] = []
        rolled = False
        while pending:
            plan = plan_append(self.log, pending, sync=sync)
            planned(plan)
            self.write(plan)
            committed(plan)
            answers += plan.answers
            del pending[: plan.taken]
            assert plan.taken or not rolled, f"an empty segment refuses an append: {plan.roll}"
            rolled = plan.roll is not None
            if rolled:
                self.run(self.log.roll())
        return answers

    def write(self, plan: AppendPlan) -> None:
        self.execute((), plan.files)
        try:
            execute(self.fs, plan.operations)
        except SyncFailedError:
            raise
        except OSError:
            execute(self.fs, abort_append(plan))
            raise
        commit_append(self.log, plan)

    def flush(self) -> None:
        """Everything is on the device, then readable."""
        plan = self.log.plan_flush()
        self.execute(plan.operations, plan.files)
        self.log.commit_flush(plan)
        self.log.high_watermark_to_end()

    def delete_doomed(self) -> None:
        """Unlink what was taken out of the log, however young, once the new names are on the device."""
        if self.log.doomed:
            self.fs.sync_directory(self.log.directory)
        for doomed in self.log.doomed:
            self._close(doomed.files)
            for path in doomed.paths:
                if self.fs.file_size(path) is not None:
                    self.fs.unlink(path)
        self.log.doomed.clear()

    def close(self) -> None:
        self.run(self.log.close())
        self.close_descriptors()

    def close_descriptors(self, *, maps: bool = True) -> None:
        self._close(self.log.files())
        if maps:
            for segment in self.log.segments:
                for index in segment.indexes:
                    index.buffer = None

    def stored(self) -> list[tuple[BatchHeader, tuple[Record, ...]]]:
        """Every batch in the files, below the log start offset and above the high watermark too. A segment that lies wholly
        below the log start offset may be torn, and has none then."""
        found = []
        for segment in self.log.segments:
            data = self.content(segment.log.path)[: segment.size]
            following = self.log.segments.higher(segment.base_offset)
            is_given_up = following is not None and following.base_offset <= self.log.log_start_offset
            try:
                batches = list(iter_batches(data))
            except CorruptRecordError:
                if is_given_up:
                    continue
                raise
            assert sum(header.size_bytes for header, _ in batches) == segment.size, segment.log.path
            found += [(header, records_of(bytes(batch))) for header, batch in batches]
        return found

    def content(self, path: str) -> bytes:
        fd = self.fs.open(path, READ)
        try:
            return self.fs.read(fd, self.fs.size(fd), 0)
        finally:
            self.fs.close(fd)

    def _close(self, files: Iterable[FileHandle]) -> None:
        for file in files:
            if file.fd is not None:
                self.fs.close(file.fd)
                file.fd = None


@functools.lru_cache(maxsize=4096)
def records_of(batch: bytes) -> tuple[Record, ...]:
    """The records of a batch; thousands of damaged logs share most of theirs, so each is read once."""
    return tuple(iter_records(batch))
