"""What has become of the records that share groups were given, kept in `__share_group_state` in Kafka's format (Kafka:
ShareCoordinatorService, ShareCoordinatorShard, DefaultStatePersister).

Of each share-partition there is a snapshot and the updates since. After UPDATES_PER_SNAPSHOT updates comes the next snapshot;
what is before the oldest snapshot that still counts is deleted from time to time, and one that holds up the others is written
once more. The topic is never compacted. What is in memory is what a replay gives: it changes in the answer of an append.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import UUID

import attrs
import trio

from ....protocol.coordinator.share_group_records import (
    NO_START_OFFSET,
    SHARE_GROUP_STATE_TOPIC,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateValue,
    ShareUpdateKey,
    decode_share_state_key,
    decode_share_state_value,
    encode_share_state_key,
    encode_share_state_value,
)
from ....protocol.errors import ErrorCode, RequestError, TriologError
from ....protocol.limits import INT16_MAX, MIB
from ....protocol.records.batch import BatchHeader
from ....protocol.records.builder import build_batch
from ....protocol.records.record import iter_records
from ....protocol.types import Bytes, TopicPartition
from ...groups.share.stored_state import StoredShare, applied, plan_initial, plan_snapshot
from ...groups.share.values import ShareKey
from ...logs.log_manager import LogManager
from ...storage.disk.checkpoints import encode_uuid
from ...storage.errors import LogOfflineError
from ...storage.log.append import AppendResult
from ...system.client_memory import Account
from ...system.clock import NowMs
from ..coordinators.internal_topic import InternalTopic
from ..disk.task_errors import TaskErrors

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
    """Those that one batch has room for."""
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
    """Memory of a share-partition with so many stored batches."""
    return SHARE_BYTES + sys.getsizeof(key.group_id) + BATCH_BYTES * batches


def _nothing(_: StoredShare | None) -> None:
    """The plan that takes a share-partition away."""


def _record(key: ShareKey, value: ShareStateValue | None) -> tuple[bytes, bytes | None]:
    is_snapshot = value is None or isinstance(value, ShareSnapshotValue)
    name = (ShareSnapshotKey if is_snapshot else ShareUpdateKey)(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return encode_share_state_key(name), None if value is None else encode_share_state_value(value)


@attrs.define(eq=False, repr=False)
class _Turns:
    """The lock of one share-partition's writes, kept while somebody holds it or waits for it."""

    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0


