"""Transactions of a producer: what `transactions` allows, asked of the server and asked again.

    async with open_producer(client, transactional_id="copier") as producer:
        async with producer.transaction() as transaction:
            await producer.send("out", b"value")
            await transaction.send_offsets("group", {TopicPartition("in", 0): 43})

A call is repeated while its error allows it, for `max_block_ms`; each may come twice and takes effect once. After a repetition
the next transaction begins under another epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from ...protocol.errors import InvalidTxnStateError, TriologError
from ...protocol.records.partitioners import partition_for_key
from ...protocol.records.plain_records import PlainRecord, check_records
from ...protocol.types import AppendResult, TopicPartition
from .backoff import passes
from .config import ProducerConfig
from .errors import ClosedError
from .procedures import groups as group_procedures
from .procedures.driving import Driver
from .procedures.groups import CommittedOffset
from .procedures.topics import Procedure
from .sending.accumulator import Accumulator
from .sending.append_once import Appends
from .sending.partition_queue import ProducerIdentity
from .sending.transactions import ABORT_TIMEOUT_S, TransactionState

T = TypeVar("T")


class TransactionCalls:
    """The calls of one transactional producer. Owner: the producer."""

    def __init__(
        self,
        driver: Driver,
        config: ProducerConfig,
        accumulator: Accumulator,
        flush: Callable[[float | None], Awaitable[None]],
    ) -> None:
        assert config.transactional_id is not None
        self.driver = driver
        self._config = config
        self._accumulator = accumulator
        self._flush = flush
        self.state = TransactionState(config.transactional_id, accumulator)

    async def initialize(self) -> None:
        """Get the producer id and the next epoch; what an older instance left open is aborted then."""
        self.state.initialized(await self._repeat(lambda: group_procedures.init_producer(self._config)))

    async def begin(self) -> None:
        """Begin a transaction, under another epoch when the last one was left behind."""
        self.state.check_alive()
        self.state.leave_undecided()
        if not self.state.is_open and self.state.needs_identity:
            await self._flush(None)
            await self.initialize()
        self.state.begin()

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Commit a group's offsets with the transaction."""
        self.state.check_sending()
        if offsets:
            self.state.add_offsets()
            await self._repeat(lambda: group_procedures.commit_offsets(group, offsets, self.state.producer))
        else:
            await self.driver.sleep(0)

    async def commit(self) -> None:
        """Flush, then make it all visible; raises what a record was given up for, and then only an abort is possible."""
        self.state.check_open()
        await self._flush(None)
        self.state.commit()
        await self._end(commit=True)

    async def abort(self, timeout_s: float = float("inf")) -> None:
        """Give up what was not sent, and make the rest invisible; all of it within `timeout_s`, else it raises TimeoutError or
        what the last attempt failed with."""
        deadline = self.driver.now() + timeout_s
        with self.driver.within(deadline):
            self.state.check_abort()
            self._accumulator.drop_unsent(ClosedError("the transaction was aborted before the record was sent"))
            await self._flush(None if timeout_s == float("inf") else timeout_s)
            self.state.check_open()
            await self._end(commit=False, deadline=deadline)

    async def _end(self, *, commit: bool, deadline: float = float("inf")) -> None:
        if self.state.has_parts:
            try:
                await self._repeat(lambda: group_procedures.end_transaction(self.state.producer, commit), deadline)
            except BaseException as exc:
                self.state.end_failed(exc)
                raise
        self.state.ended()

    async def _repeat(self, procedure: Callable[[], Procedure[T]], deadline: float = float("inf")) -> T:
        return await self.driver.retried(
            lambda: self.driver.run(procedure()),
            self._config.max_block_ms,
            self._config,
            failed=self.state.call_failed,
            deadline=deadline,
        )


