"""Frames that break the protocol, over a real socket: a last error frame, the connection closed, the server lives.

Requests that are only wrong in what they ask for are answered with an error, and the connection goes on.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import MAX_FRAME_BYTES, MIB
from triolog.protocol.native import messages
from triolog.protocol.native.frames import pack_frame

from tests.support.logs import batch
from tests.support.native_messages import MSGPACK_VALUES, REQUESTS, split
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient

MANY: Final = 200
HELLO: Final = {"client_id": "bad"}
WAITING: Final = {"partitions": [{"topic": "waiting", "partition": 0, "offset": 0}], "max_wait_ms": 600_000}


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def packed(value: object) -> bytes:
    return framed(msgpack.packb(value))


MALFORMED: Final = {
    "length 0": b"\x00\x00\x00\x00",
    "one byte above the limit": struct.pack(">I", MAX_FRAME_BYTES + 1),
    "a value cut short": framed(msgpack.packb([1, "metadata", 1, {}])[:-1]),
    "an array that claims 2^32-1 entries": framed(b"\xdd\xff\xff\xff\xff"),
    "a map that claims 2^32-1 entries": framed(b"\x94\x01\xa1a\x01\xdf\xff\xff\xff\xff"),
    "bin that claims 4 GiB": framed(b"\x94\x01\xa1a\x01\xc6\xff\xff\xff\xff"),
    "a map key that is a map": framed(b"\x94\x01\xa1a\x01\x81\x80\x01"),
    "10,000 nested arrays": framed(b"\x91" * 10_000),
    "nested arrays that claim more than there is": framed(b"\xdc\x1f\x00" * 1000 + bytes(5000)),
    "three parts": packed([1, "metadata", 1]),
    "a request before hello": packed([1, "metadata", 1, {}]),
    "an unknown request before hello": packed([1, "unknown", 1, {}]),
}
"""A bit of what `protocol/native/test_frames.py` and `test_connection.py` have."""
FATAL: Final = {
    **{name: frame for name, frame in MALFORMED.items() if "before hello" not in name},
    "a second hello": packed([1, "hello", 1, HELLO]),
    "a correlation id that is in flight": packed([77, "fetch", 1, WAITING]) + packed([77, "metadata", 1, {}]),
}


def check_server_lives(server: ServerProcess) -> None:
    with WireClient.connect(server.address) as other:
        assert other.call(messages.MetadataRequest(())).topics == ()


def test_a_broken_frame_gets_a_last_error_takes_little_memory_and_the_connection_is_closed(server: ServerProcess) -> None:
    with WireClient.connect(server.address) as client:
        client.create_topic("waiting")
    cases = [(name, frame, True) for name, frame in FATAL.items()] + [(name, frame, False) for name, frame in MALFORMED.items()]
    for name, frame, says_hello in cases:
        for attempt in range(7):
            if attempt == 2:
                server.forget_peak_memory()
                before = server.memory_bytes()
            with WireClient.connect(server.address, say_hello=says_hello) as client:
                client.send_raw(frame)
                error = client.last_error()
                assert error.code is ErrorCode.INVALID_REQUEST, name
                assert error.message
        peak = server.memory_bytes("VmHWM") - before
        assert peak < MIB, f"{name}: {peak} bytes"
        check_server_lives(server)


@pytest.mark.parametrize("sent", [1, 30])
def test_a_stream_that_ends_inside_a_frame_gets_a_last_error(server: ServerProcess, client: WireClient, sent: int) -> None:
    client.send_raw(packed([1, "metadata", 1, {"topics": ["a", "b", "c" * 30]}])[:sent])
    client.socket.shutdown(socket.SHUT_WR)
    assert "ended inside a frame" in client.last_error().message
    check_server_lives(server)


def test_requests_before_a_broken_frame_are_answered_before_the_last_error(client: WireClient) -> None:
    client.send_raw(b"".join(packed([number, "metadata", 1, {"topics": []}]) for number in (5, 6, 7)) + b"\x00" * 4)
    answers = receive_frames(client.socket)
    assert [answer[0] for answer in answers] == [5, 6, 7, 0]


def test_a_wrong_request_or_hello_is_answered_and_the_connection_lives(server: ServerProcess, client: WireClient) -> None:
    """A bit of what `protocol/native/test_messages.py` has."""
    with WireClient.connect(server.address, say_hello=False) as other:
        answer = other.receive_answer(other.send_body("hello", HELLO, version=9))
        assert answer.error is not None
        assert answer.error.code is ErrorCode.UNSUPPORTED_VERSION
        assert other.say_hello().server == "triolog"
    for api, version, body, code, named in (
        ("no_such_call", 1, {}, ErrorCode.UNSUPPORTED_VERSION, "no_such_call"),
        ("metadata", 2**64 - 1, {}, ErrorCode.UNSUPPORTED_VERSION, "version 18446744073709551615"),
        ("metadata", 1, {"topics": ["a"] * 10_001}, ErrorCode.INVALID_REQUEST, "10001"),
        ("metadata", 1, {b"topics": []}, ErrorCode.INVALID_REQUEST, "topics"),
        ("produce", 1, {"acks": 2, "partitions": []}, ErrorCode.INVALID_REQUIRED_ACKS, "2"),
    ):
        answer = client.receive_answer(client.send_body(api, body, version=version))
        assert answer.error is not None
        assert answer.error.code is code
        assert named in answer.error.message
    assert client.call(messages.MetadataRequest(())).topics == ()


_APIS = st.sampled_from([*messages.REQUESTS, "unknown"])
_HARMLESS = {name: requests for name, requests in REQUESTS.items() if name not in ("hello", "create_topics", "delete_topics")}
_REQUEST = st.sampled_from(sorted(_HARMLESS)).flatmap(lambda name: _HARMLESS[name]).map(
    lambda message: b"".join(pack_frame((1, message.api, 1), message.to_body()))
)  # fmt: skip
_PIECES = st.one_of(
    st.binary(max_size=64),
    st.binary(max_size=64).map(framed),
    MSGPACK_VALUES.map(packed),
    st.tuples(st.integers(0, 2**32), _APIS, st.integers(0, 2), MSGPACK_VALUES).map(packed),
    st.tuples(st.integers(1, 9), _APIS, st.just(1), st.dictionaries(st.text(max_size=5), MSGPACK_VALUES, max_size=3)).map(
        packed
    ),
    st.tuples(_REQUEST, st.integers(0, 400), st.integers(0, 255)).map(
        lambda drawn: drawn[0][: drawn[1]] + bytes([drawn[2]]) + drawn[0][drawn[1] + 1 :]
    ),
)


@given(data=st.data(), pieces=st.lists(_PIECES, min_size=1, max_size=6), says_hello=st.booleans())
def test_whatever_is_sent_every_answer_is_a_frame_and_the_connection_ends(
    server: ServerProcess, data: st.DataObject, pieces: list[bytes], says_hello: bool
) -> None:
    stream = (packed([100, "hello", 1, HELLO]) if says_hello else b"") + b"".join(pieces)
    with socket.create_connection(server.address, timeout=60) as raw:
        with contextlib.suppress(ConnectionError):
            for piece in data.draw(split(stream)):
                raw.sendall(piece)
            raw.shutdown(socket.SHUT_WR)
        answers = receive_frames(raw)
    for answer in answers[:-1]:
        assert answer[0] != 0, "something follows the last error frame"
    check_server_lives(server)


def receive_frames(connected: socket.socket) -> list[Any]:
    """Everything that comes until the end, as values. A reset ends it too; what came before is kept."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := connected.recv(65536):
            received += data
    frames = []
    while received:
        length = int.from_bytes(received[:4], "big")
        frames.append(msgpack.unpackb(bytes(received[4 : 4 + length])))
        assert len(frames[-1]) == 3
        del received[: 4 + length]
    return frames


