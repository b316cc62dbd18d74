"""A connection on a real server: order, backpressure, long polls, peers that vanish or do not read, what fetches give."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.records.batch import parse_header
from triolog.protocol.types import CompressionType

from tests.support.logs import START_MS, batch
from tests.support.server_process import DEADLINE_S, POLL_S, ServerFolder, ServerProcess
from tests.support.wire_client import WireClient, error_of

FOREVER_MS: Final = 600_000


def fetch_of(topic: str, offset: int, max_bytes: int = MIB, **options: Any) -> messages.FetchRequest:
    return messages.FetchRequest((messages.FetchPartition(topic, 0, offset, max_bytes),), **options)


def produce_of(topic: str, data: bytes, **options: Any) -> messages.ProduceRequest:
    return messages.ProduceRequest((messages.ProducePartition(topic, 0, data),), **options)


def eventually(is_true: Callable[[], bool], what: str) -> None:
    """Another process gets there in its own time; how long that takes is no part of the claim."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(POLL_S)


def test_appends_of_one_connection_are_applied_in_the_order_sent(client: WireClient, topic: str) -> None:
    sent = []
    for number in range(300):
        if len(sent) >= 50:
            client.receive_message(sent.pop(0))
        data: Any = batch(value=b"%d" % number)
        if number % 3 == 0:
            data = (messages.PlainRecord(None, None, b"%d" % number),)
        sent.append(
            client.send(messages.ProduceRequest((messages.ProducePartition(topic, 0, data),), acks=(-1, 1)[number % 2]))
        )
    for correlation_id in sent:
        client.receive_message(correlation_id)
    records, _ = client.read_all(topic, 0)
    assert [record.value for record in records] == [b"%d" % number for number in range(300)]


def test_answers_come_as_they_are_ready_each_with_its_correlation_id(client: WireClient, topic: str) -> None:
    poll = client.send(fetch_of(topic, 0, max_wait_ms=FOREVER_MS))
    ids = [client.send(messages.MetadataRequest(())) for _ in range(5)]
    assert [client.receive_answer().correlation_id for _ in ids] == ids
    client.send(produce_of(topic, batch(), acks=0), expects_answer=False)
    assert client.receive_answer().correlation_id == poll


def test_past_max_in_flight_the_server_reads_on_when_it_has_answered(
    server: ServerProcess, client: WireClient, topic: str
) -> None:
    with WireClient.connect(server.address, max_in_flight=100) as flooding:
        polls = [flooding.send(fetch_of(topic, 0, max_wait_ms=FOREVER_MS)) for _ in range(flooding.hello.max_in_flight)]
        behind = flooding.send(messages.MetadataRequest(()))
        flooding.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            flooding.receive()
        flooding.socket.settimeout(DEADLINE_S)
        client.produce(topic, 0, batch())
        answered = [flooding.receive_answer().correlation_id for _ in range(len(polls) + 1)]
        assert sorted(answered) == [*polls, behind]


@pytest.fixture
def large(client: WireClient, topic: str) -> str:
    """A topic with 16 MB in partition 0."""
    for _ in range(16):
        client.produce(topic, 0, batch(value=bytes(1_000_000)))
    return topic


@pytest.mark.parametrize("long_polls", [False, True], ids=["at once", "long polls"])
def test_unread_answers_take_bounded_memory_and_block_nobody(
    server: ServerProcess, client: WireClient, large: str, long_polls: bool
) -> None:
    wait = {"max_wait_ms": FOREVER_MS, "min_bytes": 16_500_000} if long_polls else {}
    server.forget_peak_memory()
    before = server.memory_bytes()
    with WireClient.connect(server.address, receive_buffer_bytes=4096) as lazy:
        asked = {lazy.send(fetch_of(large, 0, 32 * MIB, **wait)) for _ in range(20)}
        for _ in range(2):
            client.produce(large, 0, batch(value=bytes(1_000_000)))
        assert client.offset_for_time(large, 0, -3)[1] == 0
        assert client.high_watermark(large) == 18
        for _ in range(4):
            answer = lazy.receive_answer()
            assert answer.correlation_id in asked
            (entry,) = messages.FetchResponse.from_body(answer.body).partitions  # type: ignore[arg-type]
            assert len(entry.records) >= 16_000_000
    peak = server.memory_bytes("VmHWM") - before
    assert peak < 128 * MIB, f"20 answers of 16 MB to a peer that does not read took {peak} bytes"


def test_long_polls_that_wait_hold_no_records(server: ServerProcess, client: WireClient, large: str) -> None:
    before = server.memory_bytes()
    with WireClient.connect(server.address) as waiting:
        for _ in range(20):
            waiting.send(fetch_of(large, 0, 32 * MIB, max_wait_ms=FOREVER_MS, min_bytes=30 * MIB))
        assert waiting.call(messages.MetadataRequest(())).topics == ()
        grown = server.memory_bytes() - before
    assert grown < 64 * MIB, f"20 long polls over 16 MB took {grown} bytes"


