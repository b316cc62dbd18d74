"""A connection on a real server: order, backpressure, long polls, peers that vanish or do not read, what fetches give. Ranges
of times over the native protocol: pages, formats, partitions that fail alone. The naive answer is a full scan. Transactions,
groups and appends at an expected offset over the native protocol, on a real server."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.protocol.errors import ErrorCode, InvalidRequestError, RequestError
from triolog.protocol.limits import MIB
from triolog.protocol.native import messages
from triolog.protocol.records.batch import iter_batches, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import CommittedFilter, iter_records
from triolog.protocol.types import CompressionType, Isolation, Record, TimeRange

from tests.support.counts import counts
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
    """The last one waits for the device. A response to `acks=1` may come before its record can be read."""
    sent = []
    for number in range(300):
        if len(sent) >= 50:
            client.receive_message(sent.pop(0))
        data: Any = batch(value=b"%d" % number)
        if number % 3 == 0:
            data = (messages.PlainRecord(None, None, b"%d" % number),)
        sent.append(
            client.send(messages.ProduceRequest((messages.ProducePartition(topic, 0, data),), acks=(1, -1)[number % 2]))
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


def test_past_max_in_flight_the_server_reads_after_an_answer(server: ServerProcess, client: WireClient, topic: str) -> None:
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


@pytest.mark.merge
@pytest.mark.parametrize("long_polls", [False, True], ids=["at once", "long polls"])
def test_unread_answers_take_bounded_memory(server: ServerProcess, client: WireClient, large: str, long_polls: bool) -> None:
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
def test_a_vanishing_peer_leaves_nothing(
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


NUMBERS = itertools.count()
MANY = counts(60, commit=6)
LONG_MS = 600_000


def range_of(
    client: WireClient, topic: str, start: int | None, end: int | None, offset: int = -1, max_bytes: int = MIB, **options: Any
) -> messages.FetchPartitionResponse:
    """One page; times are counted from START_MS."""
    times = {
        "start_timestamp": None if start is None else START_MS + start,
        "end_timestamp": None if end is None else START_MS + end,
    }
    question = messages.FetchPartition(topic, 0, offset, max_bytes, **times)
    (entry,) = client.call(messages.FetchRequest((question,), **options)).partitions
    if entry.error is not None:
        raise entry.error
    return entry  # type: ignore[no-any-return]


def records_of(entry: messages.FetchPartitionResponse, times: TimeRange, offset: int) -> list[Record]:
    """What the page has of the range, as docs/native-protocol.md has clients read it."""
    if isinstance(entry.records, tuple):
        return list(entry.records)
    start = entry.log_start_offset if offset < 0 else offset
    committed = CommittedFilter(entry.aborted)
    return [
        record
        for header, data in iter_batches(entry.records)
        if not committed.leaves_out(header, data)
        for record in iter_records(data, header)
        if record.offset >= start and times.holds(record.timestamp)
    ]


def read_range(client: WireClient, topic: str, start: int, end: int, max_bytes: int = MIB, **options: Any) -> list[Record]:
    found: list[Record] = []
    offset = -1
    while True:
        entry = range_of(client, topic, start, end, offset, max_bytes, **options)
        found += records_of(entry, TimeRange(START_MS + start, START_MS + end), offset)
        if entry.range_ended:
            return found
        assert entry.range_ended is False
        assert entry.next_offset > offset
        offset = entry.next_offset


def scan(client: WireClient, topic: str, isolation: Isolation) -> list[Record]:
    found: list[Record] = []
    offset, end = 0, 1
    while offset < end:
        entry = client.fetch(topic, 0, offset, isolation=isolation, format=messages.Format.RECORDS)
        found += entry.records  # type: ignore[arg-type]
        offset, end = entry.next_offset, entry.last_stable_offset
    return found


def test_a_range_is_one_request_without_an_offset(client: WireClient, topic: str) -> None:
    for timestamp in range(10):
        client.produce(topic, 0, batch(START_MS + timestamp))
    for shape in messages.Format:
        entry = range_of(client, topic, 3, 6, format=shape)
        assert (entry.next_offset, entry.range_ended) == (10, True)
        assert [record.offset for record in records_of(entry, TimeRange(START_MS + 3, START_MS + 6), -1)] == [3, 4, 5]
    assert client.fetch(topic, 0, 0).range_ended is None


def test_a_range_is_not_waited_for(client: WireClient, topic: str) -> None:
    client.produce(topic, 0, batch(START_MS))
    entry = range_of(client, topic, 5, 9, max_wait_ms=LONG_MS, min_bytes=MIB)
    assert (entry.records, entry.next_offset, entry.range_ended) == (b"", 1, True)
    client.produce(topic, 0, batch(START_MS + 7))
    later = range_of(client, topic, 5, 9, entry.next_offset, format=messages.Format.RECORDS)
    assert [record.offset for record in later.records] == [1]  # type: ignore[union-attr]


def test_a_range_that_ends_before_it_starts_fails_alone(client: WireClient, topic: str) -> None:
    client.produce(topic, 0, batch(START_MS))
    wrong = messages.FetchPartition(topic, 0, -1, start_timestamp=8, end_timestamp=7)
    right = messages.FetchPartition(topic, 0, -1, start_timestamp=START_MS)
    refused, given_ = client.call(messages.FetchRequest((wrong, right))).partitions
    assert refused.error.code is ErrorCode.INVALID_REQUEST
    assert refused.error.message == f"{topic}-0: end_timestamp 7 is before start_timestamp 8"
    assert (given_.error, given_.range_ended) == (None, True)


def test_only_a_range_may_lack_its_offset(client: WireClient, topic: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"fetch.partitions\[0\].offset is missing"):
        client.fetch(topic, 0, -1)


def test_the_walk_of_a_range_is_explained(client: WireClient, topic: str) -> None:
    for timestamp in range(10):
        client.produce(topic, 0, batch(START_MS + timestamp))
    asked = messages.ExplainPartition(topic, 0, start_timestamp=START_MS + 3, end_timestamp=START_MS + 6)
    wrong = messages.ExplainPartition(topic, 0, start_timestamp=3, end_timestamp=2)
    explained, refused = client.call(messages.ExplainRequest((asked, wrong))).partitions
    assert explained.walk["asked"] == {"start_timestamp": START_MS + 3, "end_timestamp": START_MS + 6}
    assert explained.walk["answer"]["offset"] == 3
    assert refused.error.code is ErrorCode.INVALID_REQUEST
    half = messages.ExplainPartition(topic, 0, offset=1, end_timestamp=2)
    (refused,) = client.call(messages.ExplainRequest((half,))).partitions
    assert "end_timestamp without start_timestamp" in refused.error.message


@settings(max_examples=MANY)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.sampled_from(CompressionType)),
        min_size=1,
        max_size=12,
    ),
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), min_size=1, max_size=3),
    max_bytes=st.sampled_from([1, 200, MIB]),
    transactions=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=3),
)
def test_a_range_is_the_filter_of_a_full_scan(
    server: ServerProcess,
    batches: list[tuple[list[int], CompressionType]],
    ranges: list[list[int]],
    max_bytes: int,
    transactions: list[tuple[int, bool]],
) -> None:
    with WireClient.connect(server.address) as client:
        topic = f"ranges-{next(NUMBERS)}"
        client.create_topic(topic, config={"segment.bytes": "1048576", "segment.ms": "600000", "index.interval.bytes": "100"})
        for timestamps, codec in batches:
            records = [(START_MS + timestamp, None, b"value", ()) for timestamp in timestamps]
            client.produce(topic, 0, build_batch(records, compression_type=codec))
        for timestamp, is_committed in transactions:
            in_transaction(client, topic, START_MS + timestamp, is_committed=is_committed)
        for isolation in Isolation:
            everything = scan(client, topic, isolation)
            for start, end in ranges:
                expected = [each for each in everything if START_MS + start <= each.timestamp < START_MS + end]
                for shape in messages.Format:
                    assert read_range(client, topic, start, end, max_bytes, isolation=isolation, format=shape) == expected


def in_transaction(client: WireClient, topic: str, timestamp: int, *, is_committed: bool) -> None:
    producer = client.call(messages.InitProducerRequest(topic))
    identity = producer.producer_id, producer.producer_epoch
    data = build_batch(
        [(timestamp, None, b"in a transaction", ())],
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=0,
        is_transactional=True,
    )
    entry = messages.ProducePartition(topic, 0, data)
    client.call(messages.ProduceRequest((entry,), transactional_id=topic))
    client.call(messages.EndTransactionRequest(messages.TransactionProducer(topic, *identity), is_committed))


WRITERS = 4
EACH = 15


def transactional_batch(producer: messages.InitProducerResponse, sequence: int, *values: bytes) -> bytes:
    return build_batch(
        [(time.time_ns() // 1_000_000, None, value, ()) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def begin(client: WireClient, transactional_id: str | None) -> messages.InitProducerResponse:
    return client.call(messages.InitProducerRequest(transactional_id))


def produce_in(client: WireClient, transactional_id: str, topic: str, data: bytes, partition: int = 0) -> int:
    request = messages.ProduceRequest((messages.ProducePartition(topic, partition, data),), transactional_id=transactional_id)
    (entry,) = client.call(request).partitions
    if entry.error is not None:
        raise entry.error
    return int(entry.base_offset)


def end(client: WireClient, transactional_id: str, producer: messages.InitProducerResponse, *, commit: bool) -> None:
    who = messages.TransactionProducer(transactional_id, producer.producer_id, producer.producer_epoch)
    client.call(messages.EndTransactionRequest(who, commit))


def committed_values(client: WireClient, topic: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    offset = 0
    while True:
        entry = client.fetch(topic, 0, offset, isolation=Isolation.READ_COMMITTED, format=messages.Format.RECORDS)
        values += [record.value for record in entry.records]  # type: ignore[union-attr]
        if entry.next_offset == entry.last_stable_offset:
            return values
        offset = entry.next_offset


@pytest.fixture
def name(topic: str) -> str:
    """An id of this test's own on the shared server, as its topic is."""
    return f"of-{topic}"


