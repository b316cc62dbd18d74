"""The transaction coordinator: what producers do with their transactional ids, which are kept in `__transaction_state` in
Kafka's format, see `transactional_ids` (KIP-98, KIP-360, KIP-890; Kafka: TransactionCoordinator,
TransactionMarkerChannelManager).

A decision is in the log before it has any effect: a partition before the first batch of the transaction is appended to it, the
outcome before the first marker is written, a new epoch before a producer has it. So at any moment a crash leaves either a
transaction without an outcome, which times out and is aborted everywhere, or one with an outcome, whose markers are written
again at the start wherever they may be missing; a second marker finds no open transaction and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from ...protocol.coordinator.transactions import TransactionLogValue, TransactionState
from ...protocol.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTxnStateError,
    RequestError,
    UnknownTopicOrPartitionError,
)
from ...protocol.limits import INT16_MAX
from ...protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ..config.broker_config import BrokerConfig
from ..logs.internal_topic import store
from ..logs.log_manager import LogManager
from ..logs.topics import Topics
from ..loop.procedures import in_turns
from ..storage.log.prepare import prepare_marker
from ..system.clock import NowMs
from .transaction_states import (
    EPOCH_PER_TRANSACTION,
    IDLE_STATES,
    PREPARED_STATES,
    check_abortable,
    check_producer,
    completed,
    concurrent_error,
    is_commit,
    is_epoch_before,
    joined,
    needs_end,
    needs_end_with_next_epoch,
    next_epoch_error,
    prepared,
    started,
    started_again,
)
from .transactional_ids import ProducerIds, TransactionalId, TransactionalIds

LOGGER: Final = logging.getLogger(__name__)

MarkerStored = Callable[[TopicPartition, int, bool], None]
"""(partition, producer id, whether it commits), in the order of the partition's log."""

RETRY_S: Final = 10.0
"""How long a marker that a partition refused waits: the partition is offline, so nothing changes soon."""
MOST_FINISHED_AT_A_TIME: Final = 256
"""Transactions that the coordinator ends by itself."""
IDS_PER_TURN: Final = 256
PARTITIONS_PER_TURN: Final = 128


