"""One socket: what is received, what is sent in which order, and peers that take nothing. The listening sockets of a server:
one port, whatever the host resolves to. However many connections a peer makes to have them ended, the log has a few lines of
them."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.limits import MIB
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections import transport as transports
from triolog.server.listeners.connections.counters import AGAIN_S, LINES, Seldom
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.server.loop.turns import Gathering

from tests.support.attackers import both_listeners
from tests.support.brokers import running_broker, until
from tests.support.kafka_server import batch, kafka_server, produce_request
from tests.support.kafka_stream import connected
from tests.support.kafka_wire import frame

PATIENCE_S = 30.0
SMALL_BUFFER_BYTES = 4096


@attrs.define(eq=False)
class Pair:
    """A transport and the peer's end of its socket."""

    transport: transports.Transport
    far: trio.SocketStream

    async def received(self, size: int) -> bytes:
        data = bytearray()
        with trio.fail_after(PATIENCE_S):
            while len(data) < size and (piece := await self.far.receive_some(MIB)):
                data += piece
        return bytes(data)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Both ends of a socket whose buffers are small: who does not read is felt at once."""
    near, far = trio.socket.socketpair()
    for end, option in ((near, socket.SO_SNDBUF), (far, socket.SO_RCVBUF)):
        end.setsockopt(socket.SOL_SOCKET, option, SMALL_BUFFER_BYTES)
    async with trio.SocketStream(near) as stream, trio.SocketStream(far) as other:
        yield Pair(transports.Transport(stream, "peer"), other)


async def test_what_the_peer_sends_is_received_whole_and_in_order() -> None:
    sent = bytes(range(256)) * 20_000
    async with pair() as ends, trio.open_nursery() as nursery:

        async def send() -> None:
            await ends.far.send_all(sent)
            await ends.far.send_eof()

        nursery.start_soon(send)
        data = bytearray()
        with trio.fail_after(PATIENCE_S):
            while piece := await ends.transport.receive():
                data += piece
        assert data == sent
        assert await ends.transport.receive() == b""


async def test_a_wait_for_bytes_can_be_cancelled_and_loses_none() -> None:
    async with pair() as ends:
        await ends.far.send_all(b"first")
        assert await ends.transport.receive() == b"first"
        with trio.CancelScope() as scope:
            scope.cancel()
            await ends.transport.receive()
        assert scope.cancelled_caught
        await ends.far.send_all(b"second")
        assert await ends.transport.receive() == b"second"


async def test_reads_grow_with_what_comes_and_shrink_again() -> None:
    near, far = trio.socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * MIB)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MIB)
    async with trio.SocketStream(near) as stream, trio.SocketStream(far) as other, trio.open_nursery() as nursery:
        transport = transports.Transport(stream, "peer")
        nursery.start_soon(other.send_all, bytes(16 * MIB))
        left, largest = 16 * MIB, 0
        with trio.fail_after(PATIENCE_S):
            while left:
                data = await transport.receive()
                left -= len(data)
                largest = max(largest, len(data))
        assert transports.MIN_RECEIVE_BYTES < largest <= transports.MAX_RECEIVE_BYTES
        for _ in range(20):
            await other.send_all(b"x")
            assert await transport.receive() == b"x"
        assert transport._receive_bytes == transports.MIN_RECEIVE_BYTES


async def test_a_reset_is_raised_to_the_reader() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as far:
        near, _ = listener.accept()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(near)) as stream:
            transport = transports.Transport(stream, "peer")
            near.send(b"unread")
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            far.close()
            with pytest.raises((OSError, trio.BrokenResourceError)):
                await transport.receive()


async def test_unread_bytes_are_seen_without_reading_them() -> None:
    async with pair() as ends:
        assert not ends.transport.has_unread_bytes()
        await ends.far.send_all(b"x")
        assert ends.transport.has_unread_bytes()
        assert await ends.transport.receive() == b"x"
        assert not ends.transport.has_unread_bytes()
    assert not ends.transport.has_unread_bytes()


async def test_buffers_of_all_sizes_leave_in_order_and_are_counted() -> None:
    sizes = (1, 70_000, 3, transports.SENT_AT_ONCE_BYTES, 2_500_000, 0, 5, 5)
    buffers = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    async with pair() as ends, trio.open_nursery() as nursery:
        transport = ends.transport
        transport.needs_writer = lambda: nursery.start_soon(transport.write)
        transport.send(buffers[:4])
        transport.send([memoryview(each) for each in buffers[4:]])
        assert transport.unsent_bytes == sum(map(len, buffers)), "the first piece is more than the socket takes"
        assert await ends.received(sum(map(len, buffers))) == b"".join(buffers)
        await until(lambda: transport.is_drained)
    assert (transport.unsent_bytes, transport.counters.sent_bytes) == (0, sum(map(len, buffers)))


async def test_buffers_of_one_turn_leave_together() -> None:
    """A write for each would cost more than the bytes."""
    near, far = trio.socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with trio.SocketStream(_as_stream(near)) as stream:
        gathering = Gathering()
        transport = transports.Transport(stream, "peer", gathering=gathering)
        with gathering:
            transport.send([b"a", b"b"])
            transport.send([b"c"])
            assert transport.unsent_bytes == 3
        assert transport.is_drained
        assert await far.recv(100) == b"abc"
        with gathering:
            transport.send([b"x"] * (transports.SENT_BUFFERS + 1))
        assert await far.recv(100) == b"x" * transports.SENT_BUFFERS
        assert await far.recv(100) == b"x"
    far.close()


def _as_stream(packets: trio.socket.SocketType) -> trio.socket.SocketType:
    """A socket that keeps writes apart, where a stream is asked for."""
    return trio.socket.from_stdlib_socket(socket.socket(packets.family, socket.SOCK_STREAM, 0, packets.detach()))


async def test_an_answer_outside_of_a_turn_leaves_at_once() -> None:
    async with pair() as ends:
        ends.transport.send([b"a", b"b"])
        assert os.read(ends.far.socket.fileno(), 100) == b"ab", "nothing else has run since"
        assert ends.transport.unsent_bytes == 0
        assert ends.transport.counters.sent_bytes == 2


async def test_a_writer_ends_when_everything_is_sent_and_another_one_follows() -> None:
    async with pair() as ends, trio.open_nursery() as nursery:
        writers: list[int] = []

        async def write() -> None:
            await ends.transport.write()
            writers.append(len(writers))

        ends.transport.needs_writer = lambda: nursery.start_soon(write)
        for count in (1, 2):
            ends.transport.send([b"x" * 100_000])
            assert not ends.transport.is_drained
            assert len(await ends.received(100_000)) == 100_000
            await until(lambda count=count: len(writers) == count)  # type: ignore[misc]
            assert ends.transport.is_drained


async def test_progress_is_told_as_the_peer_takes_pieces() -> None:
    told: list[int] = []
    async with pair() as ends, trio.open_nursery() as nursery:
        ends.transport.needs_writer = lambda: nursery.start_soon(ends.transport.write)
        ends.transport.progressed = lambda: told.append(ends.transport.unsent_bytes)
        piece = transports.SENT_AT_ONCE_BYTES
        ends.transport.send([bytes(3 * piece)])
        await ends.received(3 * piece)
    assert told == [2 * piece, piece, 0, 0], "and at the end of the writer"


async def test_a_peer_that_closes_breaks_the_transport_and_what_waits_is_forgotten() -> None:
    broken: list[bool] = []
    async with pair() as ends:
        ends.transport.broke = lambda: broken.append(True)
        await ends.far.aclose()
        ends.transport.send([bytes(MIB)])
        assert broken
        assert ends.transport.unsent_bytes == 0
        ends.transport.send([b"nobody takes this"])
        assert ends.transport.unsent_bytes == 0


async def test_a_peer_that_takes_nothing_is_given_up() -> None:
    broken: list[bool] = []
    async with pair() as ends:
        ends.transport.send_timeout_s = 0.01
        ends.transport.broke = lambda: broken.append(True)
        ends.transport.send([bytes(MIB)])
        with trio.fail_after(PATIENCE_S):
            await ends.transport.write()
        assert broken
        assert ends.transport.unsent_bytes == 0


async def test_lingering_ends_when_the_peer_closes_and_on_a_closed_socket() -> None:
    async with pair() as ends, trio.open_nursery() as nursery:
        nursery.start_soon(ends.transport.linger)
        assert await ends.far.receive_some(1) == b""
        await ends.far.send_all(b"what nobody reads")
        await ends.far.send_eof()
    async with pair() as ends:
        await ends.transport.stream.aclose()
        await ends.transport.linger()


async def test_lingering_with_a_peer_that_does_not_close_ends_by_itself(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as ends:
        with trio.fail_after(PATIENCE_S):
            await ends.transport.linger()


needs_more_loopback_addresses = pytest.mark.skipif(sys.platform != "linux", reason="has 127.0.0.1 only")


@attrs.frozen
class Resolver(trio.abc.HostnameResolver):
    """Every host has these addresses."""

    hosts: tuple[str, ...]

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, int(port))) for each in self.hosts]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@needs_more_loopback_addresses
async def test_a_host_with_two_addresses_is_listened_on_at_the_port_that_is_told(tmp_path: Path) -> None:
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    trio.socket.set_custom_hostname_resolver(Resolver(hosts))
    async with running_broker(tmp_path) as broker, trio.open_nursery() as nursery:
        listener = native_listener(broker, Address(host="many.test", port=0), Admission.of(broker.config))
        address = await nursery.start(listener.run)
        assert address.host == hosts[0]
        for host in hosts:
            stream = await trio.open_tcp_stream(host, address.port)
            await stream.aclose()
        nursery.cancel_scope.cancel()


@needs_more_loopback_addresses
async def test_an_address_that_is_taken_is_named_and_no_other_one_stays_open(tmp_path: Path) -> None:
    """A socket that stayed open would be found as left behind; its port may be somebody else's by now."""
    trio.socket.set_custom_hostname_resolver(Resolver(("127.0.0.1", "127.0.0.2")))
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        async with running_broker(tmp_path) as broker:
            with pytest.raises(OSError, match=f"cannot listen on many.test:{port}") as refused:
                await native_listener(broker, Address(host="many.test", port=port), Admission.of(broker.config)).run()
        assert refused.value.errno == errno.EADDRINUSE


