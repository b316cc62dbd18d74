"""Share-partitions (KIP-932), opened when a member requests them and closed when they are taken away (Kafka:
SharePartitionManager). `broker.share_fetches` gives records to members.

The group coordinator decides who is a member of a group and which partitions it reads; here a member is a client with a share
session, which continues when the member leaves the group: librdkafka leaves before it sends its last acknowledgements.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.share_group_records import NO_START_OFFSET
from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import INT64_MAX
from ...protocol.types import TimestampAndOffset, TopicPartition
from ..groups.share.states import ShareStateSummary
from ..logs.topics import Topics
from ..loop.waiting import Alarm, Waiters
from ..system.client_memory import ClientMemory
from ..system.clock import NowMs
from .partition import SharePartition, WriteDeadLetters
from .state.partition_state import SharePartitionState
from .state.sessions import DEFAULT_MAX_SESSIONS, ShareSession, ShareSessions
from .state.stored_state import StoredShare
from .state.values import DEFAULT_SHARE_CONFIG, Acknowledgement, OffsetReset, ShareConfig, ShareCounters, ShareKey, StateBatch
from .state_log import ShareStateLog

LOGGER: Final = logging.getLogger(__name__)

LATEST: Final = -1
SHARES_PER_TURN: Final = 32
"""Whose records are counted before others have their turn."""
PRUNE_S: Final = 300.0
"""Kafka's share.coordinator.state.topic.prune.interval.ms."""

OffsetForTime = Callable[[TopicPartition, int], Awaitable[TimestampAndOffset]]
"""Look up the first record of a partition with a timestamp of at least this; offset -1 where there is none."""
ConfigOf = Callable[[str], ShareConfig]
"""From a group's name to its configuration; called for each request."""


class ShareInFlight(NamedTuple):
    """The records that a share-partition has begun and not finished, now."""

    start_offset: int
    next_offset: int
    """The first offset that nobody was given yet."""
    acquired_count: int
    delivery_complete_count: int


class NeverBegunError(RequestError):
    """The group's coordinator has not let it begin in a partition."""

    default_code = ErrorCode.UNKNOWN_SERVER_ERROR


class ShareStatistics(NamedTuple):
    """Figures of share groups, for metrics."""

    counters: ShareCounters
    in_flight: Mapping[str, int]
    """Records that members have now, by group; of groups that somebody reads."""


