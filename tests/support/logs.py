"""A log without actors: every procedure is driven on the spot, on any file system, with a clock that is set by hand.

`open_driven` opens (or makes) one; `DrivenLog.append` does what the partition's actor does for one drained mailbox. Nothing
stays open between calls except maps of indexes, which end with their index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from triolog.protocol.errors import RequestError
from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import (
    EARLIEST_TIMESTAMP,
    NO_OFFSET,
    NO_TIMESTAMP,
    AppendResult,
    Bytes,
    Isolation,
    Record,
    TimestampAndOffset,
    TopicPartition,
)
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import DiskOp, Procedure, drive
from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem
from triolog.server.storage.indexes.transaction_index import AbortedTxn
from triolog.server.storage.log.append import AppendPlan, abort_append, commit_append, plan_append
from triolog.server.storage.log.gaps import UNKNOWN_MS, OffsetGap
from triolog.server.storage.log.log import Log, LogSnapshot
from triolog.server.storage.log.prepare import PreparedAppend, prepare_append
from triolog.server.storage.lookups import fetch
from triolog.server.storage.lookups.timestamps import offset_for_timestamp
from triolog.server.storage.recovery.recovery import OpenLog, open_log

T = TypeVar("T")

TOPIC_PARTITION: Final = TopicPartition("topic", 0)
START_MS: Final = 1_700_000_000_000
"""Where a test's clock starts; batches made by `batch` without timestamps carry it."""