class Transaction:
    """A transaction. As a block it commits at its end and aborts when an exception leaves it; or call the methods."""

    def __init__(self, calls: TransactionCalls) -> None:
        self._calls = calls

    @property
    def calls(self) -> TransactionCalls:
        """Return the calls of the producer."""
        return self._calls

    async def begin(self) -> None:
        """Begin it. InvalidTxnStateError when another is open, unless that was left after a commit of unknown outcome."""
        await self._calls.begin()

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Commit these offsets of a group together with the records: at the commit, or not at all."""
        await self._calls.send_offsets(group, offsets)

    async def commit(self) -> None:
        """Make records and offsets visible. Raises what made that impossible: then abort.

        After a retriable error the outcome is unknown: call it again, or leave it, and the next transaction begins under
        another epoch once the server has ended this one.
        """
        await self._calls.commit()

    async def abort(self) -> None:
        """Make sure that nobody sees the records and offsets. InvalidTxnStateError when a commit may have been made."""
        await self._calls.abort()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state = self._calls.state
        if kind is None and state.is_open:
            try:
                await self._calls.commit()
            except BaseException:  # cancelled or interrupted, too: nobody else could end it
                await self._abort_quietly()
                raise
        elif state.is_open:
            await self._abort_quietly()

    async def _abort_quietly(self) -> None:
        """Abort because something else went wrong, which is what the caller shall hear of."""
        calls = self._calls
        try:
            if calls.state.can_abort:
                with calls.driver.shielded(ABORT_TIMEOUT_S), contextlib.suppress(TriologError, TimeoutError):
                    await calls.abort(ABORT_TIMEOUT_S)
        finally:
            if calls.state.is_open:
                calls.state.leave_behind()


class LogTransaction(Transaction):
    """A transaction under a transactional id, with appends of its own. As a block, it commits at its end and aborts on an
    exception; you can also call the methods, and begin it again after its end."""

    def __init__(
        self,
        driver: Driver,
        transactional_id: str,
        timeout_ms: int,
        partition_count: Callable[[str], Awaitable[int]],
    ) -> None:
        config = ProducerConfig(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        self._id = transactional_id
        self._accumulator = Accumulator(config, driver.now)  # of no records: appends are made one by one
        self._appends = Appends(config, driver)
        self._partition_count = partition_count
        super().__init__(TransactionCalls(driver, config, self._accumulator, self._flush))

    def __repr__(self) -> str:
        return f"<LogTransaction {self._id!r}{' open' if self._calls.state.is_open else ''}>"

    async def _flush(self, timeout_s: float | None) -> None:
        await self._calls.driver.sleep(0)

    async def begin(self) -> None:
        """Begin it: another producer of the id is fenced off, and its open transaction is aborted. Raises RequestError."""
        await super().begin()
        producer = self._calls.state.producer
        self._appends.assume(ProducerIdentity(producer.producer_id, producer.producer_epoch))

    async def append(
        self,
        topic: str,
        records: Sequence[PlainRecord | bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
    ) -> AppendResult:
        """Append as `append` of the client does, without a key or partition into partition 0. Readers of committed records see
        the records when the transaction commits. After one that failed, or was cancelled, only an abort is possible. Raises
        RequestError; TypeError for what is no record, and then nothing has happened."""
        check_records(topic, records)
        state = self._calls.state
        state.check_sending()
        if partition is None:
            partition = 0 if key is None else partition_for_key(key, await self._partition_count(topic))
        where = TopicPartition(topic, partition)
        with self._failing(f"an append to {where}"):
            self._accumulator.has_sent = True
            return await self._appends.append(where, records, key=key, passes=passes)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of a group together with the records: when the transaction commits, or not at all. Raises
        RequestError."""
        with self._failing(f"a commit of offsets of group {group!r}"):
            await self.send_offsets(group, offsets)

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Let nothing but an abort follow an error that leaves the block."""
        try:
            yield
        except BaseException as exc:
            self._calls.state.call_failed()
            self._accumulator.failure = self._accumulator.failure or InvalidTxnStateError(
                f"the transaction of {self._id!r} can only be aborted: {what} has failed or was cancelled ({exc!r})"
            )
            raise