@attrs.define(eq=False, repr=False)
class SharePartitions:
    """Owner of the share-partitions that are open, and of share sessions. Called from any task of the trio thread."""

    _log: ShareStateLog
    _topics: Topics
    _offset_for_time: OffsetForTime
    _wall_ms: NowMs
    config_of: ConfigOf = lambda _: DEFAULT_SHARE_CONFIG
    counters: ShareCounters = attrs.field(factory=ShareCounters)
    begun: Waiters = attrs.field(factory=Waiters)
    """Of fetches: woken when a group begins in a partition, perhaps not for the first time."""
    write_dead_letters: WriteDeadLetters = attrs.field(kw_only=True)
    memory: ClientMemory = attrs.field(factory=ClientMemory, kw_only=True)
    """Where share sessions are charged."""
    max_sessions: int = attrs.field(default=DEFAULT_MAX_SESSIONS, kw_only=True)
    """Of a node."""
    _sessions: dict[int, ShareSessions] = attrs.field(factory=dict)
    """By node: a member has one with each leader."""
    _ending: Counter[str] = attrs.field(factory=Counter)
    """Connections that have ended, by group, until what their members had is given back."""
    _open: dict[ShareKey, SharePartition] = attrs.field(factory=dict)
    _open_groups: Counter[str] = attrs.field(factory=Counter)
    """How many of these are of each group."""
    _alarm: Alarm = attrs.field(factory=Alarm)
    _background: trio.Nursery | None = None
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stopped: trio.Event = attrs.field(factory=trio.Event)

    # ---- life ------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End locks, write dead letters, and delete states that are not needed any more, until `stop`."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._background = nursery
                    for share in self._open.values():
                        self._bury(share)
                    nursery.start_soon(self._expire_locks)
                    nursery.start_soon(self._prune)
        finally:
            self._background = None
            self._stopped.set()

    async def stop(self) -> None:
        """End `run`; a record that is being written is written first. Cancelled: that continues until the logs are given up."""
        self._scope.cancel()
        await self._stopped.wait()

    async def _expire_locks(self) -> None:
        async with trio.open_nursery() as nursery:

            async def step() -> None:
                await self._alarm.wait(self._next_deadline_ms())
                self._expire_all(nursery)

            await self._log.errors.repeat("share-locks", step)

    def _expire_all(self, nursery: trio.Nursery) -> None:
        for share in list(self._open.values()):
            with self._log.errors.isolate("share-locks", share.key):
                if expired := self._expire(share):
                    nursery.start_soon(self._settle, share, expired)

    async def _settle(self, share: SharePartition, expired: Sequence[StateBatch]) -> None:
        await share.store_settled(expired)
        self._bury(share)

    def _bury(self, share: SharePartition) -> None:
        """Let the dead letters of a share-partition be written, without waiting."""
        if share.state.dead_letters:
            self._soon(self._buried, share)

    async def _buried(self, share: SharePartition) -> None:
        """Write the dead letters of a share-partition. One with an unhandled exception begins again with the stored state."""
        with self._log.errors.isolate("share-dead-letters", share.key):
            try:
                await share.bury(self.write_dead_letters)
            except Exception:
                if self._open.get(share.key) is share:
                    self._close(share.key)
                raise

    def _expire(self, share: SharePartition) -> list[StateBatch]:
        """End locks of a share-partition. One with an unhandled exception begins again with the stored state."""
        try:
            return share.expire()
        except Exception:
            self._close(share.key)
            raise

    def _next_deadline_ms(self) -> int | None:
        deadlines = (share.state.next_deadline_ms for share in self._open.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    async def _prune(self) -> None:

        async def step() -> None:
            await trio.sleep(PRUNE_S)
            await self._forget_deleted()
            await self._log.prune()

        await self._log.errors.repeat("share-prune", step)

    async def _forget_deleted(self) -> None:
        """Forget the partitions of deleted topics."""
        for key in self._log.known():
            with self._log.errors.isolate("share-prune", key):
                try:
                    self._topics.name_of(key.topic_id)
                except RequestError:
                    await self._delete_gone(key)

    async def _delete_gone(self, key: ShareKey) -> None:
        try:
            await self.delete(*key)
        except RequestError as exc:
            LOGGER.warning("%s: its topic is deleted, but not its state, trying again: %s", key, exc)

    # ---- share-partitions ------------------------------------------------------------------------------------------------

    async def open(self, key: ShareKey) -> SharePartition:
        """Return the share-partition, with the present configuration of its group. Raises RequestError."""
        config = self.config_of(key.group_id)
        topic_partition = TopicPartition(self._topics.name_of(key.topic_id), key.partition)
        log_start_offset = self._topics.actor(topic_partition).snapshot().log_start_offset
        share = self._open.get(key) or await self._opened(key, topic_partition, config)
        share.state.config = config
        share.state.move_start(log_start_offset)
        return share

    async def _opened(self, key: ShareKey, topic_partition: TopicPartition, config: ShareConfig) -> SharePartition:
        stored = self._log.find(key)
        if stored is None:
            raise NeverBegunError(
                f"{key} was never initialized. The group's coordinator does that when a member subscribes to the topic"
            )
        start_offset = stored.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = await self._first_offset(topic_partition, config)
        found = self._open.get(key)
        if found is not None:
            return found
        if self._log.find(key) is not stored:
            return await self._opened(key, topic_partition, config)
        state = SharePartitionState.restored(start_offset, stored.batches, config, self.counters)
        share = SharePartition(
            key, topic_partition, state, stored.state_epoch, log=self._log, alarm=self._alarm, wall_ms=self._wall_ms
        )
        self._open[key] = share
        self._open_groups[key.group_id] += 1
        self._bury(share)
        return share

    async def _first_offset(self, topic_partition: TopicPartition, config: ShareConfig) -> int:
        """Return the offset where a new group begins: share.auto.offset.reset."""
        snapshot = self._topics.actor(topic_partition).snapshot()
        if config.offset_reset is OffsetReset.EARLIEST:
            return snapshot.log_start_offset
        if config.offset_reset is OffsetReset.BY_DURATION:
            timestamp = max(0, min(self._wall_ms() - config.offset_reset_duration_ms, INT64_MAX))
            found = await self._offset_for_time(topic_partition, timestamp)
            if found.offset >= 0:
                return found.offset
        return self._topics.actor(topic_partition).snapshot().high_watermark

    def is_absent(self, key: ShareKey) -> bool:
        """Return whether the group has certainly never begun to read the partition."""
        try:
            return self._log.find(key) is None
        except RequestError:
            return False

    def find(self, key: ShareKey) -> SharePartition | None:
        """Return the share-partition if a member of its group reads; else None."""
        return self._open.get(key)

    # ---- members ---------------------------------------------------------------------------------------------------------

    async def acknowledge(self, key: ShareKey, member: str, said: Sequence[Acknowledgement]) -> None:
        """See SharePartition.acknowledge. Raises RequestError, as UNKNOWN_TOPIC_OR_PARTITION where no member has anything."""
        share = self._open.get(key)
        if share is None:
            raise RequestError(f"{key}: none of its records is acquired", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        share.state.config = self.config_of(key.group_id)
        try:
            await share.acknowledge(member, said)
        finally:
            self._bury(share)

    def sessions_at(self, node: int) -> ShareSessions:
        """Return the share sessions of a node."""
        found = self._sessions.get(node)
        if found is None:
            account = self.memory.account("share sessions", self.max_sessions * (len(self._sessions) + 1))
            found = self._sessions[node] = ShareSessions(account, self.max_sessions)
        return found

    async def release_member(self, group_id: str, member: str, node: int) -> None:
        """Release the records that a member has at a node: it has ended its session there."""
        sessions = self.sessions_at(node)
        session = sessions.remove(group_id, member)
        if session is not None:
            if group_id not in self._open_groups:
                sessions.forget_group(group_id, session.connection)
            await self._release(session)

    async def _release(self, session: ShareSession) -> None:
        held = [key for key in session.partitions if key not in session.moved]
        for share in [share for key in held if (share := self._open.get(key)) is not None]:
            with self._log.errors.isolate("share-release", share.key):
                try:
                    await share.release(session.member_id)
                    self._bury(share)
                except RequestError as exc:
                    waits = "%s: records of member %s wait until its locks end: %s"
                    LOGGER.warning(waits, share.key, session.member_id, exc)

    def disconnected(self, connection: object) -> None:
        """End the sessions that were begun on a connection. Of a group that has no other, only the stored state is kept (Kafka:
        ShareGroupListener.onGroupEmpty)."""
        for sessions in self._sessions.values():
            ended, groups = sessions.disconnected(connection)
            if groups:
                self._ending.update(groups)
                self._soon(self._end, ended, groups)

    async def _end(self, ended: Iterable[ShareSession], groups: Collection[str]) -> None:
        for session in ended:
            await self._release(session)
        self._ending.subtract(groups)
        for group_id in groups:
            if not self._ending[group_id] and not any(each.has_group(group_id) for each in self._sessions.values()):
                del self._ending[group_id]
                for key in [key for key in self._open if key.group_id == group_id]:
                    self._close(key)

    def _soon(self, procedure: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        if self._background is not None and not self._scope.cancel_called:
            self._background.start_soon(procedure, *arguments)

    # ---- administration --------------------------------------------------------------------------------------------------

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, start_offset: int = NO_START_OFFSET, state_epoch: int = 0
    ) -> None:
        """Let a group begin in a partition, at an offset or where its configuration says; or let it begin there again, without
        what was acquired. Raises RequestError: FENCED_STATE_EPOCH when it is at a later state epoch."""
        key = ShareKey(group_id, topic_id, partition)
        await self._log.initialize(key, start_offset=start_offset, state_epoch=state_epoch)
        self._close(key)
        self.begun.wake_all()

    async def initialize_all(
        self,
        group_id: str,
        partitions: Iterable[tuple[bytes, int]],
        start_offset: int = NO_START_OFFSET,
        state_epoch: int = 0,
    ) -> dict[tuple[bytes, int], RequestError]:
        """`initialize` for many. Returns those that failed."""
        keys = [ShareKey(group_id, *each) for each in partitions]
        failed = await self._log.initialize_all(keys, start_offset=start_offset, state_epoch=state_epoch)
        for key in keys:
            if key not in failed:
                self._close(key)
        self.begun.wake_all()
        return {(key.topic_id, key.partition): error for key, error in failed.items()}

    async def forget_topic(self, topic_id: bytes) -> None:
        """Forget the states of a deleted topic. A state that cannot be deleted now is within PRUNE_S."""
        keys = [key for key in self._log.known() if key.topic_id == topic_id]
        for key in keys:
            self._close(key)
        failed = await self._log.delete_all(keys)
        for key, error in failed.items():
            LOGGER.warning("%s: its topic is deleted, but not its state: %s", key, error)

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> None:
        """Forget the state of a group in a partition. Raises RequestError."""
        key = ShareKey(group_id, topic_id, partition)
        await self._log.delete(key)
        self._close(key)

    def _close(self, key: ShareKey) -> None:
        share = self._open.pop(key, None)
        if share is not None:
            self._open_groups[key.group_id] -= 1
            if not self._open_groups[key.group_id]:
                del self._open_groups[key.group_id]
            share.end()

    def move(self, topic_partition: TopicPartition) -> None:
        """Another node leads the partition now: it begins with the stored state, and no member has records of it."""
        topic, number = topic_partition
        for key in [key for key, share in self._open.items() if share.topic_partition == (topic, number)]:
            self._close(key)
            for sessions in self._sessions.values():
                for session in sessions:
                    if key in session.partitions:
                        session.moved.add(key)

    def read_summary(self, group_id: str, topic_id: bytes, partition: int) -> ShareStateSummary | None:
        """Return the stored state in short; None: there is none. Raises RequestError when it cannot be read."""
        stored = self._log.find(ShareKey(group_id, topic_id, partition))
        if stored is None:
            return None
        return ShareStateSummary(stored.state_epoch, stored.start_offset, stored.leader_epoch, stored.delivery_complete_count)

    def in_flight(self, group_id: str, topic_id: bytes, partition: int) -> ShareInFlight | None:
        """Return what is in flight; None: no member of its group reads."""
        share = self._open.get(ShareKey(group_id, topic_id, partition))
        if share is None:
            return None
        state = share.state
        return ShareInFlight(state.start_offset, state.next_offset, state.acquired_count, state.delivery_complete_count)

    def stored(self, key: ShareKey) -> StoredShare | None:
        """Return the stored state; None: there is none. Raises RequestError when it cannot be read."""
        return self._log.find(key)

    async def statistics(self) -> ShareStatistics:
        """Return the counters, and the records that members have now. Takes turns."""
        in_flight = Counter[str]()
        for number, (key, share) in enumerate(list(self._open.items()), 1):
            if not number % SHARES_PER_TURN:
                await trio.lowlevel.checkpoint()
            in_flight[key.group_id] += share.state.acquired_count
        return ShareStatistics(attrs.evolve(self.counters), dict(in_flight))

    def stored_of(self, group_id: str) -> Iterator[tuple[bytes, int]]:
        """Yield (topic id, partition) of every stored state of a group."""
        return ((key.topic_id, key.partition) for key in self._log.known() if key.group_id == group_id)
