"""`broker.groups`: what groups have committed and how far behind they are, who their members are, and what upsets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import attrs
import trio

from ....protocol.coordinator.consumer_protocol import decode_assignment
from ....protocol.errors import ErrorCode, RequestError, TriologError
from ....protocol.types import TopicPartition
from ...broker import Broker, ConsumerGroupDescription, ConsumerHeartbeat, LeavingMember, ShareHeartbeat
from ...groups.consumer_values import LEAVE_EPOCH
from ...groups.values import GroupState
from ..waiting import PATIENCE_S
from .fault_views import FaultsView, FaultView

LOOK_S: Final = 0.005
MEMBER_APIS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat")


class MemberView(NamedTuple):
    """A member of a group, and the partitions that are its to read."""

    member_id: str
    client_id: str
    group_instance_id: str | None
    partitions: tuple[TopicPartition, ...]


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What an assignment of consumers holds; nothing, when it is not one."""
    try:
        decoded = decode_assignment(assignment)
    except TriologError:
        return ()
    return tuple(TopicPartition(each.topic, number) for each in decoded.assigned_partitions for number in each.partitions)


@attrs.frozen(eq=False)
class GroupsView:
    """Raises RequestError where the broker would answer one."""

    core: Callable[[], Broker]
    faults: FaultsView

    async def committed(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """The committed offset of each partition that has one."""
        offsets = await self.core().offsets.fetch(group)
        return {each: offset for each, offset, _ in offsets if offset >= 0 and topic in (None, each.topic)}

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group, as an administrator does while it has no members."""
        answers = await self.core().offsets.commit(group, [(each, offset, None) for each, offset in offsets.items()])
        for error in answers:
            if error is not None:
                raise error

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Records between the committed offsets and the ends of their partitions, all together."""
        committed = await self.committed(group, topic)
        return sum(max(0, self.core().reader.snapshot(each).high_watermark - offset) for each, offset in committed.items())

    async def wait_committed(
        self, group: str, topic: str, offset: int, *, partition: int = 0, timeout_s: float = PATIENCE_S
    ) -> int:
        """Wait until a group has committed at least `offset`; answers what it has. Raises TimeoutError."""
        wanted = TopicPartition(topic, partition)
        found = -1
        with trio.move_on_after(timeout_s):
            while True:
                found = (await self.committed(group)).get(wanted, -1)
                if found >= offset:
                    return found
                await trio.sleep(LOOK_S)
        raise TimeoutError(f"group {group} has committed {found} of {offset} for {wanted} within {timeout_s:g} s")

    async def wait_no_lag(self, group: str, topic: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a group has committed everything that is there, of every partition that has records."""
        behind: dict[int, int] = {}
        with trio.move_on_after(timeout_s):
            while True:
                committed = await self.committed(group, topic)
                behind = {
                    number: self.core().reader.snapshot(TopicPartition(topic, number)).high_watermark
                    - committed.get(TopicPartition(topic, number), 0)
                    for number in range(self.core().topics.partition_count(topic))
                }
                if not any(behind.values()):
                    return
                await trio.sleep(LOOK_S)
        raise TimeoutError(f"group {group} is behind in {topic} by {behind} (partition: records) after {timeout_s:g} s")

    # ---- members ---------------------------------------------------------------------------------------------------------

    def _consumer_group(self, group: str) -> ConsumerGroupDescription | None:
        """A group whose assignments the server makes (KIP-848); None for a classic one, and for one that nobody knows."""
        try:
            return self.core().groups.consumers.describe(group)
        except RequestError as exc:
            if exc.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None

    def state(self, group: str) -> str:
        """Kafka's name of the state: Stable, PreparingRebalance, Reconciling, Empty, Dead ..."""
        if group in self.core().groups.share:
            return self.core().groups.share.describe(group).state.value
        described = self._consumer_group(group) or self.core().groups.describe(group)
        return str(described.state.value)

    def members(self, group: str) -> list[MemberView]:
        """The members of a group of any kind, with the partitions that they have."""
        if group in self.core().groups.share:
            shared = self.core().groups.share.describe(group)
            return [MemberView(each.member_id, each.client_id, None, self._named(each.assignment)) for each in shared.members]
        described = self._consumer_group(group)
        if described is not None:
            return [
                MemberView(each.member_id, each.client_id, each.instance_id, self._named(each.assignment))
                for each in described.members
            ]
        return [
            MemberView(each.member_id, each.client_id, each.group_instance_id, assigned_partitions(each.assignment))
            for each in self.core().groups.describe(group).members
        ]

    def _named(self, partitions: Iterable[tuple[bytes, int]]) -> tuple[TopicPartition, ...]:
        """By topic name; partitions of topics that have been deleted are left out."""
        names = {self.core().topics.id_of(name): name for name in self.core().topics.names()}
        return tuple(sorted(TopicPartition(names[each], number) for each, number in partitions if each in names))

    async def wait_assigned(self, group: str, members: int = 1, *, timeout_s: float = PATIENCE_S) -> list[MemberView]:
        """Wait until a group is stable, has so many members, and each has its partitions; answers them. Raises
        TimeoutError."""
        with trio.move_on_after(timeout_s):
            while True:
                found = self.members(group)
                if self.state(group) == GroupState.STABLE.value and len(found) == members:
                    return found
                await trio.sleep(LOOK_S)
        raise TimeoutError(
            f"group {group} is {self.state(group)} with {len(self.members(group))} of {members} members after {timeout_s:g} s"
        )

    async def kick(self, group: str, member_id: str) -> None:
        """Remove a member from a group, as if it had left; the others share what it had. Raises RequestError."""
        if self._consumer_group(group) is not None:
            leaving = ConsumerHeartbeat(group_id=group, member_id=member_id, member_epoch=LEAVE_EPOCH)
            await self.core().groups.consumer_heartbeat(leaving)
            return
        if group in self.core().groups.share:
            gone = ShareHeartbeat(group_id=group, member_id=member_id, member_epoch=LEAVE_EPOCH)
            await self.core().groups.share.heartbeat(gone)
            return
        answer = self.core().groups.leave(group, [LeavingMember(member_id)])
        for code in (answer.error, *(each.error for each in answer.members)):
            if code:
                raise RequestError(f"member {member_id} of group {group} cannot be removed: {code.name}", code)

    def rebalance(self, group: str) -> FaultView:
        """Let all members of a group join again: each is told so with its next heartbeat, and once."""
        count = max(1, len(self.members(group)))
        api, error = "Heartbeat", "REBALANCE_IN_PROGRESS"
        if self._consumer_group(group) is not None:
            api, error = "ConsumerGroupHeartbeat", "FENCED_MEMBER_EPOCH"
        elif group in self.core().groups.share:
            api, error = "ShareGroupHeartbeat", "FENCED_MEMBER_EPOCH"
        return self.faults.add(api, group=group, error=error, times=count, once_per_member=True)

    def freeze(self, group: str) -> FaultView:
        """Let nothing that members of a group say be answered until the rule is released or removed: nobody joins, syncs,
        leaves, or gets an answer to a heartbeat."""
        return self.faults.add(MEMBER_APIS, group=group, hold=True)
