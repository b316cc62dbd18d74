"""Idempotence, transactions and groups without trio, against a server in another thread with faults."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from triolog.protocol.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTxnStateError,
    RequestError,
    UnsupportedVersionError,
)
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.tools.client.blocking import (
    BlockingAdmin,
    BlockingClient,
    BlockingConsumer,
    BlockingProducer,
    CommittedOffset,
)
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.errors import ConnectionLostError

from tests.support.native_server_thread import ServerThread, serving

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
QUICK = ClientConfig(reconnect_backoff_ms=1, reconnect_backoff_max_ms=5)
RETRIES = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "linger_ms": 0}


@pytest.fixture
def thread() -> Iterator[ServerThread]:
    with serving(t=2) as handle:
        yield handle


@pytest.fixture
def client(thread: ServerThread) -> Iterator[BlockingClient]:
    with BlockingClient(thread.address, QUICK) as opened:
        yield opened


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """Where connections are accepted by the kernel and nobody ever reads."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


def faults_on(thread: ServerThread, kind: type[Any], *outcomes: Any) -> None:
    left = list(outcomes)
    thread.run(lambda server: server.faults.append(lambda one: left.pop(0) if isinstance(one, kind) and left else None))


def values_of(thread: ServerThread, partition: int = 0) -> list[bytes | None]:
    return thread.run(lambda server: server.logs["t"][partition].values())


def ends(thread: ServerThread) -> list[bool]:
    return thread.run(
        lambda server: [request.commit for request in server.requests if isinstance(request, m.EndTransactionRequest)]
    )


def committed(client: BlockingClient) -> list[bytes | None]:
    with BlockingConsumer(client, follow=False, isolation="read_committed") as consumer:
        consumer.assign(T0)
        return [record.value for _, record in consumer.records()]


def test_lost_answers_write_nothing_twice_and_keep_the_order(thread: ServerThread, client: BlockingClient) -> None:
    faults_on(thread, m.ProduceRequest, "drop after", None, "drop", "drop after", "drop after")
    with BlockingProducer(client, **RETRIES) as producer:
        sent = [producer.send("t", b"%d" % number, partition=0) for number in range(20)]
        assert [record.result(10).offset for record in sent] == list(range(20))
    assert values_of(thread) == [b"%d" % number for number in range(20)]


def test_a_producer_id_is_asked_for_until_it_comes(thread: ServerThread, client: BlockingClient) -> None:
    faults_on(thread, m.InitProducerRequest, "drop", "drop after")
    with BlockingProducer(client, **RETRIES) as producer:
        assert producer.send("t", b"a", partition=0).result(10).offset == 0


def test_a_server_without_producer_ids_is_told_of_with_the_way_out(thread: ServerThread, client: BlockingClient) -> None:
    faults_on(thread, m.InitProducerRequest, UnsupportedVersionError("api is 'init_producer'"))
    with BlockingProducer(client, **RETRIES) as producer:
        sent = producer.send("t", b"a", partition=0)
        with pytest.raises(UnsupportedVersionError, match="enable_idempotence=False"):
            sent.result(10)
        with pytest.raises(UnsupportedVersionError):
            producer.send("t", b"b")


def test_without_idempotence_nobody_asks_for_a_producer_id(thread: ServerThread, client: BlockingClient) -> None:
    with BlockingProducer(client, acks=1, **RETRIES) as producer:
        producer.send("t", b"a", partition=0).result(10)
    assert not thread.run(lambda server: [one for one in server.requests if isinstance(one, m.InitProducerRequest)])


def test_a_block_commits_and_an_exception_aborts(thread: ServerThread, client: BlockingClient) -> None:
    def fail(producer: BlockingProducer) -> None:
        with producer.transaction() as transaction:
            producer.send("t", b"b", partition=0).result(10)
            transaction.send_offsets("g", {T0: 9})
            raise LookupError("mine")

    with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
        with producer.transaction() as transaction:
            producer.send("t", b"a", partition=0).result(10)
            transaction.send_offsets("g", {T0: 7})
            assert committed(client) == []
        with pytest.raises(LookupError, match="mine"):
            fail(producer)
        assert committed(client) == [b"a"]
    assert ends(thread) == [True, False]
    assert thread.run(lambda server: server.groups) == {"g": {T0: (7, None)}}


