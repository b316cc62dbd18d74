"""The clients without trio, against a server in another thread; clock and sockets are real, so waits are short."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import trio
from triolog.protocol.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import (
    AtOffset,
    AtTime,
    BlockingAdmin,
    BlockingClient,
    BlockingConsumer,
    BlockingProducer,
)
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.errors import BufferFullError, ClosedError, ConnectionLostError, DeliveryTimedOutError

from tests.support.native_server import NativeServer
from tests.support.native_server_thread import ServerThread, serving

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
QUICK = ClientConfig(reconnect_backoff_ms=1, reconnect_backoff_max_ms=5)


@pytest.fixture
def thread() -> Iterator[ServerThread]:
    with serving(t=2) as handle:
        yield handle


@pytest.fixture
def client(thread: ServerThread) -> Iterator[BlockingClient]:
    with BlockingClient(thread.address, QUICK) as opened:
        yield opened


def values_of(thread: ServerThread, partition: int = 0) -> list[bytes | None]:
    return thread.run(lambda server: server.logs["t"][partition].values())


def add_faults(thread: ServerThread, kind: type[Any], *outcomes: Any) -> None:
    """One outcome for each request or partition of this kind; None is no fault."""
    left = list(outcomes)
    thread.run(lambda server: server.faults.append(lambda one: left.pop(0) if isinstance(one, kind) and left else None))


def fill(thread: ServerThread, count: int) -> None:
    """Append batches of one record; timestamps are ten times the offsets."""

    def append(server: NativeServer) -> None:
        log = server.logs["t"][0]
        for offset in range(log.high_watermark, log.high_watermark + count):
            log.append(build_batch([(offset * 10, None, b"%d" % offset, ())]))
        server.appended()

    thread.run(append)


def without_repetitions(values: list[bytes | None]) -> list[bytes | None]:
    return list(dict.fromkeys(values))


def test_calls_give_messages(client: BlockingClient) -> None:
    batch = build_batch([(5, None, b"value", ())])
    assert client.hello().server == "fake"
    produced = client.produce(m.ProduceRequest((m.ProducePartition("t", 0, batch),)))
    assert produced is not None
    assert produced.partitions[0].base_offset == 0
    assert client.produce(m.ProduceRequest((m.ProducePartition("t", 0, batch),), acks=0)) is None
    fetched = client.fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),)))
    assert len(fetched.partitions[0].records) == 2 * len(batch)
    lookup = m.OffsetsForTimesRequest((m.OffsetsForTimesPartition("t", 0, 5),))
    assert client.offsets_for_times(lookup).partitions[0].offset == 0
    assert client.explain(m.ExplainRequest((m.ExplainPartition("t", 0, offset=0),))).partitions[0].walk is not None


def test_admin_does_what_it_does_with_trio(client: BlockingClient, thread: ServerThread) -> None:
    admin = BlockingAdmin(client)
    admin.create_topic("new", 3)
    assert [topic.name for topic in admin.list_topics()] == ["new", "t"]
    assert len(admin.describe_topic("new").partitions) == 3
    assert "retention.ms" in admin.describe_config("new")
    admin.delete_topics("new")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topic("new")
    fill(thread, 3)
    assert admin.offsets("t", AtTime(11)) == {T0: 2, T1: 0}
    assert admin.offsets_for_times({T0: 10})[T0].offset == 1
    assert admin.explain(T0, AtOffset(1))["asked"]["offset"] == 1


def test_error_of_a_call_is_raised_and_the_connection_lives(client: BlockingClient, thread: ServerThread) -> None:
    add_faults(thread, m.MetadataRequest, InvalidRequestError("no"))
    with pytest.raises(InvalidRequestError, match="no"):
        client.metadata(m.MetadataRequest())
    client.metadata(m.MetadataRequest())
    assert thread.run(lambda server: server.connections) == 1


def test_lost_connection_is_said_and_the_next_call_goes_to_the_current_address(
    client: BlockingClient, thread: ServerThread
) -> None:
    client.metadata(m.MetadataRequest())
    thread.move()
    with pytest.raises(ConnectionLostError):
        client.metadata(m.MetadataRequest())
    client.metadata(m.MetadataRequest())
    assert thread.run(lambda server: server.connections) == 2


def test_server_that_does_not_answer_is_given_up(thread: ServerThread) -> None:
    add_faults(thread, m.MetadataRequest, trio.Event())
    with BlockingClient(thread.address, ClientConfig(request_timeout_ms=50, reconnect_backoff_ms=1)) as client:
        with pytest.raises(RequestTimedOutError, match="no answer to request 2 in time"):
            client.metadata(m.MetadataRequest())
        client.call(m.MetadataRequest(), wait_ms=30_000)


def test_nobody_there_is_a_lost_connection() -> None:
    with serving() as thread:
        address = thread.address()
    where = re.escape(f"could not connect to 127.0.0.1:{address[1]}: ")
    with BlockingClient(address, QUICK) as client, pytest.raises(ConnectionLostError, match=where):
        client.metadata(m.MetadataRequest())


def test_who_did_not_greet_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        where = re.escape(f"could not connect to 127.0.0.1:{address[1]}: no answer to hello in time")
        with BlockingClient(address, ClientConfig(connect_timeout_ms=20)) as client:
            with pytest.raises(ConnectionLostError, match=where):
                client.hello()


def test_closed_client_says_so(client: BlockingClient) -> None:
    client.close()
    with pytest.raises(ClosedError):
        client.metadata(m.MetadataRequest())


def test_produced_records_tell_where_they_are(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingProducer(client, linger_ms=60_000) as producer:
        first = producer.send("t", b"a", key=b"k", timestamp_ms=11, partition=1)
        second = producer.send("t", b"b", timestamp_ms=12, partition=1)
        called: list[str] = []
        second.add_listener(lambda: called.append("second"))
        assert first.result() == ("t", 1, 0, 11)
        assert called == ["second"]
        assert second.result(timeout_s=0) == ("t", 1, 1, 12)
        producer.send("t", b"flushed on leaving", partition=1)
    assert values_of(thread, 1) == [b"a", b"b", b"flushed on leaving"]


def test_records_are_sent_by_the_way_when_batches_are_full(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingProducer(client, linger_ms=60_000, batch_bytes=1000) as producer:
        futures = [producer.send("t", b"%d" % number, partition=0) for number in range(1000)]
        producer.flush()
        assert [future.value().offset for future in futures] == list(range(1000))
        assert producer.buffered_bytes == 0
    assert values_of(thread) == [b"%d" % number for number in range(1000)]


@pytest.mark.parametrize("outcome", ["drop", "drop after"])
def test_lost_connection_is_retried_in_order(client: BlockingClient, thread: ServerThread, outcome: str) -> None:
    add_faults(thread, m.ProduceRequest, None, outcome, None, outcome, outcome)
    expected = [b"%d" % number for number in range(300)]
    with BlockingProducer(client, linger_ms=0, batch_bytes=200, max_request_bytes=500, retry_backoff_ms=1) as producer:
        for value in expected:
            producer.send("t", value, partition=0)
    assert without_repetitions(values_of(thread)) == expected
    assert thread.run(lambda server: server.connections) == 4


def test_server_that_moves_gets_everything(client: BlockingClient, thread: ServerThread) -> None:
    expected = [b"%d" % number for number in range(300)]
    with BlockingProducer(client, linger_ms=0, batch_bytes=500, retry_backoff_ms=1) as producer:
        for number, value in enumerate(expected):
            if number in (100, 200):
                thread.move()
            producer.send("t", value, partition=0)
    assert without_repetitions(values_of(thread)) == expected


def test_error_that_is_final_is_raised_by_its_records_alone(client: BlockingClient, thread: ServerThread) -> None:
    add_faults(thread, m.ProducePartition, InvalidRecordError("bad"))
    with BlockingProducer(client) as producer:
        bad = producer.send("t", b"bad", partition=0)
        with pytest.raises(InvalidRecordError, match="bad"):
            bad.result()
        assert producer.send("t", b"good", partition=0).result().offset == 0


def test_retriable_error_of_a_partition_is_retried(client: BlockingClient, thread: ServerThread) -> None:
    add_faults(thread, m.ProducePartition, *[UnknownTopicOrPartitionError("not yet") for _ in range(3)])
    with BlockingProducer(client, retry_backoff_ms=1) as producer:
        assert producer.send("t", b"a", partition=0).result().offset == 0


def test_delivery_timeout_ends_retries(client: BlockingClient, thread: ServerThread) -> None:
    def go_down(server: NativeServer) -> None:
        server.faults.append(lambda request: "drop" if isinstance(request, m.ProduceRequest) else None)

    with BlockingProducer(client, delivery_timeout_ms=60, retry_backoff_ms=1) as producer:
        thread.run(go_down)
        future = producer.send("t", b"b", partition=0)
        with pytest.raises(DeliveryTimedOutError, match="within delivery_timeout_ms=60"):
            future.result()
        assert producer.buffered_bytes == 0


def test_full_buffer_waits_for_acknowledgements(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingProducer(client, linger_ms=60_000, buffer_bytes=2000) as producer:
        for number in range(50):
            producer.send("t", number.to_bytes(4, "big") + bytes(200), partition=0)
            assert producer.buffered_bytes <= 2000
    numbers = [int.from_bytes((value or b"")[:4], "big") for value in values_of(thread)]
    assert numbers == list(range(50))


def test_full_buffer_is_an_error_after_max_block_ms(client: BlockingClient, thread: ServerThread) -> None:
    add_faults(thread, m.ProduceRequest, trio.Event())
    producer = BlockingProducer(client, linger_ms=60_000, buffer_bytes=600, max_block_ms=30)
    producer.send("t", bytes(400), partition=0)
    with pytest.raises(BufferFullError, match="432 of 600 bytes"):
        producer.send("t", bytes(400), partition=0)
    with pytest.raises(TimeoutError):
        producer.flush(timeout_s=0.01)
    producer.close(flush=False)
    with pytest.raises(ClosedError):
        producer.send("t", b"a")


def test_without_acks_records_have_no_offset(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingProducer(client, acks=0) as producer:
        assert producer.send("t", b"a", timestamp_ms=5, partition=0).result() == ("t", 0, -1, 5)
    client.metadata(m.MetadataRequest())
    assert values_of(thread) == [b"a"]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (AtOffset(0), None, range(10)),
        (AtOffset(4), AtOffset(7), range(4, 7)),
        (AtTime(41), AtTime(71), range(5, 8)),
        (AtTime(1000), None, range(0)),
    ],
)
def test_ranges_by_offset_and_by_time(
    client: BlockingClient, thread: ServerThread, start: Any, end: Any, expected: range
) -> None:
    fill(thread, 10)
    with BlockingConsumer(client, follow=False, partition_max_bytes=200) as consumer:
        consumer.assign([T0], start=start, end=end)
        assert [record.offset for _, record in consumer.records()] == list(expected)
        assert consumer.next_batch() is None


def test_next_fetch_is_under_way_before_batches_are_handed_out(client: BlockingClient, thread: ServerThread) -> None:
    fill(thread, 10)
    with BlockingConsumer(client, partition_max_bytes=1) as consumer:
        consumer.assign(T0)
        batch = consumer.next_batch()
        assert batch is not None
        client.metadata(m.MetadataRequest())  # its answer comes after the server has read the fetch
        fetches = thread.run(lambda server: [one for one in server.requests if isinstance(one, m.FetchRequest)])
        assert [fetch.partitions[0].offset for fetch in fetches] == [0, 1]


def test_following_waits_and_then_says_that_nothing_came(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingConsumer(client, max_wait_ms=10) as consumer:
        consumer.assign(T0)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            consumer.next_batch(timeout_s=0.05)
        assert time.monotonic() - started >= 0.05
        fill(thread, 2)
        assert [record.offset for _, record in islice(consumer.records(), 2)] == [0, 1]
        assert consumer.position(T0) == 2


def test_seek_and_stop_drop_what_was_fetched_ahead(client: BlockingClient, thread: ServerThread) -> None:
    fill(thread, 10)
    with BlockingConsumer(client) as consumer:
        consumer.assign(T0)
        consumer.next_batch()
        consumer.seek(T0, AtOffset(7))
        consumer.stop_at(T0, AtTime(90))
        assert [record.offset for _, record in consumer.records()] == [7, 8]


def test_lost_connections_are_survived_while_reading(client: BlockingClient, thread: ServerThread) -> None:
    fill(thread, 30)
    add_faults(thread, m.FetchRequest, None, "drop", None, "drop after", "drop")
    with BlockingConsumer(client, follow=False, partition_max_bytes=200, retry_backoff_ms=1) as consumer:
        consumer.assign(T0)
        assert [record.offset for _, record in consumer.records()] == list(range(30))


def test_short_polls_are_told_that_the_server_is_gone(client: BlockingClient, thread: ServerThread) -> None:
    fill(thread, 1)
    with BlockingConsumer(client, retry_timeout_ms=60, retry_backoff_ms=1, retry_backoff_max_ms=2) as consumer:
        consumer.assign(T0)
        assert consumer.next_batch(timeout_s=10) is not None
        add_faults(thread, m.FetchRequest, *["drop"] * 1000)
        thread.run(lambda server: server.kill())
        give_up_at = time.monotonic() + 10

        def poll_until_told() -> None:
            while time.monotonic() < give_up_at:
                with contextlib.suppress(TimeoutError):
                    consumer.next_batch(timeout_s=0.003)

        with pytest.raises(ConnectionLostError):
            poll_until_told()
        thread.run(lambda server: server.faults.clear())
        fill(thread, 1)
        assert consumer.next_batch(timeout_s=10) is not None


def test_failures_before_an_answer_do_not_count_for_those_after_it(client: BlockingClient, thread: ServerThread) -> None:
    def next_value() -> bytes | None:
        batch = consumer.next_batch(timeout_s=10)
        assert batch is not None
        return batch.records()[0].value

    with BlockingConsumer(client, retry_timeout_ms=500, retry_backoff_ms=1, max_wait_ms=5) as consumer:
        consumer.assign(T0)
        fill(thread, 1)
        add_faults(thread, m.FetchRequest, "drop")
        assert next_value() == b"0"
        quiet_until = time.monotonic() + 0.6
        while time.monotonic() < quiet_until:
            with pytest.raises(TimeoutError):
                consumer.next_batch(timeout_s=0.01)
        add_faults(thread, m.FetchRequest, "drop", "drop")
        for value in (b"1", b"2"):  # the first may come with the fetch that is under way
            fill(thread, 1)
            assert next_value() == value


@pytest.mark.parametrize("offset_reset", [None, "earliest"])
def test_offset_that_retention_has_passed(client: BlockingClient, thread: ServerThread, offset_reset: str | None) -> None:
    def retain(server: NativeServer) -> None:
        server.logs["t"][0].log_start_offset = 5

    fill(thread, 10)
    thread.run(retain)
    with BlockingConsumer(client, follow=False, offset_reset=offset_reset) as consumer:
        consumer.assign(T0, start=AtOffset(2))
        if offset_reset is None:
            with pytest.raises(OffsetOutOfRangeError):
                consumer.next_batch()
        else:
            assert [record.offset for _, record in consumer.records()] == list(range(5, 10))


def test_a_producer_that_ends_while_a_record_waits_for_room_takes_it_no_more(
    client: BlockingClient, thread: ServerThread
) -> None:
    add_faults(thread, m.ProducePartition, InvalidProducerEpochError("fenced"))
    producer = BlockingProducer(client, linger_ms=60_000, buffer_bytes=600)
    producer.send("t", bytes(400), partition=0)
    with pytest.raises(InvalidProducerEpochError, match="fenced"):
        producer.send("t", bytes(400), partition=0)
    producer.close()


def test_an_interrupt_while_sending_loses_nothing(thread: ServerThread) -> None:
    interrupts: list[bool] = []

    def address() -> tuple[str, int]:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt  # as Ctrl-C while it connects
        return thread.address()

    with BlockingClient(address, QUICK) as client:
        with BlockingProducer(client, retry_backoff_ms=1, linger_ms=60_000, max_request_bytes=1) as producer:
            producer.send("t", b"before", partition=0).result(10)
            futures = [producer.send("t", b"%d" % partition, partition=partition) for partition in range(2)]
            interrupts.append(True)
            thread.move()
            with pytest.raises(KeyboardInterrupt):
                producer.flush(10)
            producer.flush(10)
            assert [future.value().offset for future in futures] == [1, 0]
    assert (values_of(thread, 0), values_of(thread, 1)) == ([b"before", b"0"], [b"1"])


def test_requests_stay_within_the_servers_frames(client: BlockingClient, thread: ServerThread) -> None:
    def limit(server: NativeServer) -> None:
        server.max_frame_bytes = 20_000

    thread.run(limit)
    values = [bytes([number]) * 1000 for number in range(50)]
    with BlockingProducer(client) as producer:
        sent = [producer.send("t", value, partition=0) for value in values]
        assert [record.result(10).offset for record in sent] == list(range(50))
        with pytest.raises(RecordTooLargeError, match="max_frame_bytes=20000"):
            producer.send("t", bytes(20_000), partition=0)
    assert values_of(thread) == values
