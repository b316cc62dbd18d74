"""Transactions that a partition has open and the coordinator knows nothing of: nobody would ever end them, readers of committed
records would wait for ever, and compaction would stop there (Kafka: `kafka-transactions.sh find-hanging` and `abort`, KIP-664).

They come from directories whose `__transaction_state` was left behind, from a power cut that took a marker from a topic with
`durability` other than `fsync`, and from producers that append without having joined. No transaction may be open for longer
than `transaction_max_timeout_ms`; one that was watched for that long without an owner is aborted where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import attrs
import trio

from ....protocol.errors import InvalidTxnStateError, RequestError
from ....protocol.types import TopicPartition
from ...storage.log.prepare import prepare_marker
from ...storage.producers.producer_entry import ProducerEntry
from ...system.clock import NowMs
from ..manager.log_manager import LogManager
from ..partition.partition import PartitionActor
from .internal_topic import store
from .transaction_coordinator import MarkerStored

LOGGER: Final = logging.getLogger(__name__)

IsKnown = Callable[[int, TopicPartition], bool]
"""(producer id, partition): whether the coordinator has, or may have, that transaction open."""


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

    async def abort_overdue(self) -> int:
        """Abort what has been hanging for too long and answer how many. What fails is logged and tried again the next time."""
        now, seen, count = trio.current_time(), self._seen, 0
        self._seen = {}
        limit_s = self._manager.config.transaction_max_timeout_ms / 1000
        for key, actor, entry in list(self._hanging()):
            self._seen[key] = since = seen.get(key, now)
            with self._manager.disk.errors.isolate("hanging-transactions", key.topic_partition):
                if now - since >= limit_s and await self._abort(key, actor, entry):
                    del self._seen[key]
                    count += 1
        return count

    def _hanging(self) -> Iterator[tuple[_Open, PartitionActor, ProducerEntry]]:
        for hosted in self._manager.topics.hosted():
            actor = hosted.actor
            if actor.log.producers.first_unstable_offset is None:
                continue
            for entry in actor.log.producers.entries.values():
                with self._manager.disk.errors.isolate("hanging-transactions", actor.topic_partition):
                    first_offset = entry.current_txn_first_offset
                    if first_offset is not None and not self._is_known(entry.producer_id, actor.topic_partition):
                        yield _Open(actor.topic_partition, entry.producer_id, first_offset), actor, entry

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
                f"{topic_partition}: the transaction of producer {producer_id} is not hanging, or may not be: it belongs to a "
                "transactional id, by which it is aborted everywhere"
            )
        await self._write_marker(_Open(topic_partition, producer_id, first_offset), actor, entry)
        LOGGER.warning(
            "%s: the transaction of producer %d open since offset %d had no owner and is aborted by hand",
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

    async def _abort(self, key: _Open, actor: PartitionActor, entry: ProducerEntry) -> bool:
        try:
            await self._write_marker(key, actor, entry)
        except InvalidTxnStateError:
            return False  # the producer may have begun another one
        except RequestError as exc:
            LOGGER.warning("%s: the hanging transaction of producer %d cannot be aborted: %s", key[0], key[1], exc)
            return False
        LOGGER.warning("%s: the transaction of producer %d open since offset %d had no owner and is aborted", *key)
        return True
