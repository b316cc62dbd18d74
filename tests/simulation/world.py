"""A world from its beginning to its end: `simulate` makes its history."""

from __future__ import annotations

import random
import tempfile
from typing import Any, Final

import attrs
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from .clients.classic_members import ClassicMember
from .clients.consumer_members import ConsumerMember
from .clients.drivers import Driver
from .clients.fetching import fetch
from .clients.inhabitant import Inhabitant, KafkaConnection
from .clients.mixers import Mixer
from .clients.people import Administrator, Operator
from .clients.producers import KafkaProducer, NativeProducer
from .clients.readers import Group, Looker, Reader
from .clients.share_members import ShareMember
from .clients.transactions import Mover, Pipe
from .disk import Device
from .groups.events import CLASSIC, CONSUMERS, SHARERS
from .groups.settling import configure, look_at_offsets, settle
from .history import Event, Found, Happened, History, Stored
from .network import Network, Weather
from .script import Script, Step
from .seeded import run_seeded
from .server import Server

KINDS: Final[dict[str, type[Inhabitant]]] = {
    "native": NativeProducer,
    "kafka": KafkaProducer,
    "mover": Mover,
    "pipe": Pipe,
    "reader": Reader,
    "group": Group,
    "looker": Looker,
    "admin": Administrator,
    CLASSIC: ClassicMember,
    CONSUMERS: ConsumerMember,
    SHARERS: ShareMember,
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
        await self._read_everything()
        await self.server.stop()

    async def _calm(self, operator: Operator) -> None:
        """Nothing goes wrong any more; logs that went offline are there again."""
        self.network.change(Weather())
        self.device.latency_s = 0.0005
        self.device.fs.forget_failures()
        await self._restart(operator)

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
        while True:
            fetched = await fetch(kafka, where, position, is_committed=is_committed, max_bytes=LARGE, max_wait_ms=0)
            assert fetched is not None, f"{where} at {position}: no answer"
            assert not fetched.error_code, f"{where} at {position}: {fetched}"
            if fetched.next_position == position:
                break
            records += fetched.records
            markers += fetched.markers
            position = fetched.next_position
        self.add(
            Stored(
                at_ms=self.at_ms(),
                who="reader of everything",
                partition=where,
                is_committed=is_committed,
                start_offset=start,
                end_offset=position,
                records=tuple(records),
                markers=tuple(markers),
            )
        )

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self.script.seed}/{name}")


def simulate(script: Script, history: History | None = None) -> History:
    """The history of a world, also where it ends early. Two calls in processes with one PYTHONHASHSEED give the same."""
    history = History() if history is None else history
    with tempfile.TemporaryDirectory() as data:
        _simulate(script, Device(random.Random(f"{script.seed}/device"), data), history)
    return history


def _simulate(script: Script, device: Device, history: History) -> None:
    networks: list[Network] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network = Network(script.seed, nursery)
            networks.append(network)
            server = Server(device, network, script.durability, nursery)
            partitions = {name: topic["partitions"] for name, topic in script.topics.items()}
            await World(script, network, device, server, history, partitions).run()
            nursery.cancel_scope.cancel()

    async def listen(*args: Any, **options: Any) -> Any:
        return await networks[0].listen(*args, **options)

    run_seeded(script.seed, main, device.latency, open_listeners=listen)
