"""The session of both protocols: how much one connection is served before others are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.protocol.kafka.messages.groups import FindCoordinatorRequest
from triolog.server.listeners.connections import transport
from triolog.server.listeners.connections.session import REQUESTS_PER_TURN, Session
from triolog.server.loop.procedures import in_turns

from tests.support import kafka_server as support
from tests.support.brokers import until
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, kafka_server, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import frame

MANY = 60
REQUESTS: dict[str, tuple[Any, int]] = {
    "answered on the spot": (FindCoordinatorRequest(key="group", coordinator_keys=["group"]), 4),
    "answered by an actor": (support.produce_request(batch("x")), 9),
    "waited for": (fetch_request(fetch_partition()), 11),
}


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    async with kafka_server(fast_path, durability="os") as server:
        await server.broker.topics.create(TOPIC, 1)
        async with server.connected() as client:
            await produced(client, batch("first"))
        await until(lambda: server.listener.connections == 0)
        yield server


@attrs.define(eq=False)
class Steps(trio.abc.Instrument):
    """How many requests of one connection a step of a task takes up, at most."""

    kafka: KafkaServer
    most: int = 0
    _before: dict[Session[Any], int] = attrs.field(factory=dict)

    def sessions(self) -> Iterator[Session[Any]]:
        for served in self.kafka.listener._served:
            yield served.serve.__self__  # type: ignore[attr-defined]

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = {session: session.taken_count for session in self.sessions()}

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        for session in self.sessions():
            self.most = max(self.most, session.taken_count - self._before.get(session, 0))


@contextmanager
def counting(kafka: KafkaServer) -> Iterator[Steps]:
    steps = Steps(kafka)
    trio.lowlevel.add_instrument(steps)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(steps)


async def flood(client: KafkaStream, how: str) -> None:
    """Many requests in one go. What is asked has an answer each."""
    request, version = REQUESTS[how]
    await client.send_raw(b"".join(frame(request, version, number) for number in range(MANY)))


async def all_answers(client: KafkaStream) -> None:
    for _ in range(MANY):
        await client.receive_frame()


@pytest.mark.parametrize("how", REQUESTS)
async def test_no_step_takes_up_more_of_what_one_connection_sent_at_once_than_its_share(kafka: KafkaServer, how: str) -> None:
    async with kafka.connected() as client:
        with counting(kafka) as steps:
            await flood(client, how)
            await all_answers(client)
    assert 1 <= steps.most <= REQUESTS_PER_TURN


async def test_a_session_goes_on_when_what_made_it_full_leaves_with_it(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the peer then, so that nobody but the transport can tell."""
    monkeypatch.setattr(transport, "MAX_UNSENT_BYTES", 1)
    async with kafka.connected() as client:
        offset = await produced(client, batch(bytes(200_000)))
        for _ in range(3):
            answer = await client.call(fetch_request(fetch_partition(offset)), 11)
            assert len(answer.responses[0].partitions[0].records) > 200_000


async def turns_of_others(count: int, per_turn: int) -> int:
    """How often another task ran while so many elements were gone through."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert [each async for each in in_turns(range(count), per_turn)] == list(range(count))
        nursery.cancel_scope.cancel()
    return turns


@pytest.mark.parametrize(("count", "turns"), [(0, 0), (1, 0), (8, 0), (9, 1), (16, 1), (80, 9)])
async def test_others_have_a_turn_after_every_few_elements(count: int, turns: int) -> None:
    """Who comes first in a turn is drawn: the other one may miss the first and the last."""
    assert abs(await turns_of_others(count, 8) - turns) <= min(turns, 2)