@attrs.define(eq=False)
class Clock:
    """A wall clock that stands still until it is moved."""

    now: int = START_MS

    def __call__(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms


def batch(*timestamps: int, value: bytes | None = b"value", key: bytes | None = None, **options: Any) -> bytes:
    """One record batch as a producer sends it: a record for each timestamp, or one at START_MS."""
    return build_batch([(timestamp, key, value, ()) for timestamp in timestamps or (START_MS,)], **options)


@attrs.define(eq=False)
class DrivenLog:
    """A log, its file system and its clock. Owner: the test."""

    fs: FileSystem
    log: Log
    clock: Clock

    def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure, then close what it left open, whatever became of it."""
        try:
            return drive(self.fs, procedure)
        finally:
            self.close_files()

    def execute(self, operations: Sequence[DiskOp]) -> None:
        self.run(_each(operations))

    def close_files(self) -> None:
        for file in self.log.files():
            if file.fd is not None:
                fd, file.fd = file.fd, None
                self.fs.close(fd)

    def prepare(self, records: Bytes, **options: Any) -> PreparedAppend:
        return prepare_append(records, self.log.topic_partition, self.log.config, now_ms=self.clock(), **options)

    def append(self, records: Bytes, *, sync: bool = False, **options: Any) -> AppendResult:
        """One producer's append. Raises what the log would answer."""
        (answer,) = self.append_group([self.prepare(records, **options)], sync=sync)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def append_group(self, appends: Sequence[PreparedAppend], *, sync: bool = False) -> list[AppendResult | RequestError]:
        """Several appends in as few writes as their segments allow; rolls between them. The high watermark follows.

        An OSError is raised after what was written of the failing plan has been taken back; earlier plans stay.
        """
        answers: list[AppendResult | RequestError] = []
        while len(answers) < len(appends):
            plan = plan_append(self.log, appends[len(answers) :], sync=sync)
            self.write(plan)
            answers += plan.answers
            if plan.roll is not None:
                self.run(self.log.roll())
        return answers

    def write(self, plan: AppendPlan) -> None:
        """Execute and commit a plan, or abort it and raise the OSError."""
        try:
            self.execute(plan.operations)
        except OSError:
            self.execute(abort_append(plan))
            raise
        commit_append(self.log, plan)
        self.log.high_watermark_to_end()
        self.log.check_invariant()

    def roll(self) -> None:
        self.run(self.log.roll())

    def flush(self) -> None:
        plan = self.log.plan_flush()
        self.execute(plan.operations)
        self.log.commit_flush(plan)

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        min_one_batch: bool = True,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> fetch.FetchedRecords:
        return self.run(
            fetch.fetch_batches(self.log.snapshot(), offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        )

    def records(self, isolation: Isolation = Isolation.READ_UNCOMMITTED, *, skip_gaps: bool = False) -> list[Record]:
        """Every readable record from the log start offset on, read the way a consumer does."""
        return read_all(self.fs, self.log.snapshot(), isolation=isolation, skip_gaps=skip_gaps)

    def offsets(self, *, skip_gaps: bool = False) -> list[int]:
        return [record.offset for record in self.records(skip_gaps=skip_gaps)]

    def offset_for(self, timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> TimestampAndOffset:
        return self.run(offset_for_timestamp(self.log.snapshot(), timestamp, isolation))

    def close(self) -> None:
        """A clean stop. The log cannot be used afterwards; `reopen` makes the next one."""
        self.run(self.log.close())

    def reopen(self, *, was_clean: bool, **changes: Any) -> DrivenLog:
        """The log that the next start would find. Without a `close` before, that is one after a crash of the process."""
        options: dict[str, Any] = {
            "topic_partition": self.log.topic_partition,
            "config": self.log.config,
            "log_start_offset": self.log.log_start_offset,
        }
        return open_driven(self.log.directory, fs=self.fs, clock=self.clock, was_clean=was_clean, **(options | changes))


def open_driven(
    directory: str | Path,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    config: LogConfig | None = None,
    topic_partition: TopicPartition = TOPIC_PARTITION,
    was_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    sync_metadata: bool = True,
    stopped_here: bool = False,
) -> DrivenLog:
    """The log in a directory, which is made when it is not there."""
    fs = OsFileSystem() if fs is None else fs
    clock = Clock() if clock is None else clock
    fs.make_directory(str(directory))
    request = OpenLog(
        topic_partition=topic_partition,
        directory=str(directory),
        config=LogConfig() if config is None else config,
        now_ms=clock,
        was_clean=was_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        sync_metadata=sync_metadata,
        stopped_here=stopped_here,
    )
    return DrivenLog(fs, open_log(fs, request), clock)


def untimed(gaps: Iterable[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Gaps without the time when they were found."""
    return tuple(gap._replace(found_ms=UNKNOWN_MS) for gap in gaps)


def read_all(
    fs: FileSystem,
    snapshot: LogSnapshot,
    *,
    max_bytes: int = 100,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    skip_gaps: bool = False,
) -> list[Record]:
    """Every readable data record of a snapshot, fetched in pieces of `max_bytes` (at least one batch each).

    A committed read leaves out what lies between the first offset and the marker of an aborted transaction.
    """
    offset, records = snapshot.log_start_offset, []
    while True:
        read = fetch.fetch_batches(snapshot, offset, max_bytes, min_one_batch=True, isolation=isolation, skip_gaps=skip_gaps)
        fetched = drive(fs, read)
        before = offset
        for header, data in iter_batches(fetched.records):
            if not header.is_control and not _is_aborted(header, fetched.aborted or ()):
                records += [record for record in iter_records(data, header) if record.offset >= offset]
            offset = header.next_offset
        if offset == before:
            return records


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedTxn]) -> bool:
    return header.is_transactional and any(
        txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset for txn in aborted
    )


def scan_for_timestamp(records: Sequence[Record], timestamp: int) -> tuple[int, int]:
    """What a lookup has to answer, found by looking at every record: (timestamp, offset), (-1, -1) for none.

    -3 asks for the largest timestamp. Leader epochs are not looked at.
    """
    assert timestamp not in (NO_TIMESTAMP, EARLIEST_TIMESTAMP), "latest and earliest are no record's"
    if timestamp < 0:
        timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
        if timestamp == NO_TIMESTAMP:
            return NO_TIMESTAMP, NO_OFFSET
    return next(
        ((record.timestamp, record.offset) for record in records if record.timestamp >= timestamp), (NO_TIMESTAMP, NO_OFFSET)
    )


def _each(operations: Sequence[DiskOp]) -> Procedure[None]:
    for operation in operations:  # noqa: UP028 - an iterator cannot be sent the answers
        yield operation
