"""The states of records that share groups were given, kept in `__share_group_state` in Kafka's format (Kafka:
ShareCoordinatorService, ShareCoordinatorShard, DefaultStatePersister).

Each share-partition has a snapshot and the updates since. After UPDATES_PER_SNAPSHOT updates comes the next snapshot; records
before the oldest snapshot that still counts are deleted from time to time, and a snapshot that holds up the others is written
again. The topic is never compacted. Memory has the result of a replay: it changes in the answer of an append.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final
from uuid import UUID

import attrs
import trio

from ...protocol.coordinator.share_group_records import (
    NO_START_OFFSET,
    SHARE_GROUP_STATE_TOPIC,
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateValue,
    ShareUpdateKey,
)
from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import INT16_MAX, MIB
from ...protocol.records.batch import BatchHeader
from ...protocol.records.builder import build_batch
from ...protocol.records.record import iter_records
from ...protocol.types import AppendResult, Bytes, TopicPartition
from ..logs.internal_topic import InternalTopic
from ..logs.log_manager import LogManager
from ..loop.waiting import KeyedLocks
from ..partitions.task_errors import TaskErrors
from ..storage.disk.checkpoints import encode_uuid
from ..system.client_memory import Account
from ..system.clock import NowMs
from .state.stored_state import StoredShare, applied, plan_initial, plan_snapshot
from .state.values import ShareKey

LOGGER: Final = logging.getLogger(__name__)

MAX_SHARES: Final = 100_000
"""Share-partitions that are kept, at about 1 KB."""
SHARE_BYTES: Final = 1_000
BATCH_BYTES: Final = 200
KEYS_AT_ONCE: Final = 500
NAMES_AT_ONCE: Final = MIB // 4
"""Records of a batch at most, and characters of their groups' names: a batch may have 1 MiB."""
COLD_RECORDS: Final = 5_000
"""A snapshot that so many records are behind is written once more, so that those before it can go."""
TOPIC_CONFIG: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "retention.ms": "-1",
    "segment.bytes": str(100 * MIB),
}
"""As Kafka makes it."""

Plan = Callable[[StoredShare | None], ShareStateValue | None]
"""From what is stored of a share-partition to the next record; None takes it away. May raise RequestError."""


def _batches(keys: Iterable[ShareKey]) -> Iterator[list[ShareKey]]:
    """Yield keys in lists that fit one batch."""
    batch, chars = list[ShareKey](), 0
    for key in keys:
        chars += len(key.group_id)
        if batch and (len(batch) == KEYS_AT_ONCE or chars > NAMES_AT_ONCE):
            yield batch
            batch, chars = [], len(key.group_id)
        batch.append(key)
    if batch:
        yield batch


def _bytes_of(key: ShareKey, batches: int) -> int:
    """Return the memory of a share-partition with so many stored batches."""
    return SHARE_BYTES + sys.getsizeof(key.group_id) + BATCH_BYTES * batches


def _nothing(_: StoredShare | None) -> None:
    """The plan that takes a share-partition away."""