@attrs.define(eq=False, repr=False)
class ShareStateLog:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _topic: InternalTopic
    _now_ms: NowMs
    _shares: dict[ShareKey, StoredShare] = attrs.field(factory=dict)
    _snapshots: dict[ShareKey, tuple[int, int]] = attrs.field(factory=dict)
    """Where the snapshot of each is that counts: partition of the topic and offset."""
    _turns: dict[ShareKey, _Turns] = attrs.field(factory=dict)
    _unreadable: RequestError | None = None

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> ShareStateLog:
        return cls(InternalTopic(manager, now_ms, SHARE_GROUP_STATE_TOPIC, 1, TOPIC_CONFIG), now_ms)

    # ---- start -----------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the log. One that cannot be read answers with the reason from then on."""
        self._shares.clear()
        self._snapshots.clear()
        self._account.clear()
        self._unreadable = None
        try:
            for number in range(self._topic.partitions if self._exists else 0):
                await self._topic.replay(TopicPartition(SHARE_GROUP_STATE_TOPIC, number), self._replayer(number))
        except (TriologError, OSError) as exc:
            self._unreadable = LogOfflineError(
                f"the state of share groups cannot be served: {exc}; `triolog verify` says what is wrong with the log"
            )
            LOGGER.error("%s", self._unreadable)
        except Exception as exc:
            self.errors.note("coordinator-load", SHARE_GROUP_STATE_TOPIC, exc)
            self._unreadable = LogOfflineError(f"the state of share groups cannot be served: unhandled exception ({exc!r})")

    @property
    def errors(self) -> TaskErrors:
        """What tasks of share groups did not expect."""
        return self._topic.manager.disk.errors

    @property
    def _account(self) -> Account:
        return self._topic.manager.client_memory.account("share states", MAX_SHARES)

    @property
    def _exists(self) -> bool:
        return SHARE_GROUP_STATE_TOPIC in self._topic.manager.topics

    def _replayer(self, number: int) -> Callable[[BatchHeader, memoryview], None]:
        def take(header: BatchHeader, batch: Bytes) -> None:
            for record in () if header.is_control else iter_records(batch, header):
                key = decode_share_state_key(record.key or b"")
                if key is None:
                    continue
                value = None if record.value is None else decode_share_state_value(key, record.value)
                self._take(ShareKey(key.group_id, key.topic_id, key.partition), value, number, record.offset)

        return take

    def _take(self, key: ShareKey, value: ShareStateValue | None, number: int, offset: int) -> None:
        """A record is in the log. Updates whose snapshot was deleted count no longer: a later one is behind them."""
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
        """What is stored of a share-partition; None: nothing. Raises RequestError: it cannot be known."""
        if self._unreadable is not None:
            raise self._unreadable.as_answer()
        return self._shares.get(key)

    def known(self) -> Iterator[ShareKey]:
        """All share-partitions that something is stored of."""
        return iter(list(self._shares))

    # ---- the log ---------------------------------------------------------------------------------------------------------

    async def write(self, key: ShareKey, plan: Plan) -> None:
        """Have the next record of a share-partition planned, and store it. As durable as the topic demands when this returns.
        Raises RequestError, then it is not stored. Cancelled: it is stored all the same."""
        with trio.CancelScope(shield=True):
            async with self._turn(key):
                await self._write(key, plan)

    async def write_all(self, plans: Mapping[ShareKey, Plan]) -> dict[ShareKey, RequestError]:
        """The same for many share-partitions, in few batches; answers those that failed, with the reason. Those that did not
        are stored when this returns. Cancelled: they are all the same."""
        failed: dict[ShareKey, RequestError] = {}
        with trio.CancelScope(shield=True):
            for some in _batches(sorted(plans)):
                async with AsyncExitStack() as turns:
                    for key in some:
                        await turns.enter_async_context(self._turn(key))
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
        """`initialize` for many; answers those that failed."""
        left = MAX_SHARES - len(self._shares)
        plans: dict[ShareKey, Plan] = {}
        for key in keys:
            left -= key not in self._shares
            plans[key] = self._beginning(key, start_offset, state_epoch, is_too_many=left < 0)
        return await self.write_all(plans)

    async def delete_all(self, keys: Iterable[ShareKey]) -> dict[ShareKey, RequestError]:
        """Forget many share-partitions; answers those that failed."""
        return await self.write_all({key: _nothing for key in keys if key in self._shares})

    async def initialize(self, key: ShareKey, *, start_offset: int = NO_START_OFFSET, state_epoch: int = 0) -> None:
        """Let a share-partition begin, or begin anew, at an offset. Raises RequestError: FENCED_STATE_EPOCH."""
        is_full = key not in self._shares and len(self._shares) >= MAX_SHARES
        await self.write(key, self._beginning(key, start_offset, state_epoch, is_too_many=is_full))

    def _beginning(self, key: ShareKey, start_offset: int, state_epoch: int, *, is_too_many: bool) -> Plan:
        def plan(before: StoredShare | None) -> ShareStateValue:
            if before is None and is_too_many:
                raise RequestError(f"{key}: {MAX_SHARES} share-partitions are kept already", ErrorCode.INVALID_REQUEST)
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
        """Records of different share-partitions in one batch, whose turns are ours."""
        now_ms = self._now_ms()
        batch = build_batch([(now_ms, *_record(key, value), ()) for key, value in values])

        def on_stored(result: AppendResult) -> None:
            for offset, (key, value) in enumerate(values, result.base_offset):
                self._take(key, value, place.partition, offset)

        await self._topic.append(place, batch, on_stored)

    @asynccontextmanager
    async def _turn(self, key: ShareKey) -> AsyncIterator[None]:
        turns = self._turns.setdefault(key, _Turns())
        turns.users += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[key]

    # ---- what is needed no longer ----------------------------------------------------------------------------------------

    async def prune(self) -> None:
        """Write snapshots once more that hold up the others, and delete what is before all of them. What fails is logged and
        done the next time."""
        if not self._exists or self._unreadable is not None:
            return
        for number in range(self._topic.partitions):
            place = TopicPartition(SHARE_GROUP_STATE_TOPIC, number)
            with self.errors.isolate("share-prune", place):
                try:
                    await self._prune(place)
                except (RequestError, OSError) as exc:
                    LOGGER.warning("%s: what is needed no longer could not be deleted, it is tried again: %s", place, exc)

    async def _prune(self, place: TopicPartition) -> None:
        end, number = self._topic.actor(place).snapshot().high_watermark, place.partition
        for key in [key for key, at in self._snapshots.items() if at[0] == number and end - at[1] > COLD_RECORDS]:
            with self.errors.isolate("share-prune", key):
                try:
                    await self._write_again(key)
                except RequestError as exc:
                    LOGGER.warning("%s: its state could not be written once more, it is tried again: %s", key, exc)
        snapshot = self._topic.actor(place).snapshot()
        needed = min((at[1] for at in self._snapshots.values() if at[0] == number), default=end)
        if needed > snapshot.log_start_offset:
            await self._topic.manager.retention.prune(place, needed)

    async def _write_again(self, key: ShareKey) -> None:
        def plan(before: StoredShare | None) -> ShareStateValue | None:
            return None if before is None else plan_snapshot(before, now_ms=self._now_ms())

        await self.write(key, plan)


def fenced(key: ShareKey, stored: int, epoch: int) -> RequestError:
    """Whoever has an older state epoch speaks of what was before."""
    return RequestError(f"{key}: the state epoch is {stored}, the request's {epoch}", ErrorCode.FENCED_STATE_EPOCH)
