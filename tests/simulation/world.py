"""A world from its beginning to its end: `simulate` makes its history."""

from __future__ import annotations

import random
import tempfile
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
from tests.simulation.clients.inhabitant import Inhabitant, KafkaConnection
from tests.simulation.clients.kafka_transactions import KafkaMover, Mixer
from tests.simulation.clients.people import Administrator, Operator
from tests.simulation.clients.producers import Bundler, KafkaProducer, NativeProducer
from tests.simulation.clients.readers import Group, Looker, Reader, fetch
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
)
from tests.simulation.history import ClockChecked, Damaged, Event, Found, Happened, History, Made, Refused, Stored, Wrong
from tests.simulation.lives import LIVING, TopicLives
from tests.simulation.network import Network, Weather
from tests.simulation.script import Script, Step
from tests.simulation.seeded import run_seeded
from tests.simulation.server import Server
from tests.simulation.settling import configure, look_at_dead_letters, look_at_offsets, settle

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