def test_an_answer_larger_than_a_frame_is_an_error_and_the_connection_lives(server_folder: ServerFolder) -> None:
    config = server_folder.path / "server.toml"
    config.write_text("max_frame_bytes = 2000000\n")
    with WireClient.connect(server_folder.start("--config", str(config)).address) as client:
        client.create_topic("topic", 2, {"compression.type": "gzip"})
        for partition in range(2):
            for _ in range(3):
                client.produce("topic", partition, batch(value=random.randbytes(900_000)))
        assert len(client.fetch("topic", 0, 0, partition_max_bytes=50 * MIB).records) < 2_000_000
        client.produce("topic", 1, batch(value=bytes(3_000_000), compression_type=CompressionType.GZIP))
        unpacked = (messages.FetchPartition("topic", 1, 3, 4 * MIB),)
        error = error_of(client.call, messages.FetchRequest(unpacked, format=messages.Format.RECORDS))
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "frame" in error.message
        assert client.high_watermark("topic", 1) == 4


@pytest.fixture
def resources(server: ServerProcess) -> Iterator[None]:
    """The server has as many open sockets afterwards as before: every session has ended."""
    before = server.open_sockets()
    yield
    eventually(lambda: server.open_sockets() <= before, f"{server.open_sockets()} sockets open, {before} before")


@contextlib.contextmanager
def vanishing(server: ServerProcess, *, reset: bool) -> Iterator[WireClient]:
    """A client that is gone at the end of the block, politely or with a reset."""
    with WireClient.connect(server.address, receive_buffer_bytes=4096) as client:
        yield client
        if reset:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.usefixtures("resources")
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "phase", ["idle", "in a frame", "in a length", "after requests", "in a long poll", "in an answer", "failed"]
)
def test_a_peer_that_vanishes_leaves_nothing(
    server: ServerProcess, client: WireClient, topic: str, phase: str, reset: bool
) -> None:
    for _ in range(3):
        client.produce(topic, 0, batch(value=bytes(1_000_000)))
    for _ in range(2):
        with vanishing(server, reset=reset) as gone:
            if phase == "in a frame":
                gone.send_raw(struct.pack(">I", 1000) + bytes(500))
            elif phase == "in a length":
                gone.send_raw(b"\x00\x00")
            elif phase == "after requests":
                for _ in range(30):
                    gone.send(produce_of(topic, batch()))
            elif phase == "in a long poll":
                gone.send(fetch_of(topic, client.high_watermark(topic), max_wait_ms=2**31 - 1))
            elif phase == "in an answer":
                for _ in range(8):
                    gone.send(fetch_of(topic, 0, 10 * MIB))
                gone.socket.recv(1)
            elif phase == "failed":
                gone.send(fetch_of(topic, client.high_watermark(topic), max_wait_ms=2**31 - 1))
                gone.send_raw(b"\x00" * 4)
        assert client.produce(topic, 1, batch()) >= 0
    if phase == "after requests":
        records, _ = client.read_all(topic, 0)
        assert [record.offset for record in records] == list(range(len(records)))


def test_a_fetch_inside_a_batch_gives_the_whole_batch_or_only_the_records_from_there(client: WireClient, topic: str) -> None:
    client.produce(topic, 0, batch(*range(START_MS, START_MS + 10)))
    entry = client.fetch(topic, 0, 7)
    assert parse_header(entry.records).base_offset == 0  # type: ignore[arg-type]
    entry = client.fetch(topic, 0, 7, format=messages.Format.RECORDS)
    assert [record.offset for record in entry.records] == [7, 8, 9]  # type: ignore[union-attr]
    assert entry.aborted == ()
    assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (10, 10, 0)


def test_plain_records_come_back_as_they_were_sent(client: WireClient, topic: str) -> None:
    sent = (
        messages.PlainRecord(START_MS, b"key", b"value", (("one", b"1"), ("none", None))),
        messages.PlainRecord(START_MS - 5, None, None),
        messages.PlainRecord(START_MS + 5, b"", b""),
    )
    client.produce(topic, 0, sent)
    (entry,) = (client.fetch(topic, 0, 0, format=messages.Format.RECORDS),)
    assert [messages.PlainRecord(*record[1:]) for record in entry.records] == list(sent)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def walked(server: ServerProcess) -> str:
    """A topic of several small segments with timestamps out of order."""
    with WireClient.connect(server.address) as client:
        client.create_topic("walked", 1, {"segment.bytes": "4096", "index.interval.bytes": "200"})
        for number in range(150):
            stamps = [START_MS + number * 10 + jitter for jitter in (7, -15, 3)]
            client.produce("walked", 0, batch(*stamps, value=bytes(60)))
    return "walked"


@given(timestamp=st.integers(START_MS - 100, START_MS + 1700) | st.sampled_from([-1, -2, -3, 0, 2**62]))
def test_explain_of_a_time_ends_as_offsets_for_times_does(server: ServerProcess, walked: str, timestamp: int) -> None:
    with WireClient.connect(server.address) as client:
        (found,) = client.offsets_for_times([(walked, 0, timestamp)])
        (entry,) = client.call(messages.ExplainRequest((messages.ExplainPartition(walked, 0, timestamp=timestamp),))).partitions
        assert entry.error is None
        answer = entry.walk["answer"]
        assert (answer["offset"], answer["timestamp"]) == (found.offset, found.timestamp)
