"""What only the client without trio does: timeouts of a call, interrupts, work by the way. Waits are real, so they are few."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import trio
from triolog.protocol.errors import RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import BlockingClient, BlockingConsumer, BlockingProducer
from triolog.tools.client.errors import ClosedError, ConnectionLostError

from tests.support.native_server_thread import ServerThread

from ..doors import QUICK, RETRIES, faults_on, fill

T0 = TopicPartition("t", 0)


@pytest.fixture
def interrupts() -> list[bool]:
    """As many as are added come as Ctrl-C while `interrupted` connects."""
    return []


@pytest.fixture
def interrupted(thread: ServerThread, interrupts: list[bool]) -> Iterator[BlockingClient]:
    def address() -> tuple[str, int]:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt
        return thread.address()

    with BlockingClient(address, QUICK) as opened:
        yield opened


def committed(client: BlockingClient) -> list[bytes | None]:
    with BlockingConsumer(client, follow=False, isolation="read_committed") as consumer:
        consumer.assign(T0)
        return [record.value for _, record in consumer.records()]


def values_of(thread: ServerThread, partition: int = 0) -> list[bytes | None]:
    return thread.run(lambda server: server.logs["t"][partition].values())


def add_faults(thread: ServerThread, kind: type[Any], *outcomes: Any) -> None:
    thread.run(lambda server: faults_on(server, kind, *outcomes))


def add_records(thread: ServerThread, count: int) -> None:
    thread.run(lambda server: fill(server, count, size=1))


def test_full_batches_are_sent_by_the_way(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingProducer(client, linger_ms=60_000, batch_bytes=1000, enable_idempotence=False) as producer:
        last = [producer.send("t", b"%d" % number, partition=0) for number in range(1000)][-1]
        client.metadata(m.MetadataRequest())  # its answer comes after the server has read what was sent
        assert values_of(thread)[0] == b"0"
        assert not last.is_done


def test_a_producer_that_is_closed_without_a_flush_waits_for_nothing(client: BlockingClient, thread: ServerThread) -> None:
    add_faults(thread, m.ProduceRequest, trio.Event())
    producer = BlockingProducer(client, linger_ms=60_000)
    sent = producer.send("t", b"a", partition=0)
    for wait in (producer.flush, sent.result):
        with pytest.raises(TimeoutError):
            wait(timeout_s=0.01)
    producer.close(flush=False)
    with pytest.raises(ClosedError):
        producer.send("t", b"a")


def test_next_fetch_is_under_way_before_batches_are_handed_out(client: BlockingClient, thread: ServerThread) -> None:
    add_records(thread, 10)
    with BlockingConsumer(client, partition_max_bytes=1) as consumer:
        consumer.assign(T0)
        assert consumer.next_batch() is not None
        client.metadata(m.MetadataRequest())  # its answer comes after the server has read the fetch
        fetches = thread.run(lambda server: [one for one in server.requests if isinstance(one, m.FetchRequest)])
        assert [fetch.partitions[0].offset for fetch in fetches][:2] == [0, 1]


def test_following_waits_and_then_says_that_nothing_came(client: BlockingClient, thread: ServerThread) -> None:
    with BlockingConsumer(client, max_wait_ms=10) as consumer:
        consumer.assign(T0)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            consumer.next_batch(timeout_s=0.05)
        assert time.monotonic() - started >= 0.05
        add_records(thread, 2)
        assert [record.offset for _, record in islice(consumer.records(), 2)] == [0, 1]
        assert consumer.position(T0) == 2


def test_short_polls_are_told_that_the_server_is_gone(client: BlockingClient, thread: ServerThread) -> None:
    add_records(thread, 1)
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
        add_records(thread, 1)
        assert consumer.next_batch(timeout_s=10) is not None


def test_failures_before_an_answer_do_not_count_for_those_after_it(client: BlockingClient, thread: ServerThread) -> None:
    def next_value() -> bytes | None:
        batch = consumer.next_batch(timeout_s=10)
        return batch.records()[0].value

    with BlockingConsumer(client, retry_timeout_ms=500, retry_backoff_ms=1, max_wait_ms=5) as consumer:
        consumer.assign(T0)
        add_records(thread, 1)
        add_faults(thread, m.FetchRequest, "drop")
        assert next_value() == b"0"
        quiet_until = time.monotonic() + 0.6
        while time.monotonic() < quiet_until:
            with pytest.raises(TimeoutError):
                consumer.next_batch(timeout_s=0.01)
        add_faults(thread, m.FetchRequest, "drop", "drop")
        for value in (b"1", b"2"):  # the first may come with the fetch that is under way
            add_records(thread, 1)
            assert next_value() == value


def test_an_interrupted_send_loses_nothing(thread: ServerThread, interrupted: BlockingClient, interrupts: list[bool]) -> None:
    with BlockingProducer(interrupted, retry_backoff_ms=1, linger_ms=60_000, max_request_bytes=1) as producer:
        producer.send("t", b"before", partition=0).result(10)
        futures = [producer.send("t", b"%d" % partition, partition=partition) for partition in range(2)]
        interrupts.append(True)
        thread.move()
        with pytest.raises(KeyboardInterrupt):
            producer.flush(10)
        producer.flush(10)
        assert [future.value().offset for future in futures] == [1, 0]
    assert (values_of(thread, 0), values_of(thread, 1)) == ([b"before", b"0"], [b"1"])


def test_interrupted_commit_is_no_obstacle(thread: ServerThread, interrupted: BlockingClient, interrupts: list[bool]) -> None:
    def commit() -> None:
        with producer.transaction():
            producer.send("t", b"a", partition=0).result(10)
            interrupts.append(True)

    add_faults(thread, m.EndTransactionRequest, "drop")
    with BlockingProducer(interrupted, transactional_id="x", linger_ms=0, **RETRIES) as producer:
        with pytest.raises(KeyboardInterrupt):
            commit()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
    assert committed(interrupted) == [b"b"]


def test_an_abort_whose_answer_does_not_come_ends_in_its_time(thread: ServerThread, client: BlockingClient) -> None:
    add_faults(thread, m.EndTransactionRequest, trio.Event())
    with BlockingProducer(client, transactional_id="x", linger_ms=0, **RETRIES) as producer:
        transaction = producer.transaction()
        transaction.begin()
        producer.send("t", b"a", partition=0).result(10)
        began = time.monotonic()
        with pytest.raises(RequestError, match="no response to end_transaction within"):
            transaction.abort(timeout_s=0.05)
        assert time.monotonic() - began < QUICK.request_timeout_ms / 1000 / 3
        transaction.abort()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
    assert committed(client) == [b"b"]


def test_an_abort_that_has_to_connect_to_nobody_ends_in_its_time(thread: ServerThread) -> None:
    addresses = [thread.address()]
    with socket.create_server(("127.0.0.1", 0)) as silent, BlockingClient(lambda: addresses[-1], QUICK) as client:
        with BlockingProducer(client, transactional_id="x", linger_ms=0, **RETRIES) as producer:
            transaction = producer.transaction()
            transaction.begin()
            producer.send("t", b"a", partition=0).result(10)
            addresses.append(silent.getsockname())
            thread.run(lambda server: server.kill())
            began = time.monotonic()
            with pytest.raises(ConnectionLostError):
                transaction.abort(timeout_s=0.05)
            assert time.monotonic() - began < QUICK.connect_timeout_ms / 1000 / 3


def test_a_call_within_a_deadline_ends_by_it(thread: ServerThread, client: BlockingClient) -> None:
    assert client.timeout_s(1000) == 31
    with client.within(time.monotonic() + 5):
        assert client.timeout_s(1000) <= 5
        with client.within(time.monotonic() + 500):
            assert client.timeout_s(1000) <= 5, "the nearest deadline counts"
    assert client.timeout_s(1000) == 31
    assert client.call(m.MetadataRequest()) is not None