def test_a_record_that_fails_fails_the_commit_and_aborts(thread: ServerThread, client: BlockingClient) -> None:
    faults_on(thread, m.ProducePartition, InvalidRecordError("bad"))

    def fail(producer: BlockingProducer) -> None:
        with producer.transaction():
            producer.send("t", b"a", partition=0)

    with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
        with pytest.raises(InvalidRecordError, match="bad"):
            fail(producer)
        with producer.transaction():
            producer.send("t", b"b", partition=0)
    assert committed(client) == [b"b"]
    assert ends(thread) == [False, True]


def test_a_lost_answer_to_the_commit_is_asked_for_again(thread: ServerThread, client: BlockingClient) -> None:
    busy = RequestError("later", ErrorCode.CONCURRENT_TRANSACTIONS)
    faults_on(thread, m.EndTransactionRequest, "drop", "drop after", busy)
    with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
        with producer.transaction():
            producer.send("t", b"a", partition=0)
    assert committed(client) == [b"a"]
    assert ends(thread) == [True] * 4


def test_an_older_producer_is_fenced_for_good(thread: ServerThread, client: BlockingClient) -> None:
    older = BlockingProducer(client, transactional_id="x", **RETRIES)
    transaction = older.transaction()
    transaction.begin()
    older.send("t", b"older", partition=0).result(10)
    with BlockingProducer(client, transactional_id="x", **RETRIES) as newer, newer.transaction():
        newer.send("t", b"newer", partition=0)
    with pytest.raises(RequestError, match="fenced"):
        transaction.commit()
    with pytest.raises(RequestError, match="fenced"):
        older.send("t", b"late")
    older.close(flush=False)
    assert committed(client) == [b"newer"]


def test_sending_outside_of_a_transaction_is_refused(client: BlockingClient) -> None:
    with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
        with pytest.raises(InvalidTxnStateError, match="begin one first"):
            producer.send("t", b"a")
    with BlockingProducer(client) as plain, pytest.raises(InvalidTxnStateError, match="without transactional_id"):
        plain.transaction()


def test_a_group_goes_on_where_it_committed(thread: ServerThread, client: BlockingClient) -> None:
    with BlockingProducer(client, **RETRIES) as producer:
        for number in range(4):
            producer.send("t", b"%d" % number, partition=0).result(10)
    faults_on(thread, m.CommitOffsetsRequest, "drop", "drop after")
    with BlockingConsumer(client, follow=False, group="g", retry_backoff_ms=1) as consumer:
        consumer.assign([T0, T1])
        consumer.next_batch(10)
        consumer.commit()
        assert consumer.committed() == {T0: CommittedOffset(1), T1: CommittedOffset(0)}
    with BlockingConsumer(client, follow=False, group="g") as consumer:
        consumer.assign([T0, T1])
        assert consumer.seek_to_committed() == {T0: 1, T1: 0}
        assert [record.offset for _, record in consumer.records()] == [1, 2, 3]
        assert consumer.positions() == {T0: 4, T1: 0}
    with BlockingConsumer(client) as consumer, pytest.raises(InvalidRequestError, match="group="):
        consumer.commit()


def test_admin_changes_topics_and_groups(thread: ServerThread, client: BlockingClient) -> None:
    admin = BlockingAdmin(client)
    thread.run(lambda server: server.logs["t"][0].append((m.PlainRecord(1, None, b"a"), m.PlainRecord(2, None, b"b"))))
    admin.create_partitions("t", 4)
    assert len(admin.describe_topic("t").partitions) == 4
    admin.alter_config("t", {"retention.ms": "1"})
    assert admin.delete_records({T0: 1}) == {T0: 1}
    admin.commit_group_offsets("g", {T0: 1})
    assert admin.list_groups() == ["g"]
    assert admin.group_offsets("g") == {T0: CommittedOffset(1)}
    admin.delete_groups("g")
    with pytest.raises(RequestError, match="no group g"):
        admin.delete_groups("g")


