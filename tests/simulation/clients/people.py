"""Who changes things: an administrator of topics, and the operator of the machine."""

from __future__ import annotations

import errno
from typing import Any

import attrs
import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.types import TopicPartition
from triolog.tools.client.admin import Admin

from ..history import Happened, Trims
from ..script import Step
from ..server import Server
from .inhabitant import Inhabitant
from .readers import Native


@attrs.define(eq=False)
class Administrator(Native):
    @property
    def _admin(self) -> Admin:
        return Admin(self.client)

    async def do(self, step: Step) -> None:
        try:
            await super().do(step)
        except TriologError as exc:
            self.world.add(Happened(**self.now(), what=f"{step.what}: {exc!r}"))

    async def trim(self, topic: str, partition: int, share: float) -> None:
        where = TopicPartition(topic, partition)
        end = (await self._admin.offsets_for_times({where: -1}))[where].offset
        before = int(end * share)
        self.world.add(Trims(**self.now(), partition=where, before_offset=before))
        await self._admin.delete_records({where: before})

    async def configure(self, topic: str, config: dict[str, str]) -> None:
        await self._admin.alter_config(topic, config)

    async def make(self, topic: str) -> None:
        await self._admin.create_topic(topic, 2)

    async def delete(self, topic: str) -> None:
        await self._admin.delete_topics(topic)


@attrs.define(eq=False)
class Operator(Inhabitant):
    """Starts and ends the server's lives, and has everything go wrong."""

    server: Server = attrs.field(kw_only=True)

    async def do(self, step: Step) -> None:
        self.world.add(Happened(**self.now(), what=f"{step.what} {dict(step.args)}"))
        await super().do(step)

    async def restart(self, for_ms: int) -> None:
        await self.server.stop()
        await self._begin(for_ms)

    async def kill(self, for_ms: int, after: int) -> None:
        await self.server.kill(power=False, after=after)
        await self._begin(for_ms)

    async def power(self, for_ms: int, after: int) -> None:
        await self.server.kill(power=self.server.durability == "fsync", after=after)
        await self._begin(for_ms)

    async def _begin(self, for_ms: int) -> None:
        await trio.sleep(for_ms / 1000)
        while not await self.server.start():
            self.world.add(Happened(**self.now(), what=f"does not start: {self.server.refusals[-1]}"))
            await trio.sleep(0.5)

    async def clock(self, ms: int) -> None:
        self.server.device.clock_ms += ms

    async def slow(self, ms: float) -> None:
        self.server.device.latency_s = ms / 1000

    async def weather(self, **changes: Any) -> None:
        changes = {("latency_s" if name == "latency_ms" else name): value for name, value in changes.items()}
        if "latency_s" in changes:
            changes["latency_s"] /= 1000
        network = self.server.network
        network.change(attrs.evolve(network.weather, **changes))

    silence = weather

    async def cut(self) -> None:
        self.server.network.cut_some(self.rng)

    async def fail(self, operation: str, error: str, skip: int) -> None:
        self.server.device.fs.fail_next(operation, getattr(errno, error), skip=skip)
