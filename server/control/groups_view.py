"""`broker.groups`: what groups have committed and how far behind they are, who their members are, and what upsets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from ...protocol.types import TopicPartition
from ..broker import Broker
from .fault_views import FaultsView, FaultView
from .waiting import PATIENCE_S

LOOK_S: Final = 0.005
MEMBER_APIS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat")


@attrs.frozen(eq=False)
class GroupsView:
    """Raises RequestError where the broker would answer one."""

    core: Callable[[], Broker]
    faults: FaultsView

    async def committed(self, group: str, topic: str | None = None) -> dict[TopicPartition, int]:
        """The committed offset of each partition that has one."""
        offsets = await self.core().fetch_offsets(group)
        return {each: offset for each, offset, _ in offsets if offset >= 0 and topic in (None, each.topic)}

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group, as an administrator does while it has no members."""
        answers = await self.core().commit_offsets(group, [(each, offset, None) for each, offset in offsets.items()])
        for error in answers:
            if error is not None:
                raise error

    async def lag(self, group: str, topic: str | None = None) -> int:
        """Records between the committed offsets and the ends of their partitions, all together."""
        committed = await self.committed(group, topic)
        return sum(max(0, self.core().snapshot(each).high_watermark - offset) for each, offset in committed.items())

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
                    number: self.core().snapshot(TopicPartition(topic, number)).high_watermark
                    - committed.get(TopicPartition(topic, number), 0)
                    for number in range(len(self.core().topic_metadata(topic).leader_epochs))
                }
                if not any(behind.values()):
                    return
                await trio.sleep(LOOK_S)
        raise TimeoutError(f"group {group} is behind in {topic} by {behind} (partition: records) after {timeout_s:g} s")

    def freeze(self, group: str) -> FaultView:
        """Let nothing that members of a group say be answered until the rule is released or removed: nobody joins, syncs,
        leaves, or gets an answer to a heartbeat."""
        return self.faults.add(MEMBER_APIS, group=group, hold=True)