TIMES: Final = 3 * LINES
NONSENSE: Final = b"\xff" * 8
REFUSED: Final = frame(produce_request(batch("x"), partition=1000, acks=0), 9, 1)
"""It has no answer, so that its connection ends."""


async def end(address: tuple[str, int], data: bytes) -> None:
    async with connected(address) as client:
        await client.send_raw(data)
        while await client.stream.receive_some():
            """The last word of the native protocol."""


@pytest.mark.parametrize(
    ("protocol", "data"),
    [("kafka", NONSENSE), ("kafka", REFUSED), ("native", NONSENSE)],
    ids=["Kafka nonsense", "acks 0", "native nonsense"],
)
async def test_similar_ends_are_said_a_few_times(
    fast_path: Path, protocol: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "triolog")
    async with both_listeners(fast_path) as server:
        for _ in range(TIMES):
            await end(server.kafka.address if protocol == "kafka" else server.native_address, data)
        assert server.admission.counters(protocol).refused == TIMES
    said = [record for record in caplog.records if "is disconnected: " in record.getMessage()]
    assert len(said) == TIMES
    assert [record.levelno for record in said] == [logging.WARNING] * LINES + [logging.DEBUG] * (TIMES - LINES)


async def test_ends_of_another_kind_are_said_beside_the_first_ones(fast_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "triolog")
    async with kafka_server(fast_path) as server:
        for data in [NONSENSE] * TIMES + [REFUSED]:
            await end(server.address, data)
    assert sum("is disconnected: " in message for message in caplog.messages) == LINES + 1
    assert "acks=0 failed" in caplog.text


async def test_a_long_client_id_hides_not_why_a_connection_ended(fast_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Found by drawn requests: the line was cut before its reason."""
    caplog.set_level(logging.WARNING, "triolog")
    async with both_listeners(fast_path) as server:
        await end(server.kafka.address, frame(produce_request(batch("x"), partition=1000, acks=0), 9, 1, "c" * 20_000))
    [said] = [message for message in caplog.messages if "is disconnected: " in message]
    assert "acks=0 failed" in said


async def test_a_minutes_first_line_says_what_was_left_out(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    logger, seldom = logging.getLogger("triolog.test"), Seldom()
    for _ in range(TIMES):
        seldom.warn(logger, "a", "ended")
    await trio.sleep(AGAIN_S)
    for _ in range(2):
        seldom.warn(logger, "a", "again")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["ended"] * LINES + [f"again ({TIMES - LINES} similar errors not logged)", "again"]
