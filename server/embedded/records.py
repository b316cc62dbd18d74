"""Records as a program gives them, with the key that they share and the partition that it names, and as it gets them: unpacked,
without the markers of transactions.

A page may have nothing but markers, aborted records, or the headers that compaction has left: reading goes on until there is a
record, or the end of what may be read. So an empty list always means that there is no more.

Transactions of a program: records in any partitions and offsets of groups, all of them or none.

async with broker.transaction("copier") as transaction:
    await transaction.append("out", [b"value"])
    await transaction.commit_offsets("group", await follow.positions())
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import trio

from ...protocol.coordinator.transactions import TransactionState
from ...protocol.errors import InvalidTxnStateError, RequestError
from ...protocol.records.batch import BatchHeader, increment_sequence, iter_batches
from ...protocol.records.builder import BatchBuilder
from ...protocol.records.partitioners import partition_for_key
from ...protocol.records.plain_records import check_records, keyed
from ...protocol.records.record import CommittedFilter, iter_records
from ...protocol.types import NO_OFFSET, AppendResult, Isolation, Record, TimeRange, TopicPartition
from ..broker import Broker, FetchedRecords, FetchPartition, PlainRecord, ReaderView


def partition_of(core: Broker, topic: str, key: bytes | None, partition: int | None) -> int:
    """The partition that is named; otherwise that of the key, without one the first. Raises RequestError."""
    if partition is not None:
        return partition
    return 0 if key is None else partition_for_key(key, core.topics.partition_count(topic))


async def from_offset(
    core: Broker, where: TopicPartition, offset: int, max_bytes: int, max_wait_s: float, *, committed_only: bool
) -> list[Record]:
    """Those from `offset` on, about `max_bytes` of them; waits for the first. Raises RequestError."""
    deadline, at = trio.current_time() + max_wait_s, offset
    while True:
        left_s = max(0.0, deadline - trio.current_time()) if max_wait_s > 0 else 0.0
        fetched = await _fetched(core, FetchPartition(where, at, max_bytes), committed_only, left_s)
        next_offset, found = at, []
        for header, batch in _batches(fetched, committed_only):
            next_offset = header.next_offset
            if batch is not None:
                found += [record for record in iter_records(batch, header) if record.offset >= offset]
        if found or next_offset == at:
            return found
        at = next_offset


async def range_of_times(
    core: Broker, where: TopicPartition, offset: int, times: TimeRange, max_bytes: int, *, committed_only: bool
) -> list[Record]:
    """Those of `times` from `offset` on (NO_OFFSET: the log start), one page of them; none where there are no more. Raises
    RequestError."""
    first = offset
    while True:
        fetched = await _fetched(core, FetchPartition(where, offset, max_bytes, times), committed_only)
        first = fetched.log_start_offset if first == NO_OFFSET else first
        found = [
            record
            for header, batch in _batches(fetched, committed_only)
            if batch is not None
            for record in iter_records(batch, header)
            if record.offset >= first and times.holds(record.timestamp)
        ]
        if found or fetched.ends_range:
            return found
        offset = fetched.next_offset


async def _fetched(core: Broker, question: FetchPartition, committed_only: bool, max_wait_s: float = 0.0) -> FetchedRecords:
    view = ReaderView(Isolation.READ_COMMITTED if committed_only else Isolation.READ_UNCOMMITTED)
    [answer] = await core.reader.fetch([question], max_bytes=question.max_bytes, max_wait_s=max_wait_s, view=view)
    if answer.fetched is None:
        assert answer.error is not None
        raise answer.error
    return answer.fetched


def _batches(fetched: FetchedRecords, committed_only: bool) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """All batches; None in place of those that nobody is to see."""
    skipped = CommittedFilter((each.producer_id, each.first_offset) for each in fetched.aborted or ())
    for header, batch in iter_batches(fetched.records):
        is_hidden = skipped.leaves_out(header, batch) if committed_only else header.is_control
        yield header, None if is_hidden else batch


TIMEOUT_MS: Final = 60_000


class Transaction:
    """A transaction under a transactional id. As a block, it commits at its end and aborts on an exception; you can also call
    the methods."""

    def __init__(self, core: Callable[[], Broker], transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self._core = core
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._turn = trio.Lock()
        self._has_parts = False
        self._failed: str | None = None

    def __repr__(self) -> str:
        return f"<Transaction {self._id!r}{'' if self._producer is None else ' open'}>"

    async def begin(self) -> None:
        """Begin it: whoever has the id besides is fenced off, and what it left open is aborted. Raises RequestError."""
        if self._producer is not None:
            raise InvalidTxnStateError(f"the transaction of {self._id!r} has already begun")
        self._sequences.clear()
        self._has_parts = False
        self._producer = await self._core().producers.init(self._id, self._timeout_ms)

    async def append(
        self,
        topic: str,
        records: Sequence[PlainRecord | bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
    ) -> AppendResult:
        """Append as `append` of the broker does, without a key or partition into partition 0. Readers of committed records see
        the records when the transaction commits. After one that failed, or was cancelled, only an abort is possible. Raises
        RequestError; TypeError for what is no record, and then nothing has happened."""
        check_records(topic, records)
        async with self._turn:
            producer_id, producer_epoch = self._open()
            core = self._core()
            where = TopicPartition(topic, partition_of(core, topic, key, partition))
            sequence = self._sequences.get(where, 0)
            builder = BatchBuilder()
            builder.set_producer(producer_id, producer_epoch, sequence, is_transactional=True)
            now_ms = core.now_ms()
            for timestamp, its_key, value, headers in keyed(records, key):
                builder.append(now_ms if timestamp is None else timestamp, its_key, value, headers)
            with self._failing(f"an append to {where}"):
                await core.transactions.add_partitions(self._id, producer_id, producer_epoch, [where])
                result = await core.writer.append(where, builder.build())
            self._has_parts = True
            self._sequences[where] = increment_sequence(sequence, builder.records_count)
            return result

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit where a group goes on together with the records: when the transaction commits, or not at all. Raises
        RequestError."""
        async with self._turn:
            producer = self._open()
            with self._failing(f"a commit of offsets of group {group!r}"):
                commits = [(each, offset, None) for each, offset in offsets.items()]
                answers = await self._core().offsets.commit(group, commits, transaction=(self._id, *producer))
                for error in answers:
                    if error is not None:
                        raise error
            self._has_parts = True

    async def commit(self) -> None:
        """Make records and offsets visible. Raises InvalidTxnStateError where something of it has failed, RequestError when it
        cannot be: then abort."""
        async with self._turn:
            producer = self._open()
            if self._has_parts:
                await self._core().transactions.end(self._id, *producer, commit=True)
            self._producer = None

    async def abort(self) -> None:
        """See to it that nobody sees the records and offsets. Raises RequestError."""
        with trio.CancelScope(shield=True):  # as long as an append takes that was cancelled
            await self._turn.acquire()
        try:
            self._failed = None
            producer = self._open()
            value = self._core().transactions.ids.owner(self._id).value
            if value is not None and value.state is TransactionState.ONGOING:
                await self._core().transactions.end(self._id, *producer, commit=False)
            self._producer = None
        finally:
            self._turn.release()

    async def leave(self, *, failed: bool) -> None:
        """The end of a block: commit, or abort where that fails or the block has. Raises RequestError."""
        if self._producer is None:
            return
        if failed:
            await self._abort_quietly()
            return
        try:
            await self.commit()
        except BaseException:  # cancelled, too: nobody else could end it
            await self._abort_quietly()
            raise

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(failed=kind is not None)

    async def _abort_quietly(self) -> None:
        """Abort, and ignore errors: a transaction that cannot be aborted now ends at its timeout, or when the next one begins
        under the id."""
        with contextlib.suppress(RequestError, RuntimeError):
            await self.abort()

    def _open(self) -> tuple[int, int]:
        """(producer id, epoch). Raises InvalidTxnStateError."""
        if self._producer is None:
            raise InvalidTxnStateError(f"no transaction of {self._id!r} is open")
        if self._failed is not None:
            raise InvalidTxnStateError(f"the transaction of {self._id!r} can only be aborted: {self._failed}")
        return self._producer

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Whatever leaves the block makes an abort the only end."""
        try:
            yield
        except BaseException as exc:
            self._failed = f"{what} has failed or was cancelled ({exc!r})"
            raise
