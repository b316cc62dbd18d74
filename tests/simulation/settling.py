"""How a world begins and ends for its groups: the share group is configured, all groups read to the end, and their offsets and
dead letters go into the history."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

import attrs
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.simulation.clients.consumer_members import ConsumerMember, StreamsMember
from tests.simulation.clients.drivers import Driver
from tests.simulation.clients.inhabitant import Inhabitant, KafkaConnection, Surroundings
from tests.simulation.clients.kafka_transactions import Mixer
from tests.simulation.clients.members import BEAT_S, NOBODY, GroupMember, committed_offset, everything
from tests.simulation.clients.people import Operator
from tests.simulation.clients.readers import id_of
from tests.simulation.clients.share_members import ShareMember
from tests.simulation.groups.events import (
    MIGRATING,
    SHARERS,
    DeadLetter,
    DeadLetters,
    Returned,
    Settled,
    ShareGroupIs,
    StandsAt,
)
from tests.simulation.groups.lives import SHARED
from tests.simulation.script import Step
from tests.support.brokers import records_from
from tests.support.kafka_wire import ask

SETTLING_LIMIT_S: Final = 120.0
LOOK_S: Final = 1.0
AWAY_MS: Final = 2500
"""With a turn of a member before it, less than a session."""
TURN_S: Final = 1.2 * BEAT_S
IDLE_TURNS: Final = 3
"""In which a member of a share group gets nothing: then there is nothing for it."""
QUEUE: Final = "dlq.in"
"""Of records that the share group gives up."""
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
    letters = random.Random(f"{seed}/dead letters")
    if letters.random() < 0.75:
        await broker.topics.create(QUEUE, 2, {"errors.deadletterqueue.group.enable": "true", "segment.bytes": "3000"})
        config |= {"errors.deadletterqueue.topic.name": QUEUE}
        config |= {"errors.deadletterqueue.copy.record.enable": letters.choice(("true", "false"))}
    await broker.group_configs.change(SHARERS, lambda _: config)
    world.add(
        ShareGroupIs(
            **_now(world), group=SHARERS, topics=(SHARED,), is_committed=is_committed, lock_ms=LOCK_MS, delivery_limit=limit
        )
    )


async def settle(world: Surroundings, operator: Operator, inhabitants: Iterable[Inhabitant]) -> None:
    """Let all groups read to the end, one after the other. Of clients with one instance id one is there."""
    by_group: dict[str, list[GroupMember | ShareMember]] = {}
    instances: set[str] = set()
    for each in inhabitants:
        if isinstance(each, GroupMember | ShareMember):
            members = by_group.setdefault(each.group, [])
            instance = each.instance if isinstance(each, GroupMember) else None
            if instance not in instances:
                members.append(each)
            if instance is not None:
                instances.add(instance)
    for group, members in by_group.items():
        settling = (_ShareSettling if group == SHARERS else _ConsumerSettling)(world, operator, group, members)
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


async def look_at_dead_letters(world: Surroundings) -> None:
    """What is in the queue of the share group goes into the history."""
    broker = world.server.broker
    assert broker is not None
    if QUEUE not in broker.topics.names():
        return
    letters = []
    for number in range(broker.topics.partition_count(QUEUE)):
        for record in await records_from(broker, TopicPartition(QUEUE, number)):
            said = {name.rpartition(".")[2]: bytes(value or b"").decode() for name, value in record.headers}
            where = TopicPartition(said["topic"], int(said["partition"]))
            copied = "" if record.value is None else id_of(record)
            letters.append(DeadLetter(where, int(said["offset"]), "rejected" in said["message"], copied))
    failed = sum(each.dead_letters_failed for each in world.server.share_counters)
    world.add(DeadLetters(**_now(world), letters=tuple(letters), failed=failed))


def _now(world: Surroundings) -> dict[str, Any]:
    return {"at_ms": world.at_ms(), "who": "reader of everything"}


@attrs.define(eq=False)
class _Settling:
    world: Surroundings
    operator: Operator
    group: str
    members: list[Any]
    kafka: KafkaConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.kafka = KafkaConnection(self.world)

    @property
    def broker(self) -> Broker:
        assert self.operator.server.broker is not None
        return self.operator.server.broker

    async def run(self) -> None:
        is_over, lacks = trio.Event(), "nobody has looked"
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.stay, is_over)
            deadline = trio.current_time() + SETTLING_LIMIT_S
            while lacks and trio.current_time() < deadline:
                await trio.sleep(LOOK_S)
                lacks = await self.lacks()
            if not lacks:
                await self.look_closer()
            is_over.set()
        self.world.add(Settled(**_now(self.world), group=self.group, lacks=lacks))
        await self.kafka.close()

    async def lacks(self) -> str:
        """What the group has not come to yet."""
        raise NotImplementedError

    async def look_closer(self) -> None:
        """It has come to everything."""


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

    async def look_closer(self) -> None:
        """Let the first static member be away for a while, in which the server is killed."""
        member = next((each for each in self.members if each.instance is not None), None)
        if member is None or self.group == MIGRATING:
            return
        had, epochs = tuple(member.owned), tuple(each.epoch for each in self.members)
        member.away_ms = AWAY_MS
        await trio.sleep(TURN_S)
        await self.operator.kill(0, 0)
        await trio.sleep(AWAY_MS / 1000 + 3 * TURN_S)
        after = {"has": tuple(member.owned), "epochs_after": tuple(each.epoch for each in self.members)}
        self.world.add(Returned(**member.me(), had=had, epochs=epochs, **after))

    def _readable_end(self, where: TopicPartition) -> int:
        """Where readers come to: behind offsets that a log has lost at its end nothing leads on."""
        log = self.broker._manager.topics.actor(where).log
        end = log.high_watermark
        for gap in reversed(log.gaps):
            end = gap.start_offset if gap.end_offset == end else end
        return end

    async def _state(self) -> tuple[str, int]:
        for request, version in (StreamsMember.DESCRIBE, ConsumerMember.DESCRIBE, ("DescribeGroups", 5)):
            which = {"groups" if request == "DescribeGroups" else "group_ids": [self.group]}
            answer = await self.kafka.call(ask(request, **which), version)
            if answer is not None and not answer.groups[0].error_code:
                return answer.groups[0].group_state, len(answer.groups[0].members)
        return "not known", 0


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
