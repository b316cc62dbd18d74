"""A world from its beginning to its end: `simulate` makes its history."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.log.gaps import gap_at

from .clients.bundles import Bundler
from .clients.classic_members import ClassicMember
from .clients.consumer_members import ConsumerMember
from .clients.drivers import Driver
from tests.simulation.clients.readers import fetch
from .clients.inhabitant import Inhabitant, KafkaConnection
from .clients.kafka_transactions import KafkaMover
from tests.simulation.clients.transactions import Keeper, KeyedProducer
from .clients.mixers import Mixer
from .clients.people import Administrator, Operator
from .clients.producers import KafkaProducer, NativeProducer
from .clients.readers import Group, Looker, Reader
from .clients.remakers import Remaker
from .clients.share_members import ShareMember
from .clients.transactions import Mover, Pipe
from .device.disk import Device
from .groups.events import CLASSIC, CONSUMERS, SHARERS
from .groups.settling import configure, look_at_offsets, settle
from .history import Damaged, Event, Found, Happened, History, Made, Refused, Stored, Wrong
from .network import Network, Weather
from .script import Script, Step
from .seeded import run_seeded
from .server import Server

KINDS: Final[dict[str, type[Inhabitant]]] = {
    "native": NativeProducer,
    "kafka": KafkaProducer,
    "bundle": Bundler,
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
    CLASSIC: ClassicMember,
    CONSUMERS: ConsumerMember,
    SHARERS: ShareMember,
    "driver": Driver,
    "mixer": Mixer,
}
LARGE: Final = 2**30
HANGING_S: Final = 130.0
"""Until the server has ended transactions that nobody ends, and those of which a loss has taken half."""
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
    committing: set[str] = attrs.field(factory=set)
    unsaid: int = 0
    """Offsets at which the reader of everything met damage in a closed segment that the log does not know of."""

    def at_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def now_ms(self) -> int:
        return self.device.now_ms()

    def add(self, event: Event) -> None:
        self.history.add(event)

    async def run(self) -> None:
        await self.server.start()
        assert self.server.broker is not None, self.server.refusals
        for name, topic in self.script.topics.items():
            await self.server.broker.topics.create(name, topic["partitions"], topic["config"])
            self.add(Made(at_ms=self.at_ms(), who="world", topic=name, config=topic["config"]))
            self.topic_ids[name] = self.server.broker.topics.id_of(name)
        by_name: dict[str, list[Step]] = {}
        for step in self.script.steps:
            by_name.setdefault(step.who, []).append(step)
        operator = Operator(self, "operator", self._rng("operator"), server=self.server)
        inhabitants = {who: KINDS[who.split()[0]](self, who, self._rng(who)) for who in by_name if who != "operator"}
        if any(isinstance(each, ShareMember) for each in inhabitants.values()):
            await configure(self, self.server.broker, self.script.seed)
        with trio.move_on_after(LIMIT_S) as limit:
            async with trio.open_nursery() as nursery:
                for who, inhabitant in inhabitants.items():
                    nursery.start_soon(inhabitant.run, by_name[who])
                await operator.run(by_name.get("operator", []))
                await self._calm(operator)
            await settle(self, self.server, inhabitants.values())
        if limit.cancelled_caught:
            raise EndlessWorldError(f"seed {self.script.seed}: somebody still waits after {LIMIT_S:g} s")
        await self._restart(operator)
        await look_at_offsets(self, inhabitants.values())
        for inhabitant in inhabitants.values():
            if isinstance(inhabitant, Remaker):
                assert self.server.broker is not None
                await inhabitant.judge_records(self.server.broker)
        await self._read_everything()
        if self.script.rots:
            await self._scrub()
        await self.server.stop()

    async def _calm(self, operator: Operator) -> None:
        """Nothing goes wrong any more; logs that went offline are there again."""
        self.network.change(Weather())
        self.device.slow_down(0.0005)
        self.device.fs.forget_failures()
        self.device.fs.replug_directory(self.device.rng)
        await self._restart(operator)
        await trio.sleep(HANGING_S)

    async def _restart(self, operator: Operator) -> None:
        self.add(Happened(at_ms=self.at_ms(), who="operator", what="restart"))
        await operator.restart(0)

    async def _read_everything(self) -> None:
        kafka = KafkaConnection(self)
        for topic, count in self.partitions.items():
            for number in range(count):
                for is_committed in (False, True):
                    await self._read(kafka, TopicPartition(topic, number), is_committed=is_committed)
        await kafka.close()

    async def _read(self, kafka: KafkaConnection, where: TopicPartition, *, is_committed: bool) -> None:
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
                refused = Refused(**self._reading(), partition=where, is_committed=is_committed, offset=position)
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
                partition=where,
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
        _simulate(script, Device(random.Random(f"{script.seed}/device"), directories), history)
    return history


def _simulate(script: Script, device: Device, history: History) -> None:
    networks: list[Network] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network = Network(script.seed, nursery)
            networks.append(network)
            server = Server(device, network, script.durability, nursery, script.limits)
            partitions = {name: topic["partitions"] for name, topic in script.topics.items()}
            await World(script, network, device, server, history, partitions).run()
            nursery.cancel_scope.cancel()

    async def listen(*args: Any, **options: Any) -> Any:
        return await networks[0].listen(*args, **options)

    run_seeded(script.seed, main, device.latency, open_listeners=listen)
