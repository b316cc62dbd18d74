"""A world from its beginning to its end: `simulate` makes its history."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import attrs
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.log.gaps import gap_at
from triolog.server.system import clock as triolog_clock

from tests.simulation.clients.consumer_members import ClassicMember, ConsumerMember, MigratingMember, StreamsMember
from tests.simulation.clients.drivers import Driver
from tests.simulation.clients.hanging import Hanger
from tests.simulation.clients.http_posts import HttpPoster
from tests.simulation.clients.inhabitant import Inhabitant, KafkaConnection, Surroundings
from tests.simulation.clients.kafka_transactions import KafkaMover, Mixer
from tests.simulation.clients.members import BEAT_S, NOBODY, GroupMember, committed_offset, everything
from tests.simulation.clients.people import Administrator, Operator
from tests.simulation.clients.producers import Bundler, KafkaProducer, NativeProducer
from tests.simulation.clients.readers import Group, Looker, Reader, fetch, id_of
from tests.simulation.clients.remaker import Namer, Remaker
from tests.simulation.clients.security import Registrar
from tests.simulation.clients.share_members import ShareMember
from tests.simulation.clients.topic_lives import Binder, Scribe, TopicOwner, Visitor
from tests.simulation.clients.transactions import Keeper, KeyedProducer, Mover, Pipe
from tests.simulation.clocks import CLOCKS, HOLD_S
from tests.simulation.device.disk import Device
from tests.simulation.groups.events import (
    CLASSIC,
    CONSUMERS,
    MIGRATING,
    SHARERS,
    STREAMS,
    DeadLetter,
    DeadLetters,
    Returned,
    Settled,
    ShareGroupIs,
    StandsAt,
)
from tests.simulation.groups.lives import SHARED
from tests.simulation.history import ClockChecked, Damaged, Event, Found, Happened, History, Made, Refused, Stored, Wrong
from tests.simulation.lives import LIVING, TopicLives
from tests.simulation.network import Network, Weather
from tests.simulation.script import Script, Step
from tests.simulation.seeded import run_seeded
from tests.simulation.server import Server
from tests.support.brokers import records_from
from tests.support.kafka_wire import ask

KINDS: Final[dict[str, type[Inhabitant]]] = {
    "native": NativeProducer,
    "kafka": KafkaProducer,
    "bundle": Bundler,
    "http": HttpPoster,
    "keyed": KeyedProducer,
    "keeper": Keeper,
    "mover": Mover,
    "zombie": KafkaMover,
    "pipe": Pipe,
    "reader": Reader,
    "group": Group,
    "looker": Looker,
    "admin": Administrator,
    "remaker": Remaker,
    "namer": Namer,
    "owner": TopicOwner,
    "scribe": Scribe,
    "visitor": Visitor,
    "binder": Binder,
    "hanger": Hanger,
    "registrar": Registrar,
    CLASSIC: ClassicMember,
    CONSUMERS: ConsumerMember,
    SHARERS: ShareMember,
    MIGRATING: MigratingMember,
    STREAMS: StreamsMember,
    "driver": Driver,
    "mixer": Mixer,
}
LARGE: Final = 2**30
LIMIT_S: Final = 3600.0
"""Of a world, after which something waits for ever."""


class EndlessWorldError(Exception):
    """Somebody still waits long after everything went wrong for the last time."""


@attrs.define(eq=False)
class World:
    """Owner of a run."""

    script: Script
    network: Network
    device: Device
    server: Server
    history: History
    partitions: dict[str, int]
    topic_ids: dict[str, bytes] = attrs.field(factory=dict)
    lives: TopicLives = attrs.field(init=False)
    unsaid: int = 0
    """Offsets at which the reader of everything met damage in a closed segment that the log does not know of."""

    def __attrs_post_init__(self) -> None:
        self.lives = TopicLives(lambda name, config: self.add(Made(**self._reading(), topic=name, config=config)))

    def at_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def now_ms(self) -> int:
        return self.device.now_ms()

    def add(self, event: Event) -> None:
        self.history.add(event)

    async def run(self) -> None:
        if self.script.starts_in_1970:
            self.add(ClockChecked(at_ms=self.at_ms(), who="world"))
        await self.server.start()
        assert self.server.broker is not None, self.server.refusals
        for name, topic in self.script.topics.items():
            await self.server.broker.topics.create(name, topic["partitions"], topic["config"])
            self.add(Made(at_ms=self.at_ms(), who="world", topic=name, config=topic["config"]))
            self.topic_ids[name] = self.server.broker.topics.id_of(name)
        by_name: dict[str, list[Step]] = {}
        for step in self.script.steps:
            by_name.setdefault(step.who, []).append(step)
        operator = self._operator()
        inhabitants = {who: KINDS[who.split()[0]](self, who, self._rng(who)) for who in by_name if who != "operator"}
        if any(isinstance(each, ShareMember) for each in inhabitants.values()):
            await configure(self, self.server.broker, self.script.seed)
        with trio.move_on_after(LIMIT_S) as limit:
            async with trio.open_nursery() as nursery:
                for who, inhabitant in inhabitants.items():
                    nursery.start_soon(inhabitant.run, by_name[who])
                await operator.run(by_name.get("operator", []))
                await self._calm(operator)
            await settle(self, operator, inhabitants.values())
        if limit.cancelled_caught:
            raise EndlessWorldError(f"seed {self.script.seed}: somebody still waits after {LIMIT_S:g} s")
        await self._restart(operator)
        await look_at_offsets(self, inhabitants.values())
        for inhabitant in inhabitants.values():
            if isinstance(inhabitant, Remaker):
                assert self.server.broker is not None
                namers = [each for each in inhabitants.values() if isinstance(each, Namer)]
                await inhabitant.judge_records(self.server.broker, namers)
        await self._read_everything()
        await self._look_at_last()
        await look_at_dead_letters(self)
        await self.server.stop()

    def _operator(self) -> Operator:
        return Operator(self, "operator", self._rng("operator"), server=self.server)

    async def _look_at_last(self) -> None:
        """When every partition was read, and the server runs still."""
        if self.script.rots:
            await self._scrub()

    async def _calm(self, operator: Operator) -> None:
        """Nothing goes wrong any more; logs that went offline are there again."""
        self.network.change(Weather())
        self.device.slow_down(0.0005)
        self.device.fs.forget_failures()
        self.add(Happened(at_ms=self.at_ms(), who="operator", what="restart"))
        await operator.replug(0)
        await trio.sleep(self.script.calm_s)

    async def _restart(self, operator: Operator) -> None:
        self.add(Happened(at_ms=self.at_ms(), who="operator", what="restart"))
        await operator.restart(0)

    async def _read_everything(self) -> None:
        kafka = KafkaConnection(self)
        for topic, count in self.partitions.items():
            for number in range(count):
                for is_committed in (False, True):
                    await self._read(kafka, TopicPartition(topic, number), topic, is_committed=is_committed)
        assert self.server.broker is not None
        topics = self.server.broker.topics
        for number in range(topics.partition_count(LIVING) if LIVING in topics.names() else 0):
            name = self.lives.name(topics.id_of(LIVING))
            for is_committed in (False, True):
                await self._read(kafka, TopicPartition(LIVING, number), name, is_committed=is_committed)
        await kafka.close()

    async def _read(self, kafka: KafkaConnection, where: TopicPartition, name: str, *, is_committed: bool) -> None:
        """`name`: of the topic in the history."""
        named = TopicPartition(name, where.partition)
        broker: Broker | None = self.server.broker
        assert broker is not None
        snapshot = broker.reader.snapshot(where)
        position = start = snapshot.log_start_offset
        records: list[Found] = []
        markers: list[tuple[int, int]] = []
        size_bytes = unsaid = 0
        while True:
            fetched = await fetch(kafka, where, position, is_committed=is_committed, max_bytes=LARGE, max_wait_ms=0)
            assert fetched is not None, f"{where} at {position}: no answer"
            if fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
                refused = Refused(**self._reading(), partition=named, is_committed=is_committed, offset=position)
                self.add(refused)
                if gap_at(snapshot.gaps, position) is not None:
                    unsaid = 0  # what lies before a gap with nothing between is refused for it
                elif position < snapshot.active.base_offset:
                    unsaid += 1
                position += 1
                continue
            assert not fetched.error_code, f"{where} at {position}: {fetched}"
            self.unsaid, unsaid = self.unsaid + unsaid, 0
            if fetched.next_position == position:
                break
            records += fetched.records
            markers += fetched.markers
            position = fetched.next_position
            size_bytes += fetched.size_bytes
        end = snapshot.end_offset(Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED)
        is_nothing_left = snapshot.gaps and snapshot.gaps[-1].end_offset >= end and not snapshot.refused_gaps
        if position != end and not is_nothing_left:
            said = f"{where} at {position}, which ends at {end} ({snapshot})"
            self.add(Wrong(**self._reading(), kind="stuck", detail=said))
        self.add(
            Stored(
                **self._reading(),
                partition=named,
                is_committed=is_committed,
                start_offset=start,
                end_offset=position,
                records=tuple(records),
                size_bytes=size_bytes,
                markers=tuple(markers),
            )
        )

    async def _scrub(self) -> None:
        """Whoever looks finds the damage that readers were told of and that no start has taken out, and no other."""
        broker = self.server.broker
        assert broker is not None
        await broker.scrub.run_pass()
        found, is_damaged = broker.scrub.statistics().damages, any(isinstance(event, Damaged) for event in self.history.events)
        if (self.unsaid and not found) or (found and not is_damaged):
            said = f"{found} damages found, {self.unsaid} offsets refused to readers"
            self.add(Wrong(**self._reading(), kind="scrub", detail=said))

    def _reading(self) -> dict[str, Any]:
        return {"at_ms": self.at_ms(), "who": "reader of everything"}

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.script.seed}/{name}")


def simulate(script: Script, history: History | None = None) -> History:
    """The history of a world, also where it ends early. Two calls in processes with one PYTHONHASHSEED give the same."""
    history = History() if history is None else history
    with tempfile.TemporaryDirectory() as data:
        directories = [f"{data}/{number}" for number in range(script.directories)]
        for directory in directories:
            Path(directory).mkdir()
        history.paths = {directory: f"/data{number}" for number, directory in enumerate(directories)}
        device = Device(random.Random(f"{script.seed}/device"), directories)
        if script.starts_in_1970:
            device.clock_ms = CLOCKS["1970"]
        _simulate(script, device, history)
    return history


def _simulate(script: Script, device: Device, history: History) -> None:
    networks: list[Network] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network = Network(script.seed, nursery)
            networks.append(network)
            server = Server(device, network, script.durability, nursery, script.limits, script.starts_in_1970)
            partitions = {name: topic["partitions"] for name, topic in script.topics.items()}
            await World(script, network, device, server, history, partitions).run()
            nursery.cancel_scope.cancel()

    async def listen(*args: Any, **options: Any) -> Any:
        return await networks[0].listen(*args, **options)

    with patch.object(triolog_clock, "HOLD_S", HOLD_S):
        run_seeded(script.seed, main, device.latency, open_listeners=listen)


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
