"""The two servers of a world, and the link of the one that mirrors the other."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import attrs
import trio
from triolog.server.broker import Broker
from triolog.server.config.values import Address
from triolog.tools.mirror.link import MirrorLink
from triolog.tools.mirror.settings import MirrorSettings

from ..device.disk import Device
from ..network import HOST, ClientStream, Network, Weather
from ..server import KAFKA_PORT, Server

SOURCE: Final = "source"
NETWORK: ContextVar[Network] = ContextVar("network")
"""Of the server that is being started in this task."""


@attrs.define(eq=False)
class PairServer(Server):
    """Its listeners are in its own network."""

    async def start(self) -> bool:
        NETWORK.set(self.network)
        return await super().start()


@attrs.define(eq=False)
class Reachable:
    """The network as clients know it: they reach one server after the other, under one address."""

    current: Network

    @property
    def weather(self) -> Weather:
        return self.current.weather

    def change(self, weather: Weather) -> None:
        self.current.change(weather)

    def opener(self, port: int) -> Callable[[], Awaitable[ClientStream]]:
        async def open_stream() -> ClientStream:
            return await self.connect(port)

        return open_stream

    async def connect(self, port: int) -> ClientStream:
        return await self.current.connect(port)


@attrs.define(eq=False)
class Side:
    """A server with its disk and its networks. Owner: the operator."""

    name: str
    port: int
    """Under which the other one's link knows it."""
    device: Device
    clients: Network
    links: Network
    """To the same listeners: the link breaks when the clients' connections do not, and the other way round."""
    server: Server
    other: Side | None = None
    is_mirror: bool = False
    link: MirrorLink | None = None
    lives: int = 0
    """Since it became a mirror."""

    @classmethod
    def make(cls, seed: str, name: str, port: int, directory: str, nursery: trio.Nursery) -> Side:
        device = Device(random.Random(f"{seed}/device {name}"), [directory])
        clients, links = Network(f"{seed}/{name}", nursery), Network(f"{seed}/link to {name}", nursery)
        links.listeners = clients.listeners
        server = PairServer(device, clients, "fsync", nursery, {"cleaner_enable": False})
        side = cls(name, port, device, clients, links, server)
        side.server.beside = side.run_beside
        return side

    @property
    def broker(self) -> Broker:
        assert self.server.broker is not None, (self.name, self.server.refusals, self.device.fs.is_off)
        return self.server.broker

    async def start(self) -> None:
        """Begin a life."""
        assert await self.server.start(), self.server.refusals
        self.lives += 1

    async def end(self, *, is_power: bool, after: int = 0) -> None:
        """End a life, as `Server.kill` does."""
        await self.server.kill(power=is_power, after=after)
        for wire in list(self.links._wires):
            wire.cut()

    def run_beside(self, broker: Broker) -> Callable[[], Awaitable[None]]:
        """The link of a mirror, as `tools.mirror.beside` opens it."""
        self.link = None
        if not self.is_mirror:
            return trio.sleep_forever
        assert self.other is not None
        settings = MirrorSettings(source=(Address(HOST, self.other.port),), internal_topics=True, name=SOURCE)
        self.link = MirrorLink(settings, broker)
        self.link.reserve()
        return self.link.run


def opener_of(sides: dict[int, Side]) -> Callable[..., Any]:
    """Stands for what opens the link's connections."""

    async def open_stream(host: str, port: int, tls: Any) -> trio.abc.Stream:
        return await sides[port].links.connect(KAFKA_PORT)

    return open_stream
