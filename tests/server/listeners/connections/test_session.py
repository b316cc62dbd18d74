"""The session of both protocols: how much one connection is served before others are. The life of a connection is the table of
`connections/states`, and a session has no other. How connections end: whatever they were doing, what they held is given back,
and thousands of them leave nothing."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.kafka.messages.groups import FindCoordinatorRequest
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.protocol.limits import MIB
from triolog.protocol.native.connection import NativeConnection
from triolog.server.listeners.connections import transport
from triolog.server.listeners.connections.session import REQUESTS_PER_TURN, Session
from triolog.server.listeners.connections.states import (
    CLOSED,
    DRAINING,
    HELD,
    HOLD,
    LINGERING,
    MUTE,
    READING,
    RESUME,
    STOP,
    TRANSITIONS,
    UNMUTE,
    WORK,
    Event,
    State,
)
from triolog.server.loop.procedures import in_turns

from tests.server.listeners.native.test_session import session_of
from tests.support import kafka_server as support
from tests.support.attackers import BothListeners, both_listeners, send_as_taken
from tests.support.brokers import until
from tests.support.counts import counts
from tests.support.kafka_server import (
    TOPIC,
    KafkaServer,
    batch,
    fetch_partition,
    fetch_request,
    kafka_server,
    produce_request,
    produced,
)
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

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = {session: session.taken_count for session in self.kafka.sessions()}

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        for session in self.kafka.sessions():
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


async def test_a_full_session_goes_on_when_its_bytes_leave(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
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


STATES: Final = get_args(State)
EVENTS: Final = get_args(Event)


def unmute(session: Session[Any]) -> None:
    session.muted_until = trio.current_time()
    session._unmute()


CALLS: Final[list[tuple[Event, Callable[[Session[Any]], None]]]] = [
    (WORK, lambda session: session.work_on(trio.sleep_forever)),
    (MUTE, lambda session: session.mute(1.0)),
    (UNMUTE, unmute),
    (STOP, lambda session: session.stop_reading()),
    (STOP, lambda session: session.end_reading()),
    (STOP, lambda session: session.end_with(ValueError("planted"))),
]


def reachable(start: State) -> set[State]:
    found, new = set[State](), {start}
    while new:
        found |= new
        new = {after for state in new for after in TRANSITIONS[state].values()} - found
    return found


def test_every_state_is_reached_and_what_has_stopped_takes_no_more_requests() -> None:
    assert reachable(READING) == TRANSITIONS.keys() == set(STATES)
    assert {event for row in TRANSITIONS.values() for event in row} == set(EVENTS)
    assert reachable(DRAINING) == {DRAINING, LINGERING, CLOSED}
    assert reachable(LINGERING) == {LINGERING, CLOSED}
    assert reachable(CLOSED) == {CLOSED}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("event", "call"), CALLS)
async def test_a_session_follows_the_table_alone(state: State, event: Event, call: Callable[[Session[Any]], None]) -> None:
    async with session_of() as served:
        session = served.session
        session.state = state
        if event in TRANSITIONS[state]:
            call(session)
            assert session.state == TRANSITIONS[state][event]
        else:
            with pytest.raises(KeyError):
                call(session)
            assert session.state == state


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("may_receive", [True, False])
async def test_only_a_reading_session_is_held_and_resumes(
    state: State, may_receive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeConnection, "can_receive_more", may_receive)
    async with session_of() as served:
        session = served.session
        session.state = state
        session._go_on()
        event = {(HELD, True): RESUME, (READING, False): HOLD}.get((state, may_receive))
        assert session.state == (state if event is None else TRANSITIONS[state][event])
        assert session.share.is_receiving == (session.state == READING)


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
    await until(lambda: any(session._parked for session in server.kafka.sessions()))


async def parked_before_others(server: BothListeners, peer: KafkaStream) -> None:
    """They were received together."""
    waits = fetch_request(fetch_partition(3), max_wait_ms=PATIENCE_MS, min_bytes=10)
    await peer.send_raw(frame(waits, 11, 1) + frame(METADATA, 9, 2) + frame(METADATA, 9, 3))
    await until(lambda: any(session._parked for session in server.kafka.sessions()))


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
            [session] = server.kafka.sessions()
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
