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
from triolog.protocol.native.connection import CONNECTION_CLOSED, LastError, NativeConnection, Response
from triolog.protocol.native.frames import pack_frame
from triolog.protocol.native.state import Role

from tests.support.logs import batch
from tests.support.native_messages import MSGPACK_VALUES, REQUESTS, split
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient

MANY: Final = 200
HELLO: Final = {"client_id": "bad"}


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def packed(value: object) -> bytes:
    return framed(msgpack.packb(value))


MALFORMED: Final = {
    "length 0": b"\x00\x00\x00\x00",
    "one byte above the limit": struct.pack(">I", MAX_FRAME_BYTES + 1),
    "length 2^32-1": b"\xff\xff\xff\xff" + bytes(100),
    "a byte that msgpack never uses": framed(b"\xc1"),
    "a value cut short": framed(msgpack.packb([1, "metadata", 1, {}])[:-1]),
    "two values": framed(msgpack.packb([1, "metadata", 1, {}]) * 2),
    "an extension type": framed(b"\x94\x01\xa1a\x01\xd4\x01\x00"),
    "text that is not UTF-8": framed(b"\x94\x01\xa2\xff\xfe\x01\x80"),
    "an array that claims 2^32-1 entries": framed(b"\xdd\xff\xff\xff\xff"),
    "a map that claims 2^32-1 entries": framed(b"\x94\x01\xa1a\x01\xdf\xff\xff\xff\xff"),
    "bin that claims 4 GiB": framed(b"\x94\x01\xa1a\x01\xc6\xff\xff\xff\xff"),
    "a map key that is a map": framed(b"\x94\x01\xa1a\x01\x81\x80\x01"),
    "10,000 nested arrays": framed(b"\x91" * 10_000),
    "nested arrays that claim more than there is": framed(b"\xdc\x1f\x00" * 1000 + bytes(5000)),
}
MISSHAPEN: Final = {
    "nil": None,
    "a map": {"api": "metadata"},
    "an empty array": [],
    "three parts": [1, "metadata", 1],
    "five parts": [1, "metadata", 1, {}, None],
    "correlation id 0": [0, "metadata", 1, {}],
    "a negative correlation id": [-1, "metadata", 1, {}],
    "a correlation id above 32 bits": [2**32, "metadata", 1, {}],
    "a correlation id that is text": ["1", "metadata", 1, {}],
    "a correlation id that is true": [True, "metadata", 1, {}],
    "an api that is a number": [1, 5, 1, {}],
    "an api that is bin": [1, b"metadata", 1, {}],
    "a version that is text": [1, "metadata", "1", {}],
    "a negative version": [1, "metadata", -1, {}],
    "a body that is nil": [1, "metadata", 1, None],
    "a body that is an array": [1, "metadata", 1, []],
    "a second hello": [1, "hello", 1, HELLO],
}
FATAL: Final = MALFORMED | {name: packed(value) for name, value in MISSHAPEN.items()}


def last_error(client: WireClient) -> LastError:
    """The last error frame, with nothing behind it but the end."""
    event = client.receive()
    assert isinstance(event, LastError), event
    assert client.socket.recv(1) == b""
    return event


def check_server_lives(server: ServerProcess) -> None:
    with WireClient.connect(server.address) as other:
        assert other.call(messages.MetadataRequest(())).topics == ()


@pytest.mark.parametrize("frame", FATAL.values(), ids=FATAL)
def test_a_broken_frame_gets_a_last_error_and_the_connection_is_closed(
    server: ServerProcess, client: WireClient, frame: bytes
) -> None:
    client.send_raw(frame)
    error = last_error(client).error
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.message
    check_server_lives(server)


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
def test_a_broken_frame_in_place_of_hello_gets_a_last_error(server: ServerProcess, frame: bytes) -> None:
    with WireClient.connect(server.address, say_hello=False) as client:
        client.send_raw(frame)
        assert last_error(client).error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("api", [*sorted(set(messages.REQUESTS) - {"hello"}), "unknown"])
def test_a_request_before_hello_gets_a_last_error(server: ServerProcess, api: str) -> None:
    with WireClient.connect(server.address, say_hello=False) as client:
        client.send_raw(packed([1, api, 1, {}]))
        error = last_error(client).error
        assert error.code is ErrorCode.INVALID_REQUEST
        assert "hello" in error.message


def test_a_correlation_id_that_is_in_flight_gets_a_last_error(server: ServerProcess, client: WireClient, topic: str) -> None:
    poll = messages.FetchRequest((messages.FetchPartition(topic, 0, 0),), max_wait_ms=600_000).to_body()
    client.send_raw(packed([77, "fetch", 1, poll]) + packed([77, "metadata", 1, {}]))
    assert "77" in last_error(client).error.message
    check_server_lives(server)


@pytest.mark.parametrize("sent", [1, 4, 5, 30])
def test_a_stream_that_ends_inside_a_frame_gets_a_last_error(server: ServerProcess, client: WireClient, sent: int) -> None:
    client.send_raw(packed([1, "metadata", 1, {"topics": ["a", "b", "c" * 30]}])[:sent])
    client.socket.shutdown(socket.SHUT_WR)
    assert "ended inside a frame" in last_error(client).error.message
    check_server_lives(server)


def test_requests_before_a_broken_frame_are_answered_before_the_last_error(client: WireClient) -> None:
    client.send_raw(b"".join(packed([number, "metadata", 1, {"topics": []}]) for number in (5, 6, 7)) + b"\x00" * 4)
    connection = NativeConnection(Role.CLIENT)
    connection.send_request(1, "hello", 1, HELLO)
    answers = receive_frames(client.socket)
    assert [answer[0] for answer in answers] == [5, 6, 7, 0]