def _record(key: ShareKey, value: ShareStateValue | None) -> tuple[bytes, bytes | None]:
    is_snapshot = value is None or isinstance(value, ShareSnapshotValue)
    name = (ShareSnapshotKey if is_snapshot else ShareUpdateKey)(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return SHARE_STATE_RECORDS.encode((name, value))


@attrs.define(eq=False, repr=False)
class ShareStateLog:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _topic: InternalTopic
    _now_ms: NowMs
    _shares: dict[ShareKey, StoredShare] = attrs.field(factory=dict)
    _snapshots: dict[ShareKey, tuple[int, int]] = attrs.field(factory=dict)
    """Where the snapshot of each is that counts: partition of the topic and offset."""
    _locks: KeyedLocks[ShareKey] = attrs.field(factory=KeyedLocks)
    _unreadable: RequestError | None = None

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> ShareStateLog:
        return cls(InternalTopic(manager, now_ms, SHARE_GROUP_STATE_TOPIC, 1, TOPIC_CONFIG), now_ms)

    # ---- start -----------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the log. When it cannot be read, every request raises the reason from then on."""
        self._shares.clear()
        self._snapshots.clear()
        self._account.clear()

        async def read() -> None:
            for place in self._topic.places:
                await self._topic.replay(place, self._replayer(place.partition))

        self._unreadable = await self._topic.loaded(read, "the state of share groups", SHARE_GROUP_STATE_TOPIC)

    @property
    def errors(self) -> TaskErrors:
        """Unhandled exceptions of tasks of share groups."""
        return self._topic.errors

    @property
    def _account(self) -> Account:
        return self._topic.manager.client_memory.account("share states", MAX_SHARES)

    def _replayer(self, number: int) -> Callable[[BatchHeader, memoryview], None]:
        def take(header: BatchHeader, batch: Bytes) -> None:
            for record in () if header.is_control else iter_records(batch, header):
                key = SHARE_STATE_RECORDS.decode_key(record.key or b"")
                if key is None:
                    continue
                value = None if record.value is None else SHARE_STATE_RECORDS.decode_value(key, record.value)
                self._take(ShareKey(key.group_id, key.topic_id, key.partition), value, number, record.offset)

        return take

    def _take(self, key: ShareKey, value: ShareStateValue | None, number: int, offset: int) -> None:
        """Apply a record of the log. Updates whose snapshot was deleted do not count: a later snapshot follows them."""
        if value is None:
            self._shares.pop(key, None)
            self._snapshots.pop(key, None)
            self._account.drop(key)
            return
        before = self._shares.get(key)
        if isinstance(value, ShareSnapshotValue):
            self._snapshots[key] = number, offset
        elif before is None:
            return
        share = self._shares[key] = applied(before, value)
        self._account.put(key, _bytes_of(key, len(share.batches)))

    # ---- questions -------------------------------------------------------------------------------------------------------

    def find(self, key: ShareKey) -> StoredShare | None:
        """Return the stored state of a share-partition; None: there is none. Raises RequestError when it cannot be read."""
        if self._unreadable is not None:
            raise self._unreadable.as_answer()
        return self._shares.get(key)

    def known(self) -> Iterator[ShareKey]:
        """Return all share-partitions that have a stored state."""
        return iter(list(self._shares))

    # ---- the log ---------------------------------------------------------------------------------------------------------

    async def write(self, key: ShareKey, plan: Plan) -> None:
        """Plan the next record of a share-partition, and store it. It is as durable as the topic demands when this returns.
        Raises RequestError, then it is not stored. Cancelled: it is stored all the same."""
        with trio.CancelScope(shield=True):
            async with self._locks.hold(key):
                await self._write(key, plan)

    async def write_all(self, plans: Mapping[ShareKey, Plan]) -> dict[ShareKey, RequestError]:
        """`write` for many share-partitions, in few batches. Returns those that failed, with the reason; the others are stored.
        Cancelled: they are all the same."""
        failed: dict[ShareKey, RequestError] = {}
        with trio.CancelScope(shield=True):
            for some in _batches(sorted(plans)):
                async with AsyncExitStack() as locks:
                    for key in some:
                        await locks.enter_async_context(self._locks.hold(key))
                    failed |= await self._write_all({key: plans[key] for key in some})
        return failed

    async def _write_all(self, plans: Mapping[ShareKey, Plan]) -> dict[ShareKey, RequestError]:
        failed: dict[ShareKey, RequestError] = {}
        planned: dict[TopicPartition, list[tuple[ShareKey, ShareStateValue | None]]] = {}
        for key, plan in plans.items():
            try:
                place, value = await self._planned(key, plan)
                planned.setdefault(place, []).append((key, value))
            except RequestError as exc:
                failed[key] = exc.as_answer()
        for place, values in planned.items():
            try:
                await self._append(place, values)
            except RequestError as exc:
                failed |= dict.fromkeys((key for key, _ in values), exc.as_answer())
        return failed

    async def initialize_all(
        self, keys: Iterable[ShareKey], *, start_offset: int = NO_START_OFFSET, state_epoch: int = 0
    ) -> dict[ShareKey, RequestError]:
        """`initialize` for many. Returns those that failed."""
        left = MAX_SHARES - len(self._shares)
        plans: dict[ShareKey, Plan] = {}
        for key in keys:
            left -= key not in self._shares
            plans[key] = self._beginning(key, start_offset, state_epoch, is_too_many=left < 0)
        return await self.write_all(plans)

    async def delete_all(self, keys: Iterable[ShareKey]) -> dict[ShareKey, RequestError]:
        """Forget many share-partitions. Returns those that failed."""
        return await self.write_all({key: _nothing for key in keys if key in self._shares})

    async def initialize(self, key: ShareKey, *, start_offset: int = NO_START_OFFSET, state_epoch: int = 0) -> None:
        """Let a share-partition begin, or begin again, at an offset. Raises RequestError: FENCED_STATE_EPOCH."""
        is_full = key not in self._shares and len(self._shares) >= MAX_SHARES
        await self.write(key, self._beginning(key, start_offset, state_epoch, is_too_many=is_full))

    def _beginning(self, key: ShareKey, start_offset: int, state_epoch: int, *, is_too_many: bool) -> Plan:
        def plan(before: StoredShare | None) -> ShareStateValue:
            if before is None and is_too_many:
                raise RequestError(f"{key}: {MAX_SHARES} share-partitions are stored already", ErrorCode.INVALID_REQUEST)
            if before is None:
                self._account.check(key, _bytes_of(key, 0))
            if before is not None and before.state_epoch > state_epoch:
                raise fenced(key, before.state_epoch, state_epoch)
            return plan_initial(before, state_epoch=state_epoch, start_offset=start_offset, now_ms=self._now_ms())

        return plan

    async def delete(self, key: ShareKey) -> None:
        """Forget a share-partition. Raises RequestError."""
        if self.find(key) is not None:
            await self.write(key, _nothing)

    async def _write(self, key: ShareKey, plan: Plan) -> None:
        place, value = await self._planned(key, plan)
        await self._append(place, [(key, value)])

    async def _planned(self, key: ShareKey, plan: Plan) -> tuple[TopicPartition, ShareStateValue | None]:
        if not key.group_id or len(key.group_id.encode()) > INT16_MAX:
            raise RequestError(f"a group's name has 1 to {INT16_MAX} bytes", ErrorCode.INVALID_GROUP_ID)
        await self._topic.ensure()
        value = plan(self.find(key))
        return self._topic.partition_of(f"{key.group_id}:{encode_uuid(UUID(bytes=key.topic_id))}:{key.partition}"), value

    async def _append(self, place: TopicPartition, values: Sequence[tuple[ShareKey, ShareStateValue | None]]) -> None:
        """Store records of different share-partitions, whose locks are held, in one batch."""
        now_ms = self._now_ms()
        batch = build_batch([(now_ms, *_record(key, value), ()) for key, value in values])

        def on_stored(result: AppendResult) -> None:
            for offset, (key, value) in enumerate(values, result.base_offset):
                self._take(key, value, place.partition, offset)

        await self._topic.append(place, batch, on_stored)

    # ---- what is needed no longer ----------------------------------------------------------------------------------------

    async def prune(self) -> None:
        """Write snapshots again that hold up the others, and delete what is before all of them. What fails is logged and tried
        again the next time."""
        if self._unreadable is not None:
            return
        for place in self._topic.places:
            with self.errors.isolate("share-prune", place):
                try:
                    await self._prune(place)
                except (RequestError, OSError) as exc:
                    LOGGER.warning("%s: could not delete obsolete state, trying again: %s", place, exc)

    async def _prune(self, place: TopicPartition) -> None:
        end, number = self._topic.actor(place).snapshot().high_watermark, place.partition
        for key in [key for key, at in self._snapshots.items() if at[0] == number and end - at[1] > COLD_RECORDS]:
            with self.errors.isolate("share-prune", key):
                try:
                    await self._write_again(key)
                except RequestError as exc:
                    LOGGER.warning("%s: could not rewrite its state, trying again: %s", key, exc)
        snapshot = self._topic.actor(place).snapshot()
        needed = min((at[1] for at in self._snapshots.values() if at[0] == number), default=end)
        if needed > snapshot.log_start_offset:
            await self._topic.manager.retention.prune(place, needed)

    async def _write_again(self, key: ShareKey) -> None:
        def plan(before: StoredShare | None) -> ShareStateValue | None:
            return None if before is None else plan_snapshot(before, now_ms=self._now_ms())

        await self.write(key, plan)


def fenced(key: ShareKey, stored: int, epoch: int) -> RequestError:
    """Return the error for a request with an older state epoch."""
    return RequestError(f"{key}: the state epoch is {stored}, the request's {epoch}", ErrorCode.FENCED_STATE_EPOCH)