def test_hello_lists_every_call_there_is(client: WireClient) -> None:
    assert client.hello.apis == messages.API_VERSIONS


def test_nothing_of_a_transaction_is_committed_before_its_end(client: WireClient, topic: str, name: str) -> None:
    producer = begin(client, name)
    assert produce_in(client, name, topic, transactional_batch(producer, 0, b"a", b"b")) == 0
    entry = client.fetch(topic, 0, 0, isolation=Isolation.READ_COMMITTED)
    assert (entry.high_watermark, entry.last_stable_offset, len(entry.records)) == (2, 0, 0)
    end(client, name, producer, commit=True)
    entry = client.fetch(topic, 0, 0, isolation=Isolation.READ_COMMITTED)
    assert (entry.high_watermark, entry.last_stable_offset, entry.aborted) == (3, 3, ())
    assert committed_values(client, topic) == [b"a", b"b"]


def test_batches_name_the_aborted_transactions_and_records_leave_them_out(client: WireClient, topic: str, name: str) -> None:
    producer = begin(client, name)
    produce_in(client, name, topic, transactional_batch(producer, 0, b"aborted"))
    client.produce(topic, 0, (messages.PlainRecord(None, None, b"plain"),))
    end(client, name, producer, commit=False)
    produce_in(client, name, topic, transactional_batch(producer, 1, b"committed"))
    end(client, name, producer, commit=True)
    entry = client.fetch(topic, 0, 0, isolation=Isolation.READ_COMMITTED)
    assert entry.aborted == ((producer.producer_id, 0),)
    assert committed_values(client, topic) == [b"plain", b"committed"]
    uncommitted = client.fetch(topic, 0, 0, format=messages.Format.RECORDS)
    assert uncommitted.aborted == ()
    assert [record.value for record in uncommitted.records] == [b"aborted", b"plain", b"committed"]  # type: ignore[union-attr]


