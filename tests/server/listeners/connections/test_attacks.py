"""What peers that hold on to memory and places get, and who is served meanwhile: an established client of either protocol."""

from __future__ import annotations

import gc
import logging
import socket
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from triolog.protocol.kafka.messages.cluster import ApiVersionsRequest
from triolog.protocol.limits import KIB, MAX_UNKNOWN_BYTES, MIB
from triolog.protocol.native import messages
from triolog.server.listeners.connections.budget import FREE_BYTES
from triolog.server.listeners.connections.sockets import Served
from triolog.server.listeners.connections.transport import MIN_RECEIVE_BYTES

from tests.server.listeners.kafka.test_groups import joining
from tests.support import attackers as support
from tests.support.attackers import LONG_MS, BothListeners, both_listeners, established, kafka_peers, send_as_taken
from tests.support.brokers import until
from tests.support.counts import counts
from tests.support.kafka_server import TOPIC, batch, fetch_partition, fetch_request, produced
from tests.support.kafka_stream import PATIENCE_S, connected
from tests.support.kafka_wire import frame
from tests.support.native_stream import native_stream

BUDGET_BYTES: Final = 4 * MIB
ANSWERS: Final = counts(100)
HELLO: Final = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")


@pytest.fixture
async def server(fast_path: Path) -> AsyncIterator[BothListeners]:
    """With little memory for requests and answers."""
    async with both_listeners(fast_path, max_broker_in_flight_bytes=BUDGET_BYTES) as started:
        yield started