def test_an_interrupted_commit_leaves_room_for_the_next_transaction(thread: ServerThread) -> None:
    interrupts: list[bool] = []

    def address() -> tuple[str, int]:
        if interrupts:
            interrupts.pop()
            raise KeyboardInterrupt  # as Ctrl-C while it connects
        return thread.address()

    def commit(producer: BlockingProducer) -> None:
        with producer.transaction():
            producer.send("t", b"a", partition=0).result(10)
            interrupts.append(True)

    faults_on(thread, m.EndTransactionRequest, "drop")
    with BlockingClient(address, QUICK) as client:
        with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
            with pytest.raises(KeyboardInterrupt):
                commit(producer)
            with producer.transaction():
                producer.send("t", b"b", partition=0)
        assert committed(client) == [b"b"]


def test_a_commit_whose_outcome_is_unknown_is_not_aborted_and_may_be_left(thread: ServerThread, client: BlockingClient) -> None:
    faults_on(thread, m.EndTransactionRequest, *["drop"] * 1000)
    with BlockingProducer(client, transactional_id="x", max_block_ms=50, **RETRIES) as producer:
        transaction = producer.transaction()
        transaction.begin()
        producer.send("t", b"a", partition=0).result(10)
        with pytest.raises(ConnectionLostError):
            transaction.commit()
        thread.run(lambda server: server.faults.clear())
        with pytest.raises(InvalidTxnStateError, match="commit again, or begin the next transaction"):
            transaction.abort()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
    assert committed(client) == [b"b"]


def test_an_end_that_was_asked_for_twice_does_not_end_the_next_transaction_when_it_arrives(
    thread: ServerThread, client: BlockingClient
) -> None:
    faults_on(thread, m.EndTransactionRequest, "drop")
    with BlockingProducer(client, transactional_id="x", **RETRIES) as producer, BlockingClient(thread.address, QUICK) as late:
        with producer.transaction():
            producer.send("t", b"a", partition=0).result(10)
        delayed = thread.run(lambda server: next(one for one in server.requests if isinstance(one, m.EndTransactionRequest)))
        with producer.transaction():
            producer.send("t", b"b", partition=0).result(10)
            with pytest.raises(RequestError, match="fenced"):
                late.call(delayed)
            assert committed(late) == [b"a"]
    assert committed(client) == [b"a", b"b"]


def test_an_abort_whose_answer_does_not_come_ends_in_its_time(thread: ServerThread, client: BlockingClient) -> None:
    faults_on(thread, m.EndTransactionRequest, trio.Event())
    with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
        transaction = producer.transaction()
        transaction.begin()
        producer.send("t", b"a", partition=0).result(10)
        began = time.monotonic()
        with pytest.raises(RequestError, match="in time"):
            transaction.abort(timeout_s=0.05)
        assert time.monotonic() - began < QUICK.request_timeout_ms / 1000 / 3
        transaction.abort()
        with producer.transaction():
            producer.send("t", b"b", partition=0)
    assert committed(client) == [b"b"]


def test_an_abort_that_has_to_connect_to_nobody_ends_in_its_time(thread: ServerThread, silent: tuple[str, int]) -> None:
    addresses = [thread.address()]
    with BlockingClient(lambda: addresses[-1], QUICK) as client:
        with BlockingProducer(client, transactional_id="x", **RETRIES) as producer:
            transaction = producer.transaction()
            transaction.begin()
            producer.send("t", b"a", partition=0).result(10)
            addresses.append(silent)
            thread.run(lambda server: server.kill())
            began = time.monotonic()
            with pytest.raises(ConnectionLostError):
                transaction.abort(timeout_s=0.05)
            assert time.monotonic() - began < QUICK.connect_timeout_ms / 1000 / 3


def test_what_is_begun_within_a_deadline_ends_by_it_and_what_comes_after_has_its_own_time(
    thread: ServerThread, client: BlockingClient
) -> None:
    assert client.timeout_s(1000) == 31
    with client.within(time.monotonic() + 5):
        assert client.timeout_s(1000) <= 5
        with client.within(time.monotonic() + 500):
            assert client.timeout_s(1000) <= 5, "the nearest deadline counts"
    assert client.timeout_s(1000) == 31
    assert client.call(m.MetadataRequest()) is not None
