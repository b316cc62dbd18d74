"""Share groups, driven by hand: a log of what was decided, share states that are there as soon as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
from triolog.protocol.coordinator.share_group_records import SHARE_GROUP_RECORDS
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.groups.assigned.values import HeartbeatAnswer, Partitions
from triolog.server.groups.share.groups import ShareGroup, ShareGroups, ShareHeartbeat
from triolog.server.groups.share.states import ShareStateSummary

from tests.support.consumer_groups import DrivenGroups

GROUP: Final = "group"


@attrs.define(eq=False)
class DrivenShareGroups(DrivenGroups):
    RECORDS = SHARE_GROUP_RECORDS

    def new_groups(self) -> ShareGroups:
        return ShareGroups(self.settings, self.topics)

    @property
    def group(self) -> ShareGroup:
        found: ShareGroup = self.groups.known(GROUP)
        return found

    def heartbeat(self, member_id: str, epoch: int, names: Iterable[str] | None = None, **more: Any) -> HeartbeatAnswer:
        request = ShareHeartbeat(
            group_id=more.pop("group_id", GROUP),
            member_id=member_id,
            member_epoch=epoch,
            topic_names=None if names is None else tuple(names),
            **more,
        )
        answer: HeartbeatAnswer = self.answer(request)
        return answer

    def make_states(self) -> Partitions:
        """Those that were asked for are there."""
        waiting: Partitions = self.groups.waiting_states(GROUP)
        if waiting:
            self.commit(self.groups.states_done(GROUP, waiting, self.now_ms))
        return waiting

    def join(self, member_id: str, *names: str) -> HeartbeatAnswer:
        """Join, wait for states, and hear what there is to read."""
        answer = self.heartbeat(member_id, 0, names)
        self.make_states()
        again = self.heartbeat(member_id, answer.member_epoch)
        return attrs.evolve(again, assignment=answer.assignment if again.assignment is None else again.assignment)


@attrs.define(eq=False)
class KeptShareStates:
    """Share states in memory."""

    states: dict[tuple[str, bytes, int], ShareStateSummary] = attrs.field(factory=dict)
    failing: bool = False
    """Nothing can be stored."""

    async def initialize(self, group: str, topic_id: bytes, partition: int, start_offset: int, state_epoch: int) -> None:
        self._check()
        self.states[group, topic_id, partition] = ShareStateSummary(state_epoch, start_offset, 0, 0)

    async def initialize_all(
        self, group: str, partitions: Iterable[tuple[bytes, int]], start_offset: int, state_epoch: int
    ) -> dict[tuple[bytes, int], RequestError]:
        failed: dict[tuple[bytes, int], RequestError] = {}
        for topic_id, number in partitions:
            try:
                await self.initialize(group, topic_id, number, start_offset, state_epoch)
            except RequestError as exc:
                failed[topic_id, number] = exc
        return failed

    def read_summary(self, group: str, topic_id: bytes, partition: int) -> ShareStateSummary:
        self._check()
        return self.states[group, topic_id, partition]

    async def delete(self, group: str, topic_id: bytes, partition: int) -> None:
        self._check()
        self.states.pop((group, topic_id, partition), None)

    def _check(self) -> None:
        if self.failing:
            raise RequestError("share states cannot be stored", ErrorCode.KAFKA_STORAGE_ERROR)
