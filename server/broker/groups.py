"""Groups: their members and their offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...protocol.errors import (
    ErrorCode,
    RequestError,
)
from ...protocol.types import TopicPartition
from ..actors.coordinators import Coordinators
from ..actors.groups import Commit, GroupOffset
from ..groups.consumer_values import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from ..groups.values import (
    NO_MEMBER,
    CommittingMember,
    GroupDescription,
    GroupListing,
    Heartbeat,
    Join,
    JoinAnswer,
    LeaveAnswer,
    LeavingMember,
    Sync,
    SyncAnswer,
)
from .transactions import TransactionCalls


class GroupCalls(TransactionCalls):
    """See `actors.group_coordinator` and `actors.groups` for what happens."""

    __slots__ = ()
    _coordinators: Coordinators

    async def commit_offsets(
        self,
        group: str,
        offsets: Sequence[Commit | tuple[TopicPartition, int, str | None]],
        *,
        transaction: tuple[str, int, int] | None = None,
        member: CommittingMember = NO_MEMBER,
    ) -> list[RequestError | None]:
        """Keep the offsets (of the record to be read next, with a note) of a group; one answer for each, in order.

        `transaction`, (transactional id, producer id, epoch): they count when it commits, and never if it aborts. `member`: who
        commits; who does without membership can do so for groups without members, or in a transaction. Raises RequestError
        when none of them could be kept.
        """
        groups, commits = self._coordinators.group_coordinator, [Commit(*each) for each in offsets]
        if transaction is None:
            return await groups.commit(group, commits, member)
        transactional_id, producer_id, producer_epoch = transaction
        await self.add_offsets_to_transaction(transactional_id, producer_id, producer_epoch, group)
        return await groups.commit(group, commits, member, producer_id=producer_id, producer_epoch=producer_epoch)

    async def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> list[tuple[TopicPartition, int, str]]:
        """(partition, committed offset, note) for these partitions, -1 where there is none; None: all that the group has.

        With `require_stable`, an offset that an open transaction may still change raises UNSTABLE_OFFSET_COMMIT. Raises
        RequestError.
        """
        return self._coordinators.groups.fetch(group, partitions, require_stable=require_stable)

    def committed_offsets(self, group: str, partitions: Sequence[TopicPartition] | None = None) -> list[GroupOffset]:
        """What a group has committed for these partitions, in order, and what may still change; None: all. Raises
        RequestError."""
        return self._coordinators.groups.committed(group, partitions)

    async def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[RequestError | None]:
        """Forget offsets of a group; one answer for each, in order. Those of topics that its members read stay
        (GROUP_SUBSCRIBED_TO_TOPIC). Raises RequestError for all of them."""
        return await self._coordinators.group_coordinator.delete_offsets(group, partitions)

    async def join_group(self, request: Join) -> JoinAnswer:
        """Be in the next generation of a group. Waits for the other members; errors are in the answer. Cancelled: the member is
        one all the same, until its session timeout."""
        return await self._coordinators.group_coordinator.join(request)

    async def sync_group(self, request: Sync) -> SyncAnswer:
        """Get a member's assignment. Waits for the leader's, and for it to be stored; errors are in the answer."""
        return await self._coordinators.group_coordinator.sync(request)

    def group_heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Say that a member is alive. REBALANCE_IN_PROGRESS: it has to join again."""
        return self._coordinators.group_coordinator.heartbeat(request)

    async def consumer_group_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Join a group whose assignments the server makes, stay in it, or leave it (KIP-848). Raises RequestError. Cancelled:
        what it has led to is stored all the same."""
        return await self._coordinators.group_coordinator.consumer_heartbeat(request)

    def describe_consumer_group(self, group: str) -> ConsumerGroupDescription:
        """Epochs, members, what they have and are to have. Raises RequestError: GROUP_ID_NOT_FOUND if the server does not make
        the assignments of this group."""
        return self._coordinators.group_coordinator.consumers.describe(group)

    def check_offset_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Whether a member of a group whose assignments the server makes may read its offsets; who is none may. Raises
        RequestError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        self._coordinators.group_coordinator.consumers.check_fetch(group, member_id, member_epoch)

    def leave_group(self, group: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        """Remove members from a group; each has an answer of its own, in order."""
        return self._coordinators.group_coordinator.leave(group, members)

    def describe_group(self, group: str) -> GroupDescription:
        """State, protocol and members; a group that nobody knows is Dead. Raises RequestError."""
        return self._coordinators.group_coordinator.describe(group)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Every group, by name, or those in one of the states and of one of the types, whatever their case."""
        return self._coordinators.group_coordinator.listings(states, types)

    async def delete_group(self, group: str) -> None:
        """Forget a group and its offsets. Raises RequestError: there is none, it has members, or it is committing."""
        await self._coordinators.group_coordinator.delete(group)