@attrs.define(eq=False, repr=False)
class TransactionCoordinator:
    """See the module. Called from any task of the trio thread, once `ids` are loaded."""

    _config: BrokerConfig
    _topics: Topics
    _now_ms: NowMs
    _producer_ids: ProducerIds
    _marker_stored: MarkerStored
    ids: TransactionalIds
    _date: Callable[[int], int]
    """The time from which the age of a stamp counts (see `logs/undated_records`)."""
    _finishing: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(MOST_FINISHED_AT_A_TIME))

    @classmethod
    def of(
        cls, manager: LogManager, now_ms: NowMs, producer_ids: ProducerIds, marker_stored: MarkerStored
    ) -> TransactionCoordinator:
        ids = TransactionalIds.of(manager, now_ms, producer_ids)
        return cls(manager.config, manager.topics, now_ms, producer_ids, marker_stored, ids, manager.undated.date)

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """(producer id, epoch) for a producer that starts: whoever had the id before is fenced off, and what it left open is
        aborted first. `expected`: the id and epoch of a producer that goes on after an error, and is fenced off itself when
        they are not the current ones (KIP-360). Raises RequestError."""
        if not transactional_id or len(transactional_id.encode()) > INT16_MAX:
            raise InvalidRequestError(
                f"a transactional id has 1 to {INT16_MAX} bytes, this one has {len(transactional_id.encode())}"
            )
        if not 1 <= timeout_ms <= self._config.transaction_max_timeout_ms:
            raise RequestError(
                f"transactional id {transactional_id!r}: a timeout of {timeout_ms} ms requested, 1 to "
                f"transaction_max_timeout_ms={self._config.transaction_max_timeout_ms} are possible",
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            )
        owner = await self.ids.begin(transactional_id)
        with owner.busy(), trio.CancelScope(shield=True):
            async with owner.turn:
                try:
                    value = await self._start(owner, timeout_ms, expected)
                finally:
                    if owner.value is None:
                        del self.ids.owners[transactional_id]
        return value.producer_id, value.producer_epoch

    async def _start(self, owner: TransactionalId, timeout_ms: int, expected: tuple[int, int] | None) -> TransactionLogValue:
        if owner.value is not None and expected is not None and (error := next_epoch_error(owner.value, expected)):
            raise RequestError(f"transactional id {owner.name!r}: {error}", ErrorCode.PRODUCER_FENCED)
        if owner.value is not None and owner.value.state not in IDLE_STATES:
            version = 0 if expected is None else EPOCH_PER_TRANSACTION
            await self._end(owner, commit=False, fence=expected is None, client_version=version)
        if owner.value is not None and expected is not None and is_epoch_before(owner.value, *expected):
            value = started_again(owner.value, expected[1], timeout_ms=timeout_ms, now_ms=self._now_ms())
        else:
            new_id = None
            if owner.value is None or not self._producer_ids.has_next_epoch(owner.value):
                new_id = await self._producer_ids.next()
            value = started(
                owner.value,
                timeout_ms=timeout_ms,
                now_ms=self._now_ms(),
                new_producer_id=new_id,
                by_holder=expected is not None,
            )
        await self.ids.store(owner, value)
        return value

    async def add_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Let partitions join the producer's transaction, which begins with the first of them.

        When this returns they have joined, and what the caller enqueues before its next `await` comes before the marker.
        Does not wait at all when they had joined before. Raises RequestError: for all of them or none.
        """
        wanted = frozenset(partitions)
        while True:
            owner, value = self._find(transactional_id, producer_id, producer_epoch)
            if owner.is_busy or value.state in PREPARED_STATES:
                raise concurrent_error(transactional_id)
            if value.state is TransactionState.ONGOING and wanted <= value.partitions:
                return
            async for topic_partition in in_turns(wanted, PARTITIONS_PER_TURN):
                self._topics.actor(topic_partition)
            async with owner.turn:
                if owner.value is value and not owner.is_busy:
                    after = joined(value, wanted, now_ms=self._now_ms())
                    with trio.CancelScope(shield=True):
                        await self.ids.store(owner, after)

    def check_joined(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Raises RequestError unless these partitions have joined the producer's open transaction: what clients before
        transaction version 2 have to see to before they produce."""
        _, value = self._find(transactional_id, producer_id, producer_epoch)
        missing = set(partitions) - (value.partitions if value.state is TransactionState.ONGOING else frozenset())
        if missing:
            raise InvalidTxnStateError(
                f"{', '.join(map(str, sorted(missing)))} did not join the transaction of transactional id "
                f"{transactional_id!r}, which is {value.state.name}: send AddPartitionsToTxn first"
            )

    async def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, client_version: int = 0
    ) -> tuple[int, int]:
        """Commit or abort; every partition has its marker when this returns the producer's id and epoch for what comes next.
        What has ended so already is not done again.

        Raises RequestError. One that is retriable leaves the outcome decided if it was: it is then carried out later on.
        """
        owner = self.ids.owner(transactional_id)
        with owner.busy(), trio.CancelScope(shield=True):
            async with owner.turn:
                value = owner.value
                if client_version >= EPOCH_PER_TRANSACTION and value is not None:
                    needed = needs_end_with_next_epoch(transactional_id, value, producer_id, producer_epoch, commit=commit)
                else:
                    value = check_producer(transactional_id, value, producer_id, producer_epoch)
                    needed = needs_end(transactional_id, value, commit=commit)
                if needed:
                    await self._end(owner, commit=commit, client_version=client_version)
        assert owner.value is not None
        return owner.value.producer_id, owner.value.producer_epoch

    async def abort(self, transactional_id: str) -> None:
        """Abort what an id has open, as when it takes too long: its producer can only abort, too, and continues with the epoch
        that it gets then. What is being aborted is carried out. Raises RequestError: TRANSACTIONAL_ID_NOT_FOUND, or
        INVALID_TXN_STATE where there is nothing to be aborted."""
        owner = self.ids.owner(transactional_id)
        with owner.busy(), trio.CancelScope(shield=True):
            async with owner.turn:
                check_abortable(transactional_id, owner.value)
                LOGGER.info("aborting transaction %r: an administrator requested it", transactional_id)
                await self._end(owner, commit=False, client_version=EPOCH_PER_TRANSACTION)

    async def write_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """End what a producer has open on one partition. Raises RequestError: TRANSACTION_COORDINATOR_FENCED for a coordinator
        epoch below the one that the log knows, INVALID_PRODUCER_EPOCH for a producer epoch that cannot end it, and Kafka's
        UNKNOWN_SERVER_ERROR for an id or epoch that no producer has."""
        actor = self._topics.actor(topic_partition)
        if producer_id <= NO_PRODUCER_ID or producer_epoch <= NO_PRODUCER_EPOCH:
            raise RequestError(
                f"{topic_partition}: a marker names producer {producer_id} and epoch {producer_epoch}. Both must be 0 "
                "or more, as DescribeProducers lists them",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        marker = prepare_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._now_ms(),
            transaction_version=transaction_version,
        )
        await store(actor, marker, lambda _: self._marker_stored(topic_partition, producer_id, commit))

    def _find(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> tuple[TransactionalId, TransactionLogValue]:
        """Raises RequestError when it is not this producer's."""
        owner = self.ids.owner(transactional_id)
        return owner, check_producer(transactional_id, owner.value, producer_id, producer_epoch)

    async def _end(self, owner: TransactionalId, *, commit: bool, fence: bool = False, client_version: int = 0) -> None:
        """Take an open transaction to its end, or one whose outcome is decided already to that one."""
        assert owner.value is not None
        if owner.value.state not in PREPARED_STATES:
            new_id = NO_PRODUCER_ID
            if client_version >= EPOCH_PER_TRANSACTION and not self._producer_ids.has_next_epoch(owner.value):
                new_id = await self._producer_ids.next()
            decided = prepared(
                owner.value,
                commit=commit,
                now_ms=self._now_ms(),
                fence=fence,
                client_version=client_version,
                new_producer_id=new_id,
            )
            await self.ids.store(owner, decided)
            owner.marked.clear()
            owner.deadline = trio.current_time() + RETRY_S
        await self._write_markers(owner, owner.value)
        await self.ids.store(owner, completed(owner.value, now_ms=self._now_ms()))

    async def _write_markers(self, owner: TransactionalId, value: TransactionLogValue) -> None:
        """Write one marker to each partition that has none, all concurrently. Raises the error of a partition that refused."""
        failures: list[RequestError] = []

        async def write(topic_partition: TopicPartition) -> None:
            try:
                await self._write_marker(topic_partition, owner, value)
            except UnknownTopicOrPartitionError:
                LOGGER.info("%s is deleted, and so are the records of transaction %r there", topic_partition, owner.name)
            except InvalidProducerEpochError as exc:
                # A power cut took later steps of this id from our log, and the partition had seen them: there it has ended.
                LOGGER.warning("no marker of transaction %r on %s: %s", owner.name, topic_partition, exc)
            except RequestError as exc:
                failures.append(exc.as_answer())
                return
            owner.marked.add(topic_partition)

        async with trio.open_nursery() as writing:
            async for topic_partition in in_turns(sorted(value.partitions - owner.marked), PARTITIONS_PER_TURN):
                writing.start_soon(write, topic_partition)
        if failures:
            raise failures[0]

    async def _write_marker(self, topic_partition: TopicPartition, owner: TransactionalId, value: TransactionLogValue) -> None:
        await self.write_marker(
            topic_partition,
            value.producer_id,
            value.producer_epoch,
            commit=is_commit(value),
            coordinator_epoch=self.ids.coordinator_epoch(owner),
        )

    async def finish_overdue(self) -> None:
        """Abort what was open for longer than its timeout, and carry out what was decided and could not be. What fails is
        logged and tried again later."""
        async with trio.open_nursery() as nursery:
            await self.begin_overdue(nursery)

    async def begin_overdue(self, nursery: trio.Nursery) -> None:
        """`finish_overdue`, beside each other in `nursery`: a partition whose device hangs holds up its own transactions."""
        async for owner in in_turns(list(self.ids.unfinished.values()), IDS_PER_TURN):
            if _is_overdue(owner):
                place = object()
                await self._finishing.acquire_on_behalf_of(place)
                nursery.start_soon(self._finish_in_turn, owner, place)

    async def _finish_in_turn(self, owner: TransactionalId, place: object) -> None:
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            if (value := owner.value) is not None and _is_overdue(owner):
                with owner.busy(), trio.CancelScope(shield=True):
                    async with owner.turn:
                        await self._finish(owner, value)
        finally:
            self._finishing.release_on_behalf_of(place)

    async def _finish(self, owner: TransactionalId, value: TransactionLogValue) -> None:
        if value.state is TransactionState.ONGOING:
            LOGGER.info("aborting transaction %r: it was open for more than %d ms", owner.name, value.timeout_ms)
        try:
            await self._end(owner, commit=False, client_version=EPOCH_PER_TRANSACTION)
        except RequestError as exc:
            owner.deadline = trio.current_time() + RETRY_S
            LOGGER.warning("could not end transaction %r, trying again: %s", owner.name, exc)
        except Exception as exc:
            owner.deadline = trio.current_time() + RETRY_S
            self.ids.errors.note("transaction-timeout", owner.name, exc)

    async def expire_ids(self) -> int:
        """Forget ids that were idle for longer than transactional_id_expiration_ms; how many. What fails is logged and tried
        again the next time."""
        count, oldest_ms = 0, self._now_ms() - self._config.transactional_id_expiration_ms
        async for owner in in_turns(list(self.ids.owners.values()), IDS_PER_TURN):
            with self.ids.errors.isolate("transactional-id-expiry", owner.name):
                count += await self._expire(owner, oldest_ms)
        return count

    async def _expire(self, owner: TransactionalId, oldest_ms: int) -> bool:
        if not _is_idle_since(owner, oldest_ms, self._date):
            return False
        with owner.busy(), trio.CancelScope(shield=True):
            async with owner.turn:
                if not _is_idle_since(owner, oldest_ms, self._date, busy=True):
                    return False
                try:
                    await self.ids.store(owner, None)
                except RequestError as exc:
                    LOGGER.warning("could not delete the expired transactional id %r, trying again: %s", owner.name, exc)
                else:
                    del self.ids.owners[owner.name]
        return owner.name not in self.ids.owners


def _is_overdue(owner: TransactionalId) -> bool:
    value = owner.value
    if value is None or value.state in IDLE_STATES or owner.is_busy:
        return False
    return owner.deadline <= trio.current_time()


def _is_idle_since(owner: TransactionalId, oldest_ms: int, date: Callable[[int], int], *, busy: bool = False) -> bool:
    value = owner.value
    if value is None or owner.is_busy is not busy or value.state not in IDLE_STATES:
        return False
    return date(value.last_update_ms) <= oldest_ms
