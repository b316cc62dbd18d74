"""Owns a partition as one share group reads it: the records of members, their acknowledgements, and the state writes
(Kafka: SharePartition).

`sharing.state` decides. Here are the clock, the log of the state and the waiting fetches. Nothing here waits for the
partition's own log, or holds it up.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.share_group_records import ShareStateValue
from ...protocol.errors import ErrorCode, RequestError
from ...protocol.types import TopicPartition
from ..loop.waiting import Alarm, Waiters, deadline_now_ms
from ..system.clock import NowMs
from .state.acquisition import Acquisition
from .state.partition_state import Change, SharePartitionState
from .state.stored_state import StoredShare, plan_write
from .state.values import (
    Acknowledgement,
    AcquiredRecords,
    AcquireMode,
    DeadLetters,
    OffsetRange,
    ShareKey,
    StateBatch,
)
from .state_log import ShareStateLog, fenced

LOGGER: Final = logging.getLogger(__name__)


class AcquireStyle(NamedTuple):
    """The way in which a member acquires its records."""

    mode: AcquireMode
    batch_size: int
    """Records in a piece, about."""


WriteDeadLetters = Callable[[str, TopicPartition, Sequence[DeadLetters]], Awaitable[int]]
"""Write the dead letters of a group's records in a partition into the group's queue. Returns how many it has written. Raises
RequestError after the last attempt."""


@attrs.define(eq=False, repr=False)
class SharePartition:
    """Owner of one share-partition's state. Called from any task of the trio thread."""

    key: ShareKey
    topic_partition: TopicPartition
    state: SharePartitionState
    state_epoch: int
    _log: ShareStateLog
    _alarm: Alarm
    """When locks are looked at next."""
    _wall_ms: NowMs
    waiters: Waiters = attrs.field(factory=Waiters)
    """Of fetches: woken when there may be more for them."""
    is_being_read: bool = False
    """A fetch reads what it is about to acquire; another one would read the same."""
    _is_burying: bool = False
    """A task writes its dead letters."""
    is_over: bool = False
    """It was taken away, or begins anew: who has it asks for it again."""

    def acquire(
        self,
        member: str,
        style: AcquireStyle,
        fetched: Sequence[OffsetRange],
        *,
        fetch_offset: int,
        max_records: int,
        aborted: Sequence[OffsetRange],
    ) -> tuple[list[AcquiredRecords], list[StateBatch]]:
        """Give records to a member that were read from `fetch_offset` on, see `Acquisition`. Returns the records of the member,
        and the batches for `store_settled`: aborted records are archived."""
        acquisition = Acquisition(self.state, member, style.mode, style.batch_size, deadline_now_ms())
        acquired = acquisition.take(fetched, fetch_offset=fetch_offset, max_records=max_records, aborted=aborted)
        self._alarm.bring_forward(self.state.next_deadline_ms)
        self.state.counters.acquired += sum(each.last_offset - each.first_offset + 1 for each in acquired)
        return acquired, acquisition.archived

    async def acknowledge(self, member: str, said: Sequence[Acknowledgement]) -> None:
        """Settle records as a member acknowledges them. It is stored when this returns. Raises RequestError; then nothing has
        happened but renewals. Cancelled: it happens all the same."""
        await self._carry_out(self.state.acknowledge(member, said, deadline_now_ms()))

    async def release(self, member: str) -> None:
        """Take back the records of a member. Raises RequestError; then it has them until its locks end."""
        await self._carry_out(self.state.release(member))

    async def _carry_out(self, change: Change) -> None:
        if not change.batches:
            return
        with trio.CancelScope(shield=True):
            try:
                await self._store(change.batches)
            except BaseException:
                self.state.roll_back(change)
                self._alarm.bring_forward(self.state.next_deadline_ms)
                raise
            self.state.commit(change)
            self.waiters.wake_all()

    def expire(self) -> list[StateBatch]:
        """Take back records whose lock has ended. Returns the batches to be stored."""
        expired = self.state.expire(deadline_now_ms())
        if expired:
            self.waiters.wake_all()
        return expired

    async def store_settled(self, batches: Sequence[StateBatch]) -> None:
        """Store that locks have ended, or that records are archived. Both hold in any case, as long as this state lives."""
        with self._log.errors.isolate("share-locks", self.key):
            await self._store_settled(batches)

    async def _store_settled(self, batches: Sequence[StateBatch]) -> None:
        try:
            await self._store(batches)
        except RequestError as exc:
            LOGGER.warning("%s: could not store ended locks or archived records: %s", self.key, exc)

    async def _store(self, batches: Sequence[StateBatch]) -> None:
        try:
            await self._log.write(self.key, lambda before: self._plan(before, batches))
        except RequestError as exc:
            is_fenced = exc.code is ErrorCode.FENCED_STATE_EPOCH
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_fenced else ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise RequestError(f"{self.key}: could not store the new state of records: {exc.message}", code) from exc

    def _plan(self, before: StoredShare | None, batches: Sequence[StateBatch]) -> ShareStateValue:
        if before is None or self.is_over or before.state_epoch > self.state_epoch:
            raise fenced(self.key, -1 if before is None else before.state_epoch, self.state_epoch)
        return plan_write(
            before,
            start_offset=self.state.start_offset,
            delivery_complete_count=self.state.delivery_complete_count,
            batches=batches,
            leader_epoch=before.leader_epoch,
            now_ms=self._wall_ms(),
        )

    async def bury(self, write: WriteDeadLetters) -> None:
        """Write the dead letters of records that are archiving, and archive these (Kafka:
        SharePartition.initiateDLQAndArchive).

        A record is archived after its dead letter is in a log. A stop or a crash in between leaves it archiving: then it is
        written again, when the group next reads the partition.
        """
        if self._is_burying:
            return
        self._is_burying = True
        try:
            while self.state.dead_letters and not self.is_over:
                letters, self.state.dead_letters = self.state.dead_letters, []
                await self._bury(write, letters)
        finally:
            self._is_burying = False

    async def _bury(self, write: WriteDeadLetters, letters: Sequence[DeadLetters]) -> None:
        count = sum(each.last_offset - each.first_offset + 1 for each in letters)
        counters = self.state.counters
        try:
            counters.dead_lettered += await write(self.key.group_id, self.topic_partition, letters)
        except RequestError as exc:
            counters.dead_letters_failed += count
            first, last = letters[0].first_offset, letters[-1].last_offset
            message = (
                "dead letters not written, records archived: group=%s topic_partition=%s offsets=%d-%d records=%d reason=%s"
            )
            LOGGER.error(message, self.key.group_id, self.topic_partition, first, last, count, exc.message)
        archived = self.state.archive_dead(letters)
        if archived and not self.is_over:
            await self.store_settled(archived)
        self.waiters.wake_all()

    def end(self) -> None:
        """Give the state up: another `SharePartition` follows."""
        self.is_over = True
        self.waiters.wake_all()
