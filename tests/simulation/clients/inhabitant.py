"""What all inhabitants have: a name, a connection that is made anew when it was lost, and the history."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import attrs
import trio
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import Client
from triolog.tools.client.errors import ConnectionLostError

from tests.support.kafka_stream import KafkaStream

from ..history import Event, Wrong
from ..lives import TopicLives
from ..network import Network
from ..script import Script, Step
from ..server import KAFKA_PORT, NATIVE_PORT, Server

CONNECT_PAUSE_S: Final = 0.1
CONFIG: Final = ClientConfig(connect_timeout_ms=2000, request_timeout_ms=5000)
BROKEN: Final = (OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, AssertionError)
"""What a Kafka connection ends with."""


class Surroundings(Protocol):
    """The world, as its inhabitants know it."""

    script: Script
    network: Network
    partitions: dict[str, int]
    topic_ids: dict[str, bytes]
    lives: TopicLives
    server: Server
    """For what no client can bring about."""

    def at_ms(self) -> int:
        """Since the world began."""

    def now_ms(self) -> int:
        """The wall clock."""

    def add(self, event: Event) -> None:
        """To the history."""


@attrs.define(eq=False)
class Inhabitant:
    """Its methods are named as the steps of a script; `close` is called when there are no more."""

    world: Surroundings
    who: str
    rng: random.Random

    async def do(self, step: Step) -> None:
        await getattr(self, step.what)(**step.args)

    async def run(self, steps: list[Step]) -> None:
        for step in steps:
            await trio.sleep_until(step.at_ms / 1000)
            await self.do(step)

    def now(self) -> dict[str, Any]:
        """What every event begins with."""
        return {"at_ms": self.world.at_ms(), "who": self.who}

    def a_timestamp(self) -> int:
        """Of a record: now, or somewhat earlier."""
        return self.world.now_ms() - (self.rng.randrange(3000) if self.rng.random() < 0.3 else 0)


@asynccontextmanager
async def native_client(world: Surroundings) -> AsyncIterator[Client]:
    """A client of the native protocol; waits until the server is there."""
    async with trio.open_nursery() as nursery:
        client = Client(nursery, world.network.opener(NATIVE_PORT), CONFIG)
        try:
            while True:
                try:
                    await client.connected()
                    break
                except ConnectionLostError:
                    await trio.sleep(CONNECT_PAUSE_S)
            yield client
        finally:
            client.close()
            nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class KafkaConnection:
    """Calls of Kafka's protocol; one that is lost is made anew at the next call."""

    world: Surroundings
    timeout_s: float = 5.0
    on_end: Callable[[], None] = lambda: None
    """Told, perhaps twice, when a connection is no more."""
    _stream: KafkaStream | None = None
    _was_lost: bool = False

    async def call(self, body: object, version: int) -> Any | None:
        """The answer, None when nobody knows."""
        answers = await self.call_all([body], version)
        return answers[0] if answers else None

    async def call_all(self, bodies: Sequence[object], version: int) -> list[Any]:
        """Answers to requests that are sent without waiting for each other; those that nobody knows are missing at the end."""
        answers: list[Any] = []
        if self._was_lost:
            self._was_lost = False
            await trio.sleep(CONNECT_PAUSE_S)
        try:
            with trio.fail_after(self.timeout_s):
                if self._stream is None:
                    stream = await self.world.network.connect(KAFKA_PORT)
                    stream.wire.on_end = self.on_end
                    self._stream = KafkaStream(stream)  # type: ignore[arg-type]
                for body in bodies:
                    await self._stream.send(body, version)
                for _ in bodies:
                    answers.append(await self._stream.receive())
        except BROKEN:
            self._was_lost = True
            await self.close()
        return answers

    def sees(self, kind: str, detail: str) -> None:
        self.world.add(Wrong(at_ms=self.world.at_ms(), who="fetch", kind=kind, detail=detail))

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self.on_end()
            with trio.CancelScope(shield=True):
                await stream.stream.aclose()


@attrs.define(eq=False)
class KafkaInhabitant(Inhabitant):
    """One with a connection of Kafka's protocol, which ends behind the last step."""

    kafka: KafkaConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.kafka = KafkaConnection(self.world)

    async def run(self, steps: list[Step]) -> None:
        try:
            await super().run(steps)
        finally:
            await self.kafka.close()
