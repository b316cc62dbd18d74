"""The content of `__transaction_state` in memory: every transactional id and its state, read at the start, then changed by
stored records (Kafka: TransactionStateManager).

Producer ids, each given out once in the life of the log directories (Kafka: ProducerIdManager, ProducerIdsBlock, KIP-730).

Ids are taken in blocks of 1,000 (BLOCK_IDS). A block is written to every log directory before the first of its ids is given
out: one sync for 1,000 producers, at the price of up to 999 ids that a restart leaves unused, of 2^63. It is a file of its own
rather than a record of `__transaction_state`: idempotent producers need ids also where no transaction was ever made, and a
promise that has to hold for ever should not hang on the compaction of a log.

The first id is 2^40 (FIRST_PRODUCER_ID): Kafka counts from 0. Logs that move to or from a Kafka cluster then never hold ids
that the other one gives out to somebody else. A backup, a snapshot and a fork of a directory and a promoted mirror continue
at ids drawn at random (see `checkpoints`), and a broker of a test continues after a reset: clients live on, and with them what
they have appended as. The other server may also have given out further epochs of the ids that are known here, so a
transactional id gets a new producer id there instead of its next epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.coordinator.transactions import (
    TRANSACTIONS_TOPIC,
    TransactionLogValue,
    TransactionState,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
)
from ...protocol.errors import RequestError, TriologError
from ...protocol.records.builder import build_batch
from ...protocol.types import TopicPartition
from ..logs.internal_topic import InternalTopic
from ..logs.log_manager import LogManager
from ..partitions.task_errors import TaskErrors
from ..storage.disk.checkpoints import (
    FIRST_PRODUCER_ID,
    ProducerIdBlock,
    block_apart,
    read_producer_id_block,
    write_producer_id_block,
)
from ..storage.errors import LogOfflineError, StorageError
from ..system.client_memory import Account
from ..system.clock import NowMs
from .transaction_states import IDLE_STATES, concurrent_error, is_epoch_exhausted

ID_BYTES: Final = 1_500
PARTITION_BYTES: Final = 400
RETURN_MS: Final = 10_000
"""How long a start lets producers finish transactions whose timeouts have ended meanwhile. Kafka looks for those every 10 s
(transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
"""A partition of a transaction, here and where it is marked, without the topic's name."""


@attrs.define(eq=False, repr=False)
class TransactionalId:
    """A transactional id. Owner: the task that holds `turn`; `value` changes when its record is stored."""

    name: str
    value: TransactionLogValue | None = None
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    is_busy: bool = False
    """A producer starts, or a transaction ends: who comes meanwhile is told to try again."""
    marked: set[TopicPartition] = attrs.field(factory=set)
    """Partitions of a prepared transaction that have their marker, as far as we know."""
    deadline: float = 0.0
    """When an open transaction is aborted, or a prepared one whose markers could not all be written is tried again. It is
    trio's time, which nobody sets back."""

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Raises the RequestError that tells to try again."""
        if self.is_busy:
            raise concurrent_error(self.name)
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False


@attrs.define(eq=False, repr=False)
class TransactionalIds:
    """Owner of the ids. Called from any task of the trio thread; `load` comes first."""

    _topic: InternalTopic
    _now_ms: NowMs
    _producer_ids: ProducerIds
    owners: dict[str, TransactionalId] = attrs.field(factory=dict)
    """By name; without those that are only asked for."""
    unfinished: dict[str, TransactionalId] = attrs.field(factory=dict)
    """By name, those of `owners` whose transaction is open or about to end."""
    open_count: int = 0
    """Transactions that are open and not decided."""
    _of_producer: dict[int, tuple[TransactionalId, ...]] = attrs.field(factory=dict)
    """By producer id: one, but in a log that somebody has altered."""
    _unreadable: dict[int, RequestError] = attrs.field(factory=dict)
    """Partitions of the topic that could not be loaded."""

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs, producer_ids: ProducerIds) -> TransactionalIds:
        partitions = manager.config.transaction_state_log_num_partitions
        return cls(InternalTopic(manager, now_ms, TRANSACTIONS_TOPIC, partitions), now_ms, producer_ids)

    @property
    def errors(self) -> TaskErrors:
        """Return the record of unhandled exceptions in tasks of the coordinators."""
        return self._topic.errors

    async def load(self) -> None:
        """Read every partition of the topic to its end. One that cannot be read answers with the reason from then on."""
        for place in self._topic.places:
            await self.load_partition(place)

    async def load_partition(self, topic_partition: TopicPartition) -> None:
        """Read one partition. Nobody appends to one that was not read before."""
        loaded = await self._topic.loaded(
            partial(self._read, topic_partition), f"the transactions of {topic_partition}", topic_partition
        )
        if isinstance(loaded, LogOfflineError):
            self._unreadable[topic_partition.partition] = loaded
            return
        for name, value in loaded.items():
            owner = TransactionalId(name)
            self.owners[owner.name] = owner
            self._put(owner, value)
            self._account.put(owner.name, _bytes_of(owner.name, value))
            self._producer_ids.saw(max(value.producer_id, value.next_producer_id))
            owner.deadline = trio.current_time() + self._left_s(value)
        self._unreadable.pop(topic_partition.partition, None)

    async def see_producers(self) -> None:
        """Let `ProducerIds` know the ids in a mirror that will be loaded. One that cannot be read is reported then."""
        for place in self._topic.places:
            with suppress(TriologError, OSError):
                for value in (await self._read(place)).values():
                    self._producer_ids.saw(max(value.producer_id, value.next_producer_id))

    async def _read(self, topic_partition: TopicPartition) -> dict[str, TransactionLogValue]:
        return await self._topic.replay_newest(topic_partition, decode_transaction_key, decode_transaction_value)

    def _left_s(self, value: TransactionLogValue) -> float:
        """Return the rest of an open transaction's timeout in seconds, at least RETURN_MS: its producer, which was cut off, may
        be about to commit. It is never more than the timeout, however the clock was set meanwhile. Transactions in other states
        are due at once."""
        if value.state is not TransactionState.ONGOING:
            return 0.0
        return min(max(RETURN_MS, value.start_ms + value.timeout_ms - self._now_ms()), value.timeout_ms) / 1000

    @property
    def _account(self) -> Account:
        return self._topic.manager.client_memory.account("transactional ids")

    def owner(self, transactional_id: str) -> TransactionalId:
        """Return the transactional id; it has no state when it is not known. Raises RequestError when it cannot be read."""
        self.check_readable(transactional_id)
        return self.owners.get(transactional_id) or TransactionalId(transactional_id)

    def check_readable(self, transactional_id: str) -> None:
        """Raises RequestError."""
        error = self._unreadable.get(self._topic.partition_of(transactional_id).partition)
        if error is not None:
            raise error.as_answer()

    def states(self) -> Iterator[tuple[str, TransactionLogValue]]:
        """Every transactional id with its state."""
        return ((owner.name, owner.value) for owner in self.owners.values() if owner.value is not None)

    def may_be_open(self, producer_id: int, topic_partition: TopicPartition) -> bool:
        """Return whether the producer has, as far as known, a transaction on the partition that is open or about to end. True
        when part of the state cannot be read."""
        return bool(self._unreadable) or any(
            owner.value is not None and owner.value.state not in IDLE_STATES and topic_partition in owner.value.partitions
            for owner in self._of_producer.get(producer_id, ())
        )

    def coordinator_epoch(self, owner: TransactionalId) -> int:
        """Leader epoch of the partition that keeps the id: what its markers carry."""
        return self._topic.actor(self._topic.partition_of(owner.name)).log.leader_epoch

    async def begin(self, transactional_id: str) -> TransactionalId:
        """The id, which is there from now on. Raises RequestError when it cannot be read, or the topic cannot be made."""
        await self._topic.ensure()
        self.check_readable(transactional_id)
        if transactional_id not in self.owners:
            self._account.check(transactional_id, _bytes_of(transactional_id, None))
        return self.owners.setdefault(transactional_id, TransactionalId(transactional_id))

    async def store(self, owner: TransactionalId, value: TransactionLogValue | None) -> None:
        """Write the id's next state; None: it is forgotten. Raises RequestError: then it is as before."""
        size = _bytes_of(owner.name, value)
        if value is not None:
            self._account.check(owner.name, size - self._account.size_of(owner.name))
        record = (self._now_ms(), encode_transaction_key(owner.name), None if value is None else value.encode(), ())

        def on_stored(_: object) -> None:
            was_idle = owner.value is not None and owner.value.state in IDLE_STATES
            if was_idle and value is not None and value.state is TransactionState.ONGOING:
                owner.deadline = trio.current_time() + value.timeout_ms / 1000
            self._put(owner, value)
            if value is None:
                self._account.drop(owner.name)
            else:
                self._account.put(owner.name, size)

        await self._topic.append(self._topic.partition_of(owner.name), build_batch([record]), on_stored)

    def _put(self, owner: TransactionalId, value: TransactionLogValue | None) -> None:
        """The id has this state from now on."""
        before, owner.value = owner.value, value
        self.open_count += _is_open(value) - _is_open(before)
        if value is None or value.state in IDLE_STATES:
            self.unfinished.pop(owner.name, None)
        else:
            self.unfinished[owner.name] = owner
        old_id, new_id = (None if each is None else each.producer_id for each in (before, value))
        if old_id == new_id:
            return
        if old_id is not None:
            others = tuple(each for each in self._of_producer.pop(old_id, ()) if each is not owner)
            if others:
                self._of_producer[old_id] = others
        if new_id is not None:
            self._of_producer[new_id] = (*self._of_producer.get(new_id, ()), owner)


def _is_open(value: TransactionLogValue | None) -> bool:
    return value is not None and value.state is TransactionState.ONGOING


def _bytes_of(name: str, value: TransactionLogValue | None) -> int:
    """Memory of an id and its state. Only partitions let a known id grow: a transaction can always end."""
    partitions = () if value is None else value.partitions
    return ID_BYTES + 2 * sys.getsizeof(name) + sum(PARTITION_BYTES + sys.getsizeof(each.topic) for each in partitions)


BLOCK_IDS: Final = 1000


@attrs.define(eq=False, repr=False)
class ProducerIds:
    """See the module. Owner: whoever is inside `_turn`."""

    _manager: LogManager
    _next: int = 0
    _end: int = 0
    """`_next` to `_end`, exclusive, are on the device as ours and not given out."""
    _used: int = -1
    """The highest id that was seen in a log."""
    _first_own: int = 0
    """See ProducerIdBlock."""
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    def saw(self, producer_id: int) -> None:
        """A log holds this id: it is not free, also where the directory comes from Kafka and there is no file."""
        self._used = max(self._used, producer_id)

    async def load(self) -> None:
        """Read what the directories know. One that can be read is enough to know that this is a copy. If none can, the next
        producer that needs a new id gets an error, and known ids continue as on a server that is no copy."""
        for path in self._directories():
            with suppress(OSError, StorageError):
                self._first_own = max(self._first_own, (await self._read(path)).first_own)

    def has_next_epoch(self, value: TransactionLogValue) -> bool:
        """Return whether a transactional id keeps its producer id for the next epoch. If not, it needs a new one: the epochs
        are used up, or another server may have given that epoch out."""
        return value.producer_id >= self._first_own and not is_epoch_exhausted(value)

    async def move_apart(self) -> None:
        """Continue at ids drawn at random: another server may have given out those that follow here. The next block is on the
        device when this returns. Raises RequestError."""
        async with self._turn:
            with trio.CancelScope(shield=True):
                await self._take_block(apart=True)

    async def next(self) -> int:
        """An id that nobody had before. Raises RequestError when a new block cannot be written."""
        async with self._turn:
            if self._next == self._end:
                with trio.CancelScope(shield=True):
                    await self._take_block()
            producer_id, self._next = self._next, self._next + 1
            return producer_id

    def _directories(self) -> list[str]:
        return [each.path for each in self._manager.log_directories.live]

    async def _read(self, path: str) -> ProducerIdBlock:
        """Raises OSError, StorageError."""
        return await self._manager.disk.call(read_producer_id_block, self._manager.disk.fs, path, at=path)

    async def _take_block(self, *, apart: bool = False) -> None:
        """Every directory in service has to have it: whichever is there at the next start must not know less."""
        disk, directories = self._manager.disk, self._manager.log_directories
        try:
            directories.check_any()
            known = [await self._read(path) for path in self._directories()]
            own = max(self._first_own, *(each.first_own for each in known))
            first = max(FIRST_PRODUCER_ID, own, self._end, self._used + 1, *(each.first_free for each in known))
            if apart:
                first = own = block_apart(first).first_own
            block = ProducerIdBlock(first + BLOCK_IDS, own)
            await directories.write_each(lambda each: write_producer_id_block(disk.fs, each.path, block, durable=each.durable))
        except (OSError, StorageError) as exc:
            raise LogOfflineError(f"cannot assign producer ids: {exc}. Free space or check the device, then try again") from exc
        self._next, self._end, self._first_own = first, block.first_free, own
