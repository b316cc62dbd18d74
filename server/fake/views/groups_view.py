"""`broker.groups`: committed offsets, lag, members and disturbances of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.coordinator.classic_group_records import CONSUMER_PROTOCOL_TYPE
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...broker import Broker, ConsumerHeartbeat, LeavingMember, ShareHeartbeat, StreamsHeartbeat
from ...groups.assigned.values import LEAVE_EPOCH
from ...groups.values import GroupState
from ...listeners.native.group_calls import group_of
from ..faults.rules import Intercepted, hint
from .fault_views import PATIENCE_S, FaultsView, FaultView, look_until
from .log_view import check_group, check_topic, count_records, unknown_group

MEMBER_APIS: Final = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
)


HEARTBEATS: Final = {"consumer": ConsumerHeartbeat, "share": ShareHeartbeat, "streams": StreamsHeartbeat}


class MemberView(NamedTuple):
    """A member of a group, and the partitions that are its to read."""

    member_id: str
    client_id: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]


async def uncommitted(core: Broker, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Return, by partition, the number of committed records after the group's committed offset. Raises RequestError."""
    committed = {each: offset for each, offset, _ in await core.offsets.fetch(group)}
    found = {}
    for topic in topics:
        check_topic(core, topic)
        for number in range(core.topics.partition_count(topic)):
            place = TopicPartition(topic, number)
            found[place] = await count_records(core, place, committed.get(place, 0))
    return found


REJOINING: Final = {
    "ConsumerGroupHeartbeat": ErrorCode.FENCED_MEMBER_EPOCH,
    "Heartbeat": ErrorCode.REBALANCE_IN_PROGRESS,
    "ShareGroupHeartbeat": ErrorCode.FENCED_MEMBER_EPOCH,
    "StreamsGroupHeartbeat": ErrorCode.FENCED_MEMBER_EPOCH,
}
"""The error that makes a member join again, by the API of its heartbeats."""


def let_rejoin(request: Intercepted) -> Any:
    """Answer a heartbeat with the error of its protocol."""
    answer = request.empty_answer()
    answer.error_code = REJOINING[request.api]
    return answer


