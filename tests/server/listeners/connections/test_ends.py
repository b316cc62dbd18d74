"""How connections end: whatever they were doing, what they held is given back, and thousands of them leave nothing."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.protocol.limits import MIB
from triolog.server.listeners.connections.session import Session

from tests.support.attackers import BothListeners, both_listeners, send_as_taken
from tests.support.brokers import until
from tests.support.counts import counts
from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produce_request, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import frame

PATIENCE_MS = 120_000
METADATA = MetadataRequest(topics=None)
SMALL_BUFFER_BYTES = 4096

Phase = Callable[[BothListeners, KafkaStream], Awaitable[None]]


async def silent(server: BothListeners, peer: KafkaStream) -> None:
    await until(lambda: server.kafka.listener.connections == 1)


async def in_a_frame(server: BothListeners, peer: KafkaStream) -> None:
    await peer.send_raw((1 * MIB).to_bytes(4, "big") + bytes(200_000))
    await until(lambda: server.admission.budget.held >= 200_000)


async def waiting_for_memory(server: BothListeners, peer: KafkaStream) -> None:
    async def send() -> None:
        with suppress(trio.ClosedResourceError):  # the test has closed it
            await send_as_taken(peer, (60 * MIB).to_bytes(4, "big") + bytes(60 * MIB))

    server.kafka.nursery.start_soon(send)
    await until(lambda: server.admission.budget.is_waited_for or server.admission.budget.held >= 5 * MIB)


async def parked(server: BothListeners, peer: KafkaStream) -> None:
    await peer.send(fetch_request(fetch_partition(10**6), max_wait_ms=PATIENCE_MS, min_bytes=10), 11)
    await peer.receive()  # out of range, at once
    await peer.send(fetch_request(fetch_partition(3), max_wait_ms=PATIENCE_MS, min_bytes=10), 11)
    await until(lambda: any(session._parked for session in sessions(server)))


async def parked_before_others(server: BothListeners, peer: KafkaStream) -> None:
    """They were received together."""
    waits = fetch_request(fetch_partition(3), max_wait_ms=PATIENCE_MS, min_bytes=10)
    await peer.send_raw(frame(waits, 11, 1) + frame(METADATA, 9, 2) + frame(METADATA, 9, 3))
    await until(lambda: any(session._parked for session in sessions(server)))


async def reading_no_answers(server: BothListeners, peer: KafkaStream) -> None:
    for _ in range(8):
        await peer.send(fetch_request(fetch_partition(), max_wait_ms=0), 11)
    await until(lambda: server.admission.answers.used > 0)


async def behind_produces_in_flight(server: BothListeners, peer: KafkaStream) -> None:
    for _ in range(20):
        await peer.send(produce_request(batch("x")), 9)


PHASES: list[Phase] = [
    silent,
    in_a_frame,
    waiting_for_memory,
    parked,
    parked_before_others,
    reading_no_answers,
    behind_produces_in_flight,
]


def sessions(server: BothListeners) -> list[Any]:
    return [served.serve.__self__ for served in server.kafka.listener._served]  # type: ignore[attr-defined]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
@pytest.mark.parametrize("how", ["the server stops without grace", "the peer resets"])
async def test_a_connection_that_ends_in_any_phase_gives_everything_back(fast_path: Path, phase: Phase, how: str) -> None:
    async with both_listeners(fast_path, max_broker_in_flight_bytes=8 * MIB) as server:
        async with server.kafka_client() as producer:
            for _ in range(3):
                await produced(producer, batch(bytes(900_000)))
        await until(lambda: server.kafka.listener.connections == 0)
        async with server.kafka_client(receive_buffer_bytes=SMALL_BUFFER_BYTES) as peer:
            await phase(server, peer)
            if how == "the peer resets":
                await peer.reset()
            else:
                server.kafka.listener.stop(0)
            await until(lambda: server.kafka.listener.connections == 0)
            await trio.testing.wait_all_tasks_blocked()
            assert (server.admission.budget.held, server.admission.budget.used, server.admission.answers.used) == (0, 0, 0)
            assert not server.admission.budget.shares
            assert not server.kafka.listener._reactor._watched
            assert not server.kafka.listener._reactor.deadlines
            assert server.admission.counters("kafka").bugs == 0
        async with server.native_client():
            """The other protocol's listener goes on."""


async def test_a_server_that_is_cancelled_takes_nothing_up_any_more(fast_path: Path) -> None:
    """Not even what lies behind the request that was cancelled; its socket is closed already."""
    async with AsyncExitStack() as peers:
        async with both_listeners(fast_path) as server:
            peer = await peers.enter_async_context(server.kafka_client())
            async with server.kafka_client() as producer:
                await produced(producer, batch("1", "2", "3"))
            await until(lambda: server.kafka.listener.connections == 1)
            await parked_before_others(server, peer)
            [session] = sessions(server)
        assert session.taken_count == 1
        assert server.admission.counters("kafka").bugs == 0


async def test_thousands_of_connections_opened_and_closed_leave_nothing(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server:
        for _ in range(counts(100)):
            async with trio.open_nursery() as nursery:
                for _ in range(25):
                    nursery.start_soon(_come_and_go, server)
        await until(lambda: server.kafka.listener.connections == 0 and server.native.connections == 0)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, Session)]
        assert not server.admission.budget.shares
        for listener in (server.kafka.listener, server.native):
            assert not listener._reactor._watched
            assert not listener._places.connections


async def _come_and_go(server: BothListeners) -> None:
    async with server.kafka_client() as client:
        await produced(client, batch("x"), topic=TOPIC)
    async with server.native_client():
        """It says hello."""
