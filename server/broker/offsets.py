"""The offsets that groups commit, by themselves or in a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ...protocol.errors import RequestError
from ...protocol.types import TopicPartition
from ..actors.coordinators.commit_batch import AnswerCommit, Commit
from ..actors.coordinators.committed_offsets import CommittedOffsets, GroupOffset
from ..actors.coordinators.offsets_topic import check_group
from ..actors.coordinators.transaction_coordinator import TransactionCoordinator
from ..groups.coordinators.group_coordinator import GroupCoordinator
from ..groups.values import NO_MEMBER, CommittingMember


@attrs.frozen(eq=False, repr=False)
class OffsetCommits:
    """What groups have committed. Who its members are is the `GroupCoordinator`'s."""

    _committed: CommittedOffsets
    _coordinator: GroupCoordinator
    _transactions: TransactionCoordinator

    async def commit(
        self,
        group: str,
        offsets: Sequence[Commit | tuple[TopicPartition, int, str | None]],
        *,
        transaction: tuple[str, int, int] | None = None,
        member: CommittingMember = NO_MEMBER,
    ) -> list[RequestError | None]:
        """Keep the offsets (of the record to be read next, with a note) of a group; one answer for each, in order.

        `transaction`, (transactional id, producer id, epoch): they count when it commits, and never if it aborts. `member`: who
        commits; without membership one can commit for groups without members, or in a transaction. Raises RequestError when
        none of them could be kept.
        """
        commits = [Commit(*each) for each in offsets]
        if transaction is None:
            return await self._coordinator.commit(group, commits, member)
        transactional_id, producer_id, producer_epoch = transaction
        await self.join_transaction(transactional_id, producer_id, producer_epoch, group)
        return await self._coordinator.commit(group, commits, member, producer_id=producer_id, producer_epoch=producer_epoch)

    def commit_now(self, group: str, commits: Sequence[Commit], member: CommittingMember, answer: AnswerCommit) -> bool:
        """`commit` outside of a transaction, on the spot: what that answers or raises is given to `answer`, now or when it is
        stored. False, and nothing has happened: await `commit`. Raises RequestError."""
        return self._coordinator.commit_now(group, commits, member, answer)

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> list[tuple[TopicPartition, int, str]]:
        """(partition, committed offset, note) for these partitions, -1 where there is none; None: all that the group has.

        With `require_stable`, an offset that an open transaction may still change raises UNSTABLE_OFFSET_COMMIT. Raises
        RequestError.
        """
        return self._committed.fetch(group, partitions, require_stable=require_stable)

    def committed(self, group: str, partitions: Sequence[TopicPartition] | None = None) -> list[GroupOffset]:
        """What a group has committed for these partitions, in order, and what may still change; None: all. Raises
        RequestError."""
        return self._committed.committed(group, partitions)

    def committed_partitions(self, group: str) -> list[TopicPartition]:
        """All partitions for which the group has committed something, in order. Raises RequestError."""
        return self._committed.committed_partitions(group)

    async def delete(self, group: str, partitions: Sequence[TopicPartition]) -> list[RequestError | None]:
        """Forget offsets of a group; one answer for each, in order. Those of topics that its members read stay
        (GROUP_SUBSCRIBED_TO_TOPIC). Raises RequestError for all of them."""
        return await self._coordinator.delete_offsets(group, partitions)

    # ---- in a transaction ------------------------------------------------------------------------------------------------

    async def join_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        """Let the offsets of a group join the producer's transaction; `commit` does it by itself. Raises RequestError."""
        check_group(group)
        await self._committed.topic.ensure()
        partition = self._committed.topic.partition_of(group)
        await self._transactions.add_partitions(transactional_id, producer_id, producer_epoch, [partition])

    def check_in_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        """Raises RequestError unless the offsets of a group have joined the producer's open transaction."""
        partition = self._committed.topic.partition_of(group)
        self._transactions.check_joined(transactional_id, producer_id, producer_epoch, [partition])