def test_requests_in_pieces_of_one_byte_are_understood(client: WireClient) -> None:
    for piece in packed([9, "metadata", 1, {"topics": []}]):
        client.send_raw(bytes([piece]))
    client.socket.shutdown(socket.SHUT_WR)
    assert receive_frames(client.socket) == [[9, None, {"topics": []}]]


# ---- requests that are answered with an error --------------------------------------------------------------------------


UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION
INVALID: Final = ErrorCode.INVALID_REQUEST


def partition_of(**entry: object) -> dict[str, Any]:
    return {"partitions": [{"topic": "t", "partition": 0, **entry}]}


@pytest.mark.parametrize(
    ("api", "version", "body", "code", "named"),
    [
        ("no_such_call", 1, {}, UNSUPPORTED, "no_such_call"),
        ("", 1, {}, UNSUPPORTED, "api"),
        ("metadata", 0, {}, UNSUPPORTED, "version 0"),
        ("metadata", 2, {}, UNSUPPORTED, "version 2"),
        ("metadata", 2**64 - 1, {}, UNSUPPORTED, "version 18446744073709551615"),
        ("metadata", 1, {"topic": ["a"]}, INVALID, "'topic'"),
        ("metadata", 1, {b"topics": []}, INVALID, "topics"),
        ("metadata", 1, {"topics": "a"}, INVALID, "topics"),
        ("metadata", 1, {"topics": ["a"] * 10_001}, INVALID, "10001"),
        ("produce", 1, {}, INVALID, "partitions"),
        ("produce", 1, {"acks": 2, "partitions": []}, ErrorCode.INVALID_REQUIRED_ACKS, "2"),
        ("produce", 1, partition_of(partition=-1, records=b""), INVALID, "[0].partition"),
        ("produce", 1, partition_of(records="text"), INVALID, "records"),
        ("produce", 1, partition_of(records=[[1, 2]]), INVALID, "records[0]"),
        ("fetch", 1, {"gaps": "ignore", "partitions": []}, INVALID, "gaps"),
        ("fetch", 1, {"isolation": "dirty", "partitions": []}, INVALID, "isolation"),
        ("fetch", 1, {"format": "csv", "partitions": []}, INVALID, "format"),
        ("fetch", 1, partition_of(offset=-1), INVALID, "offset"),
        ("fetch", 1, partition_of(topic="t" * 250, offset=0), INVALID, "topic"),
        ("offsets_for_times", 1, {"isolation": "dirty", "partitions": []}, INVALID, "isolation"),
        ("init_producer", 1, {"transactional_id": ""}, INVALID, "transactional_id"),
        ("commit_offsets", 1, {"group": "g" * 256, "partitions": []}, INVALID, "group"),
        ("delete_records", 1, partition_of(before_offset=-2), INVALID, "before_offset"),
        ("offsets_for_times", 1, partition_of(timestamp=-4), INVALID, "-4"),
        ("explain", 1, partition_of(), INVALID, "has none of offset"),
        ("explain", 1, partition_of(offset=1, timestamp=1), INVALID, "offset and timestamp"),
        ("create_topics", 1, {"topics": [{"name": "t", "partitions": 1, "config": {"a": 1}}]}, INVALID, "config"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_answered_and_the_connection_lives(
    client: WireClient, api: str, version: int, body: dict[Any, Any], code: ErrorCode, named: str
) -> None:
    answer = client.receive_answer(client.send_body(api, body, version=version))
    assert answer.error is not None
    assert answer.error.code is code
    assert named in answer.error.message
    assert client.call(messages.MetadataRequest(())).topics == ()


def test_a_hello_of_another_version_is_refused_and_may_be_said_again(server: ServerProcess) -> None:
    with WireClient.connect(server.address, say_hello=False) as client:
        answer = client.receive_answer(client.send_body("hello", HELLO, version=9))
        assert answer.error is not None
        assert answer.error.code is ErrorCode.UNSUPPORTED_VERSION
        assert client.say_hello().server == "triolog"


# ---- anything at all ---------------------------------------------------------------------------------------------------

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


# ---- what it costs -----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("frame", FATAL.values(), ids=FATAL)
def test_a_broken_frame_takes_less_than_1_mib(server: ServerProcess, frame: bytes) -> None:
    def send(times: int) -> None:
        for _ in range(times):
            with WireClient.connect(server.address) as client:
                client.send_raw(frame)
                assert isinstance(client.receive(), LastError)

    send(2)
    server.forget_peak_memory()
    before = server.memory_bytes()
    send(5)
    peak = server.memory_bytes("VmHWM") - before
    assert peak < MIB, f"{peak} bytes"


@pytest.mark.full
def test_a_peer_that_says_no_hello_is_closed_after_ten_seconds(server: ServerProcess) -> None:
    said = [
        b"",
        b"\x00",
        packed([1, "hello", 1, HELLO])[:-1],
        packed([1, "hello", 9, HELLO]),
    ]
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


def test_answers_go_on_while_the_peer_has_shut_down_its_side(client: WireClient, topic: str) -> None:
    sent = client.send(messages.ProduceRequest((messages.ProducePartition(topic, 0, batch()),)))
    client.socket.shutdown(socket.SHUT_WR)
    answer = client.receive()
    assert isinstance(answer, Response)
    assert (answer.correlation_id, answer.error) == (sent, None)
    assert client.receive() is CONNECTION_CLOSED