async def test_parked_fetches_with_padding_keep_none_of_it_and_hold_up_nobody(server: BothListeners) -> None:
    async with established(server) as clients, kafka_peers(server, 3) as attackers:
        for attacker in attackers:
            await attacker.send_raw(support.padded_fetch(BUDGET_BYTES // 2 - KIB))
        await clients.are_served(ANSWERS)
        await until(lambda: server.admission.budget.held <= 3 * KIB)


async def test_unfinished_frames_are_charged_as_they_come_and_small_requests_never_wait_for_them(server: BothListeners) -> None:
    budget = server.admission.budget
    async with established(server) as clients, kafka_peers(server, 10) as attackers, trio.open_nursery() as nursery:
        for attacker in attackers:
            nursery.start_soon(send_as_taken, attacker, support.unfinished_frame(50 * MIB, BUDGET_BYTES))
        await until(lambda: budget.is_waited_for)
        await clients.are_served(ANSWERS)
        most = BUDGET_BYTES + 50 * MIB
        assert budget.used <= most
        assert budget.held <= most + len(attackers) * (FREE_BYTES + MIN_RECEIVE_BYTES) + 10 * KIB
        nursery.cancel_scope.cancel()


async def test_a_frame_that_stands_still_makes_way_for_another(server: BothListeners, caplog: pytest.LogCaptureFixture) -> None:
    """A large request of somebody honest gets through while the attackers hold on to their connections."""
    caplog.set_level(logging.WARNING)
    server.admission.budget.stall_s = 0.05
    async with established(server) as clients, kafka_peers(server, 10) as attackers, trio.open_nursery() as nursery:
        for attacker in attackers:
            nursery.start_soon(send_as_taken, attacker, support.unfinished_frame(50 * MIB, BUDGET_BYTES))
        await until(lambda: server.admission.budget.is_waited_for)
        await produced(clients.kafka, batch(bytes(MIB - KIB)))
        await until(lambda: "stood still" in caplog.text)
        assert server.admission.counters("kafka").ended["stalled"] >= 1
        nursery.cancel_scope.cancel()


async def test_many_frames_larger_than_the_memory_for_all_are_all_answered(fast_path: Path) -> None:
    """Each begins; none may wait for the others for ever."""
    async with both_listeners(fast_path, max_broker_in_flight_bytes=KIB) as server, trio.open_nursery() as nursery:

        async def produce(partition: int) -> None:
            async with server.kafka_client() as client:
                for _ in range(2):
                    await produced(client, batch(bytes(700 * KIB)), partition=partition)

        for number in range(9):
            nursery.start_soon(produce, number % 3)


async def test_a_frame_before_hello_is_small(server: BothListeners) -> None:
    async with established(server) as clients, server.native_client(say_hello=False) as attacker:
        await attacker.send_raw((MAX_UNKNOWN_BYTES + 1).to_bytes(4, "big") + bytes(100))
        with trio.fail_after(PATIENCE_S):
            told = await attacker.stream.receive_some(10_000)
        assert b"max_frame_bytes=524288" in told
        await clients.are_served(1)
        body = {**messages.MetadataRequest(()).to_body(), "unknown": bytes(MAX_UNKNOWN_BYTES)}
        pieces = clients.native.connection.send_request(99, "metadata", messages.VERSION, body)
        await clients.native.send_raw(b"".join(pieces))
        assert (await clients.native.receive()).correlation_id == 99


async def test_a_peer_that_is_not_known_holds_no_more_than_one_small_frame(server: BothListeners) -> None:
    async with server.native_client(say_hello=False) as attacker, trio.open_nursery() as nursery:
        claimed = MAX_UNKNOWN_BYTES.to_bytes(4, "big")
        nursery.start_soon(send_as_taken, attacker, claimed + bytes(MAX_UNKNOWN_BYTES - 1))
        await until(lambda: server.admission.budget.held >= MAX_UNKNOWN_BYTES)
        assert server.admission.budget.held <= MAX_UNKNOWN_BYTES + MIN_RECEIVE_BYTES
        nursery.cancel_scope.cancel()


async def test_answers_that_nobody_reads_have_a_limit_and_readers_are_served(server: BothListeners) -> None:
    answers = server.admission.answers
    async with established(server) as clients:
        for _ in range(8):
            await produced(clients.kafka, batch(bytes(900_000)), partition=2)
        async with kafka_peers(server, 25, receive_buffer_bytes=4096) as attackers:
            for attacker in attackers:
                asked = fetch_request(fetch_partition(partition=2, max_bytes=50 * MIB), max_bytes=50 * MIB)
                await attacker.send_raw(frame(asked, 11, 1) * 20)
            await until(lambda: answers.used > 0)
            await clients.are_served(ANSWERS)
            unsent = sum(session.transport.unsent_bytes for session in server.kafka.sessions())
            assert unsent <= BUDGET_BYTES + len(attackers) * MIB
            for _ in range(3):
                answer = await clients.kafka.call(fetch_request(fetch_partition(partition=2), max_bytes=50 * MIB), 11)
                assert len(answer.responses[0].partitions[0].records) >= 900_000, "the first batch comes whole"
    await until(lambda: answers.used == 0)


async def test_peers_that_leave_parked_requests_behind_give_their_places_back(fast_path: Path) -> None:
    async with both_listeners(fast_path, max_connections=12) as server, established(server) as clients:
        for _ in range(counts(30)):
            async with kafka_peers(server, 8) as peers:
                for peer in peers:
                    await peer.send(fetch_request(fetch_partition(partition=2), max_wait_ms=LONG_MS), 11)
                await until(lambda: sum(1 for each in server.admission.budget.shares if each.held) == 8)
            await clients.are_served(1)
        await until(lambda: server.kafka.listener.connections == 1)


@pytest.mark.parametrize("protocol", ["kafka", "native"])
async def test_peers_that_say_nothing_keep_nobody_out(fast_path: Path, protocol: str) -> None:
    """The oldest of them goes for each that comes; who is known stays."""
    async with both_listeners(fast_path, max_connections=20) as server, established(server) as clients:
        address = server.kafka.address if protocol == "kafka" else server.native_address
        async with AsyncExitStack() as stack:
            for _ in range(60):
                await stack.enter_async_context(connected(address))
            async with server.kafka_client() as kafka, server.native_client() as native:
                newcomers = support.Established(kafka, native)
                await newcomers.are_served(3)
                await clients.are_served(3)
            ended = server.admission.counters(protocol).ended
            assert ended["newcomer"] >= 40


async def test_connections_of_one_listener_leave_places_for_another(fast_path: Path) -> None:
    """All that it may take are taken by peers that are known; both listeners of a server share what is not kept."""
    async with both_listeners(fast_path, max_connections=32) as server, AsyncExitStack() as stack:
        for _ in range(30):
            peer = await stack.enter_async_context(server.kafka_client())
            await peer.call(HELLO, 3)
        waiting = await stack.enter_async_context(server.kafka_client())
        await waiting.send(HELLO, 3)
        async with server.native_client() as native:
            await native.call(messages.MetadataRequest(()))
        assert server.kafka.listener.connections == 30
        await stack.enter_async_context(server.native_client())


async def test_a_native_connection_is_closed_when_it_is_idle_and_not_while_it_waits_in_a_long_poll(fast_path: Path) -> None:
    async with both_listeners(fast_path, idle_timeout_s=0.1) as server, server.native_client() as client:
        begin = trio.current_time()
        asked = messages.FetchRequest((messages.FetchPartition(TOPIC, 0, 0),), max_wait_ms=300)
        await client.call(asked)
        assert trio.current_time() - begin > 0.25
        assert await client.stream.receive_some(1) == b""


async def test_long_polls_of_a_peer_that_left_end_although_nobody_reads_from_it(server: BothListeners) -> None:
    """As many as may be in flight: the server has stopped reading, so it does not see the end of the stream."""
    async with server.native_client() as client:
        asked = messages.FetchRequest((messages.FetchPartition(TOPIC, 0, 0),), max_wait_ms=LONG_MS)
        for _ in range(64):
            await client.send(asked)
        [served] = server.native._served
        await until(lambda: session_of(served).connection.in_flight_count == 64)
    await until(lambda: server.native.connections == 0)


async def test_a_parked_fetch_of_a_peer_that_sends_no_more_is_answered(server: BothListeners) -> None:
    """Half a connection is closed, the other half is read from."""
    async with server.kafka_client() as client:
        await client.send(fetch_request(fetch_partition(), max_wait_ms=LONG_MS), 11)
        await client.send(HELLO, 3)
        await client.stream.send_eof()
        assert (await client.receive()).responses[0].partitions[0].error_code == 0
        assert (await client.receive()).error_code == 0
        assert await client.is_closed_by_server()


async def test_a_parked_join_of_a_peer_that_left_ends(fast_path: Path) -> None:
    """The others of its group are waited for, which may take as long as the group allows."""
    async with both_listeners(fast_path, group_initial_rebalance_delay_ms=0) as server, server.kafka_client() as other:
        first = await other.call(joining(rebalance_timeout_ms=60_000), 5)
        await other.call(joining(first.member_id, rebalance_timeout_ms=60_000), 5)
        async with server.kafka_client() as client:
            second = await client.call(joining(rebalance_timeout_ms=60_000), 5)
            await client.send(joining(second.member_id, rebalance_timeout_ms=60_000), 5)
            await until(lambda: sum(1 for each in server.admission.budget.shares if each.held) == 1)
        await until(lambda: server.kafka.listener.connections == 1)


@pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")
async def test_peers_that_vanish_are_found_out_within_a_minute(server: BothListeners) -> None:
    async with server.kafka_client() as client:
        await client.call(HELLO, 3)
        endpoint = server.kafka.sessions()[0].transport.stream.socket
        options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        idle_s, interval_s, probes = (endpoint.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle_s + interval_s * probes <= 60


@pytest.mark.parametrize(
    ("protocol", "how"),
    [
        pytest.param(protocol, how, marks=() if how == commit_tier else pytest.mark.merge)
        for protocol, commit_tier in (("kafka", "unread answers"), ("native", "parked"))
        for how in ("unfinished", "parked", "unread answers", "ordinary")
    ],
)
async def test_a_closed_session_is_gone_without_the_garbage_collector(fast_path: Path, protocol: str, how: str) -> None:
    async with both_listeners(fast_path) as server:
        async with server.kafka_client() as producer:
            for _ in range(10):
                await produced(producer, batch(bytes(900_000)))
        await until(lambda: server.kafka.listener.connections == 0)
        gc.collect()
        gc.disable()
        try:
            listener = server.kafka.listener if protocol == "kafka" else server.native
            address = server.kafka.address if protocol == "kafka" else server.native_address
            client_of = connected if protocol == "kafka" else native_stream
            async with client_of(address, receive_buffer_bytes=4096) as client, trio.open_nursery() as nursery:
                if how == "unfinished":
                    nursery.start_soon(send_as_taken, client, support.unfinished_frame(50 * MIB, 10 * MIB))
                elif how == "ordinary":
                    await client.call(*asking(protocol, max_wait_ms=0, max_bytes=1000))
                else:
                    await client.send(*asking(protocol, max_wait_ms=LONG_MS, min_bytes=1 if how != "parked" else MIB * 20))
                await until(lambda: any(each.held for each in server.admission.budget.shares) or how != "unfinished")
                await until(lambda: bool(server.admission.answers.used) or how != "unread answers")
                await until(lambda: listener.connections == 1)
                [served] = listener._served
                seen = weakref.ref(session_of(served))
                transport = weakref.ref(session_of(served).transport)
                del served
                nursery.cancel_scope.cancel()
            await until(lambda: listener.connections == 0)
            await trio.testing.wait_all_tasks_blocked()
            assert (seen(), transport()) == (None, None)
            assert (server.admission.budget.held, server.admission.answers.used) == (0, 0)
        finally:
            gc.enable()


def asking(protocol: str, **fields: Any) -> tuple[Any, ...]:
    """A fetch of everything, as the arguments of a client's `call`."""
    if protocol == "kafka":
        wanted = {"max_bytes": 50 * MIB, **fields}
        return fetch_request(fetch_partition(max_bytes=50 * MIB), **wanted), 11
    return (messages.FetchRequest((messages.FetchPartition(TOPIC, 0, 0, 50 * MIB),), **fields),)


def session_of(served: Served) -> Any:
    return getattr(served.serve, "__self__", None) or served.stop_reading.__self__  # type: ignore[attr-defined]
