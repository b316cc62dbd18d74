"""Transactions that a partition has open and the coordinator knows nothing of: nobody would ever end them, readers of committed
records would wait for ever, and compaction would stop there (Kafka: `kafka-transactions.sh find-hanging` and `abort`, KIP-664).

They come from directories whose `__transaction_state` was left behind, from a power cut that took a marker from a topic with
`durability` other than `fsync`, and from producers that append without having joined. No transaction may be open for longer
than `transaction_max_timeout_ms`; one that was watched for that long without an owner is aborted where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.errors import InvalidTxnStateError, RequestError
from ...protocol.types import TopicPartition
from ..logs.internal_topic import store
from ..logs.log_manager import LogManager
from ..loop.procedures import in_turns
from ..partitions.partition import PartitionActor
from ..storage.log.prepare import prepare_marker
from ..storage.producers.producer_cursor import ProducerEntry
from ..system.clock import NowMs
from .transaction_coordinator import MarkerStored

LOGGER: Final = logging.getLogger(__name__)

IsKnown = Callable[[int, TopicPartition], bool]
"""(producer id, partition): whether the coordinator has, or may have, that transaction open."""

LOOKS_PER_TURN: Final = 256


class _Open(NamedTuple):
    topic_partition: TopicPartition
    producer_id: int
    first_offset: int


@attrs.define(eq=False, repr=False)
class HangingTransactions:
    """Owner of when each was first seen, in trio's time: a clock that is set ends no transaction."""

    _manager: LogManager
    _now_ms: NowMs
    _is_known: IsKnown
    _marker_stored: MarkerStored
    _seen: dict[_Open, float] = attrs.field(factory=dict)
    _aborting: set[PartitionActor] = attrs.field(factory=set)
    """Partitions that are about to get markers."""
    _aborted: int = 0

    @property
    def count(self) -> int:
        """Return the number of hanging transactions that the last check has found."""
        return len(self._seen)

    async def abort_overdue(self) -> int:
        """Abort what has been hanging for too long and answer how many. What fails is logged and tried again the next time."""
        before = self._aborted
        async with trio.open_nursery() as nursery:
            await self.begin_overdue(nursery)
        return self._aborted - before

    async def begin_overdue(self, nursery: trio.Nursery) -> None:
        """`abort_overdue`, beside each other in `nursery`: a partition whose device hangs holds up itself alone."""
        now, limit_s = trio.current_time(), self._manager.config.transaction_max_timeout_ms / 1000
        seen: dict[_Open, float] = {}
        for actor in await self._unstable():
            with self._manager.disk.errors.isolate("hanging-transactions", actor.topic_partition):
                hanging = await self._hanging_on(actor)
                seen.update((key, self._seen.get(key, now)) for key in hanging)
                overdue = [key for key in hanging if now - seen[key] >= limit_s]
                if overdue and actor not in self._aborting:
                    self._aborting.add(actor)
                    nursery.start_soon(self._abort_each, actor, overdue)
        self._seen = seen

    async def _abort_each(self, actor: PartitionActor, overdue: Sequence[_Open]) -> None:
        try:
            for key in overdue:
                await trio.lowlevel.checkpoint_if_cancelled()
                with self._manager.disk.errors.isolate("hanging-transactions", key.topic_partition):
                    if await self._abort(key, actor):
                        self._seen.pop(key, None)
                        self._aborted += 1
        finally:
            self._aborting.discard(actor)

    async def _unstable(self) -> list[PartitionActor]:
        """The partitions that have an open transaction. Those of a mirror are for its source to end."""
        hosted = in_turns(self._manager.topics.hosted(), LOOKS_PER_TURN)
        logs = [(each.actor, each.actor.log) async for each in hosted]
        return [actor for actor, log in logs if log.producers.first_unstable_offset is not None and not log.mirror_of]

    async def _hanging_on(self, actor: PartitionActor) -> list[_Open]:
        topic_partition = actor.topic_partition
        return [
            _Open(topic_partition, producer_id, first_offset)
            async for producer_id, first_offset in in_turns(actor.log.producers.ongoing.items(), LOOKS_PER_TURN)
            if not self._is_known(producer_id, topic_partition)
        ]

    async def abort(self, topic_partition: TopicPartition, producer_id: int) -> int:
        """Abort what a producer has open on a partition, and answer where it began. Raises RequestError: INVALID_TXN_STATE
        where nothing is open, and where the coordinator has it open, because on other partitions it would stay."""
        actor = self._manager.topics.actor(topic_partition)
        entry = actor.log.producers.entries.get(producer_id)
        first_offset = None if entry is None else entry.current_txn_first_offset
        if entry is None or first_offset is None:
            raise InvalidTxnStateError(f"{topic_partition}: producer {producer_id} has no transaction open there")
        if self._is_known(producer_id, topic_partition):
            raise InvalidTxnStateError(
                f"{topic_partition}: the transaction of producer {producer_id} is not hanging, or perhaps not: it "
                "belongs to a transactional id. Abort it by that id"
            )
        await self._write_marker(_Open(topic_partition, producer_id, first_offset), actor, entry)
        LOGGER.warning(
            "%s: aborted the transaction of producer %d open since offset %d: it had no owner, and an "
            "administrator requested it",
            topic_partition,
            producer_id,
            first_offset,
        )
        return first_offset

    async def _write_marker(self, key: _Open, actor: PartitionActor, entry: ProducerEntry) -> None:
        """Raises RequestError: InvalidTxnStateError when it has ended while the marker waited its turn."""
        marker = prepare_marker(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            commit=False,
            coordinator_epoch=max(0, entry.coordinator_epoch),
            now_ms=self._now_ms(),
            ends_only=key.first_offset,
        )
        with trio.CancelScope(shield=True):
            await store(actor, marker, lambda _: self._marker_stored(key.topic_partition, key.producer_id, False))

    async def _abort(self, key: _Open, actor: PartitionActor) -> bool:
        entry = actor.log.producers.entries.get(key.producer_id)
        if entry is None or entry.current_txn_first_offset != key.first_offset:
            return False  # it has ended, and the producer may have begun another one
        try:
            await self._write_marker(key, actor, entry)
        except InvalidTxnStateError:
            return False  # the same, while the marker waited its turn
        except RequestError as exc:
            LOGGER.warning("%s: cannot abort the hanging transaction of producer %d: %s", key[0], key[1], exc)
            return False
        LOGGER.warning("%s: aborted the transaction of producer %d open since offset %d: it had no owner", *key)
        return True