@attrs.frozen(eq=False, repr=False)
class GroupsView:
    """Raises RequestError where the broker would answer one."""

    core: Callable[[], Broker]
    faults: FaultsView

    def __repr__(self) -> str:
        return "GroupsView()"

    def is_known(self, group: str) -> bool:
        """Return whether a group has members or offsets, or had."""
        return unknown_group(self.core(), group) is None

    async def committed(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """The committed offset of each partition that has one."""
        if topic is not None:
            check_topic(self.core(), topic)
        offsets = await self.core().offsets.fetch(group)
        return {each: offset for each, offset, _ in offsets if offset >= 0 and topic in (None, each.topic)}

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group, as an administrator does while it has no members."""
        answers = await self.core().offsets.commit(group, [(each, offset, None) for each, offset in offsets.items()])
        for error in answers:
            if error is not None:
                raise error

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Count the committed records that a group has not read, as far as its offsets say: of all partitions of `topic`, or of
        each topic of which it has offsets, or its members have partitions. Markers, aborted records and offsets without a
        record do not count. Raises UnknownTopicOrPartitionError; GROUP_ID_NOT_FOUND, unless `topic` has nothing to read."""
        core = self.core()
        if topic is None:
            check_group(core, group)
            places = [*await self.committed(group), *(each for member in self.members(group) for each in member.partitions)]
            topics = {each.topic for each in places} & set(core.topics.names())
        else:
            topics = {topic}
        count = sum((await uncommitted(core, group, topics)).values())
        if count:
            check_group(core, group)
        return count

    async def wait_committed(
        self, group: str, topic: str, offset: int, *, partition: int = 0, timeout_s: float = PATIENCE_S
    ) -> int:
        """Wait until a group has committed at least `offset`, and return its commit. Raises TimeoutError."""
        wanted = TopicPartition(topic, partition)
        found = -1

        async def look() -> int | None:
            nonlocal found
            found = (await self.committed(group)).get(wanted, -1)
            return found if found >= offset else None

        def missing() -> str:
            return f"{self._unknown(group, topic)}group {group} has committed {found} of {offset} for {wanted}"

        return await look_until(look, timeout_s, missing)

    async def wait_no_lag(self, group: str, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a group has no committed record left to read in any partition of a topic, see `lag`. Raises TimeoutError,
        UnknownTopicOrPartitionError."""
        behind: dict[int, int] = {}

        async def look() -> bool | None:
            nonlocal behind
            found = await uncommitted(self.core(), group, [topic])
            behind = {each.partition: count for each, count in found.items()}
            return None if any(behind.values()) else True

        def missing() -> str:
            return f"{self._unknown(group)}group {group} lags in {topic} by {behind} (partition: records)"

        await look_until(look, timeout_s, missing)

    def _unknown(self, group: str, topic: str | None = None) -> str:
        """Return the start of an error message about a topic or a group that may be misspelt."""
        core = self.core()
        names = list(core.topics.names())
        topics = "" if topic is None or topic in names else f"there is no topic {topic!r}{hint(topic, names)}. "
        error = unknown_group(core, group)
        return topics if error is None else f"{topics}{error}; "

    # ---- members ---------------------------------------------------------------------------------------------------------

    def state(self, group: str) -> str:
        """Kafka's name of the state: Stable, PreparingRebalance, Reconciling, Empty, Dead ..."""
        return group_of(self.core(), group).state

    def members(self, group: str) -> list[MemberView]:
        """The members of a group of any kind, with the partitions that they have."""
        return [
            MemberView(
                each.member_id,
                each.client_id,
                each.group_instance_id,
                tuple(place.topic_partition for place in each.assignment),
            )
            for each in group_of(self.core(), group).members
        ]

    async def wait_assigned(self, group: str, members: int = 1, *, timeout_s: float = PATIENCE_S) -> list[MemberView]:
        """Wait until a group is stable, has so many members, and these have all partitions of at least one topic among them;
        answers them. Members of another protocol than that of consumers need no partitions. Raises TimeoutError."""

        async def look() -> list[MemberView] | None:
            found = self.members(group)
            is_stable = self.state(group) == GroupState.STABLE.value and len(found) == members
            return found if is_stable and not self._unassigned(group, found) else None

        def missing() -> str:
            found = self.members(group)
            unassigned = f"; {self._unassigned(group, found)}" if found else ""
            said = f"group {group} is {self.state(group)} with {len(found)} of {members} members"
            return f"{self._unknown(group)}{said}{unassigned}"

        return await look_until(look, timeout_s, missing)

    def _unassigned(self, group: str, members: Sequence[MemberView]) -> str:
        """Return an error message about partitions that no member has; empty when every partition is assigned. An incremental
        rebalance (KIP-429) is stable while partitions change hands."""
        core = self.core()
        if core.groups.describe(group).protocol_type not in ("", CONSUMER_PROTOCOL_TYPE) or not members:
            return ""
        places = {each for member in members for each in member.partitions}
        if not places:
            return "no member has a partition: the topics that they subscribe to may not exist"
        topics = {each.topic for each in places} & set(core.topics.names())
        all_places = {TopicPartition(name, number) for name in topics for number in range(core.topics.partition_count(name))}
        missing = ", ".join(map(str, sorted(all_places - places)))
        return f"no member has {missing}" if missing else ""

    async def kick(self, group: str, member_id: str) -> None:
        """Remove a member from a group, as if it had left. The others share its partitions. Raises RequestError."""
        assigned = self.core().groups.assigned_of(group)
        if assigned is not None:
            await assigned.heartbeat(HEARTBEATS[assigned.KIND](group_id=group, member_id=member_id, member_epoch=LEAVE_EPOCH))
            return
        answer = await self.core().groups.leave(group, [LeavingMember(member_id)])
        for code in (answer.error, *(each.error for each in answer.members)):
            if code:
                raise RequestError(f"member {member_id} of group {group} cannot be removed: {code.name}", code)

    def rebalance(self, group: str) -> FaultView:
        """Let all members of a group join again: heartbeats of each, of whichever protocol, get an error until it does."""
        members = [each.member_id for each in self.members(group)]
        return self.faults.add([*REJOINING, "JoinGroup"], group=group, intercept=let_rejoin, rejoining=members)

    def freeze(self, group: str) -> FaultView:
        """Let nothing that members of a group say be answered until the rule is released or removed: nobody joins, syncs,
        leaves, or gets an answer to a heartbeat."""
        return self.faults.add(MEMBER_APIS, group=group, hold=True)
