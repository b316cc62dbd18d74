"""How a world begins and ends for its groups. At the end nothing goes wrong any more, all members live, and in time they have
read everything."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

import attrs
import trio
from triolog.protocol.kafka.messages.groups import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from ..clients.drivers import Driver
from ..clients.inhabitant import Inhabitant, KafkaConnection, Surroundings
from ..clients.members import NOBODY, GroupMember, committed_offset, everything
from ..clients.mixers import Mixer
from ..clients.share_members import ShareMember
from ..script import Step
from ..server import Server
from .events import CLASSIC, SHARERS, Settled, ShareGroupIs, StandsAt
from .lives import SHARED

LIMIT_S: Final = 120.0
LOOK_S: Final = 1.0
IDLE_TURNS: Final = 3
"""In which a member of a share group gets nothing: then there is nothing for it."""
LOCK_MS: Final = 6000
"""Longer than a member waits for an answer, so that it is told of no lock that is over."""


async def configure(world: Surroundings, broker: Broker, seed: str) -> None:
    """Say how the share group behaves."""
    rng = random.Random(f"{seed}/share group")
    is_committed, limit = rng.random() < 0.5, rng.choice((2, 4))
    config = {
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": "read_committed" if is_committed else "read_uncommitted",
        "share.record.lock.duration.ms": str(LOCK_MS),
        "share.delivery.count.limit": str(limit),
        "share.partition.max.record.locks": rng.choice(("20", "2000")),
    }
    await broker.group_configs.change(SHARERS, lambda _: config)
    world.add(
        ShareGroupIs(
            **_now(world), group=SHARERS, topics=(SHARED,), is_committed=is_committed, lock_ms=LOCK_MS, delivery_limit=limit
        )
    )


async def settle(world: Surroundings, server: Server, inhabitants: Iterable[Inhabitant]) -> None:
    """Let all groups read to the end, one after the other."""
    by_group: dict[str, list[GroupMember | ShareMember]] = {}
    for each in inhabitants:
        if isinstance(each, GroupMember | ShareMember):
            by_group.setdefault(each.group, []).append(each)
    for group, members in by_group.items():
        settling = (_ShareSettling if group == SHARERS else _ConsumerSettling)(world, server, group, members)
        await settling.run()


async def look_at_offsets(world: Surroundings, inhabitants: Iterable[Inhabitant]) -> None:
    """What the groups have committed goes into the history once more, and which version of an application."""
    kafka = KafkaConnection(world)
    for group in dict.fromkeys(each.group for each in inhabitants if isinstance(each, GroupMember)):
        for where in everything(world.partitions):
            await committed_offset(world, kafka, lambda: _now(world), group, where, (None, NOBODY))
    for each in inhabitants:
        if isinstance(each, Mixer | Driver):
            await each.run([Step(0, each.who, "ask")])
    await kafka.close()


def _now(world: Surroundings) -> dict[str, Any]:
    return {"at_ms": world.at_ms(), "who": "reader of everything"}


@attrs.define(eq=False)
class _Settling:
    world: Surroundings
    server: Server
    group: str
    members: list[Any]
    kafka: KafkaConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.kafka = KafkaConnection(self.world)

    @property
    def broker(self) -> Broker:
        assert self.server.broker is not None
        return self.server.broker

    async def run(self) -> None:
        is_over, lacks = trio.Event(), "nobody has looked"
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.stay, is_over)
            deadline = trio.current_time() + LIMIT_S
            while lacks and trio.current_time() < deadline:
                await trio.sleep(LOOK_S)
                lacks = await self.lacks()
            is_over.set()
        self.world.add(Settled(**_now(self.world), group=self.group, lacks=lacks))
        await self.kafka.close()

    async def lacks(self) -> str:
        """What the group has not come to yet."""
        raise NotImplementedError


@attrs.define(eq=False)
class _ConsumerSettling(_Settling):
    async def lacks(self) -> str:
        for where in everything(self.world.partitions):
            offset = await committed_offset(self.world, self.kafka, lambda: _now(self.world), self.group, where, (None, NOBODY))
            end = self.broker.reader.snapshot(where).high_watermark
            if offset is None or not self._readable_end(where) <= max(offset, 0) <= end:
                return f"it has committed {offset} of {end} at {where}"
        state, count = await self._state()
        if state != "Stable" or count != len(self.members):
            return f"it is {state}, with {count} of {len(self.members)} members"
        return ""

    def _readable_end(self, where: TopicPartition) -> int:
        """Where readers come to: behind offsets that a log has lost at its end nothing leads on."""
        log = self.broker._manager.topics.actor(where).log
        end = log.high_watermark
        for gap in reversed(log.gaps):
            end = gap.start_offset if gap.end_offset == end else end
        return end

    async def _state(self) -> tuple[str, int]:
        if self.group == CLASSIC:
            classic = DescribeGroupsRequest(groups=[self.group], include_authorized_operations=False)
            answer = await self.kafka.call(classic, 5)
        else:
            request = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False)
            answer = await self.kafka.call(request, 1)
        if answer is None:
            return "not known", 0
        return answer.groups[0].group_state, len(answer.groups[0].members)


@attrs.define(eq=False)
class _ShareSettling(_Settling):
    was_busy: bool = False

    async def lacks(self) -> str:
        lacks = self._lacks()
        if self.was_busy and not lacks:
            # Where the last lock has ended there may be room for more: who got nothing while there was none looks again.
            for member in self.members:
                member.idle_turns = 0
            lacks = "nobody has looked since the last lock ended"
            self.was_busy = False
        return lacks

    def _lacks(self) -> str:
        for number in range(self.world.partitions[SHARED]):
            found = self.broker.shares.in_flight(self.group, self.world.topic_ids[SHARED], number)
            if found is None:
                return f"nobody reads partition {number}"
            if found.acquired_count or (found.start_offset != found.next_offset and not self._is_refused(number)):
                self.was_busy = True
                return f"in partition {number} are {found}"
        busy = [member.who for member in self.members if any(member.held.values()) or member.idle_turns < IDLE_TURNS]
        if busy:
            return f"{', '.join(busy)} have something to do"
        for number in filter(self._is_refused, range(self.world.partitions[SHARED])):
            self._stands(number)
        return ""

    def _is_refused(self, number: int) -> bool:
        return any(TopicPartition(SHARED, number) in member.refused for member in self.members)

    def _stands(self, number: int) -> None:
        """A member of a share group cannot pass over damage."""
        found = self.broker.shares.in_flight(self.group, self.world.topic_ids[SHARED], number)
        assert found is not None
        where = TopicPartition(SHARED, number)
        self.world.add(StandsAt(**_now(self.world), group=self.group, partition=where, offset=found.start_offset))