def test_records_that_are_all_left_out_still_say_where_to_go_on(client: WireClient, topic: str, name: str) -> None:
    producer = begin(client, name)
    produce_in(client, name, topic, transactional_batch(producer, 0, b"aborted"))
    end(client, name, producer, commit=False)
    entry = client.fetch(topic, 0, 0, isolation=Isolation.READ_COMMITTED, format=messages.Format.RECORDS)
    assert (entry.records, entry.next_offset, entry.high_watermark) == ((), 2, 2)


def test_transactional_batches_and_their_id_come_together(client: WireClient, topic: str, name: str) -> None:
    producer = begin(client, name)
    error = error_of(client.produce, topic, 0, transactional_batch(producer, 0, b"a"))
    assert (error.code, "Name its transactional_id" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
    error = error_of(produce_in, client, name, topic, batch())
    assert (error.code, "are not transactional" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
    assert client.high_watermark(topic) == 0


def test_latest_of_committed_readers_is_the_last_stable_offset(client: WireClient, topic: str, name: str) -> None:
    client.produce(topic, 0, batch())
    producer = begin(client, name)
    produce_in(client, name, topic, transactional_batch(producer, 0, b"open"))
    asked = (messages.OffsetsForTimesPartition(topic, 0, -1),)
    offsets = [
        client.call(messages.OffsetsForTimesRequest(asked, isolation)).partitions[0].offset
        for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
    ]
    assert offsets == [1, 2]
    end(client, name, producer, commit=False)


def commit(client: WireClient, group: str, topic: str, offset: int, **options: Any) -> RequestError | None:
    request = messages.CommitOffsetsRequest(group, (messages.CommittedPartition(topic, 0, offset, "note"),), **options)
    return client.call(request).partitions[0].error


def committed(client: WireClient, group: str, topic: str, **options: Any) -> tuple[int, str | None]:
    request = messages.FetchOffsetsRequest(group, (messages.Partition(topic, 0),), **options)
    (entry,) = client.call(request).partitions
    return entry.offset, entry.metadata


def test_a_group_keeps_an_offset_and_its_note(client: WireClient, topic: str, name: str) -> None:
    assert committed(client, name, topic)[0] == -1
    assert commit(client, name, topic, 7) is None
    assert committed(client, name, topic) == (7, "note")
    assert commit(client, name, topic, 3) is None
    assert committed(client, name, topic) == (3, "note")
    everything = client.call(messages.FetchOffsetsRequest(name)).partitions
    assert [(entry.topic, entry.partition, entry.offset) for entry in everything] == [(topic, 0, 3)]


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(client: WireClient, topic: str, name: str, is_commit: bool) -> None:
    commit(client, name, topic, 1)
    producer = begin(client, name)
    who = messages.TransactionProducer(name, producer.producer_id, producer.producer_epoch)
    assert commit(client, name, topic, 9, transaction=who) is None
    assert committed(client, name, topic)[0] == 1
    error = error_of(committed, client, name, topic, require_stable=True)
    assert error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    end(client, name, producer, commit=is_commit)
    assert committed(client, name, topic, require_stable=True)[0] == (9 if is_commit else 1)


def test_configuration_changes_and_goes_back_to_the_default(client: WireClient, topic: str) -> None:
    def alter(**change: Any) -> RequestError | None:
        error: RequestError | None = (
            client.call(messages.AlterConfigsRequest((messages.ConfigChange(topic, **change),))).topics[0].error
        )
        return error

    def value(key: str) -> tuple[str, str]:
        entry = client.call(messages.DescribeConfigsRequest((topic,))).topics[0].config[key]
        return entry.value, entry.source

    default, _ = value("max.message.bytes")
    assert alter(set={"max.message.bytes": "100"}) is None
    assert value("max.message.bytes") == ("100", "topic")
    assert error_of(client.produce, topic, 0, batch(value=bytes(200))).code is ErrorCode.MESSAGE_TOO_LARGE
    assert alter(delete=("max.message.bytes",)) is None
    assert value("max.message.bytes") == (default, "default")
    assert client.produce(topic, 0, batch(value=bytes(200))) == 0
    refused = alter(set={"max.message.byte": "100"})
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_CONFIG


def entry_of(client: WireClient, *entries: messages.ProducePartition) -> tuple[messages.ProducePartitionResponse, ...]:
    return client.call(messages.ProduceRequest(entries)).partitions


def test_each_partition_of_a_request_has_its_own_expectation(client: WireClient, topic: str) -> None:
    client.produce(topic, 1, batch())
    plain = (messages.PlainRecord(None, None, b"plain"),)
    answers = entry_of(
        client,
        messages.ProducePartition(topic, 0, batch(), 0),
        messages.ProducePartition(topic, 1, plain, 0),
        messages.ProducePartition(topic, 2, plain, 0),
    )
    assert [answer.error and answer.error.code for answer in answers] == [None, ErrorCode.OFFSET_OUT_OF_RANGE, None]
    assert [answer.log_end_offset for answer in answers] == [None, 1, None]
    assert [answer.base_offset for answer in answers] == [0, -1, 0]


def test_writers_that_race_for_the_end_lose_and_overwrite_nothing(server: ServerProcess, topic: str) -> None:
    """Each adds 1 to the last number: none is lost, although all read before they write."""

    def add() -> None:
        with WireClient.connect(server.address) as client:
            done = 0
            while done < EACH:
                records, end = client.read_all(topic, 0)
                last = int(records[-1].value or b"0") if records else 0
                value = messages.PlainRecord(None, None, b"%d" % (last + 1))
                (answer,) = entry_of(client, messages.ProducePartition(topic, 0, (value,), end))
                done += answer.error is None
                assert answer.error is None or answer.error.code is ErrorCode.OFFSET_OUT_OF_RANGE

    threads = [threading.Thread(target=add) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with WireClient.connect(server.address) as client:
        records, _ = client.read_all(topic, 0)
    assert [int(record.value or b"") for record in records] == list(range(1, WRITERS * EACH + 1))