@contextlib.contextmanager
def many_connections(server: ServerProcess, first_bytes: bytes) -> Iterator[None]:
    """MANY connections that said hello, sent these bytes and stall. They are received when this yields."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient.connect(server.address)) for _ in range(MANY)]
        for client in clients:
            client.send_raw(first_bytes)
        check_server_lives(server)
        yield


STALLED_BYTES = 8 * 1024
"""Of a connection beyond an idle one: the 1,000 bytes that came, and 4 KB around them (5,150 in all on 2026-11-22)."""


def test_frames_that_claim_64_mib_and_stall_take_little_memory(server: ServerProcess) -> None:
    """What the first of them leave behind in the process is nobody's connection."""
    stalling = struct.pack(">I", MAX_FRAME_BYTES) + bytes(1000)
    with many_connections(server, stalling):
        pass
    with many_connections(server, b""):
        before = server.memory_bytes()
    with many_connections(server, stalling):
        grown = server.memory_bytes() - before
    assert grown < MANY * STALLED_BYTES, f"{MANY} stalling connections took {grown} bytes more than {MANY} idle ones"


def test_idle_connections_take_less_than_256_kib_each(server: ServerProcess) -> None:
    check_server_lives(server)
    before = server.memory_bytes()
    with many_connections(server, b""):
        each = (server.memory_bytes() - before) / MANY
    assert each < MIB / 4, f"{each:.0f} bytes per connection"


@pytest.mark.merge
def test_a_peer_that_says_no_hello_is_closed_after_ten_seconds(server: ServerProcess) -> None:
    said = [b"", b"\x00", packed([1, "hello", 1, HELLO])[:-1], packed([1, "hello", 9, HELLO])]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient.connect(server.address, say_hello=False)) for _ in said]
        for client, data in zip(clients, said, strict=True):
            client.send_raw(data)
        for client in clients:
            receive_frames(client.socket)
    check_server_lives(server)


def test_a_frame_of_the_largest_size_is_taken(client: WireClient, topic: str) -> None:
    data = batch(value=bytes(1_000_000))
    entries = [(topic, number % 3, data) for number in range(66)]
    answers = client.produce_all(entries)
    assert [answer.error for answer in answers] == [None] * len(entries)
    assert client.high_watermark(topic, 0) == 22
