"""Transactions of the trio producer against a server with faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from triolog.protocol.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    RequestError,
    UnsupportedVersionError,
)
from triolog.protocol.native import messages as m
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.client.connection import Client, connect
from triolog.tools.client.consumer import open_consumer
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.producer import Producer, SentRecord, open_producer
from triolog.tools.client.transaction import Transaction

from tests.support.native_server import NativeServer

T0 = TopicPartition("t", 0)


def faults_on(server: NativeServer, kind: type[Any], *outcomes: Any) -> None:
    """One outcome for each request of this kind; None is no fault."""
    left = list(outcomes)
    server.faults.append(lambda one: left.pop(0) if isinstance(one, kind) and left else None)


def ends(server: NativeServer) -> list[bool]:
    return [request.commit for request in server.requests if isinstance(request, m.EndTransactionRequest)]


@asynccontextmanager
async def transactional(server: NativeServer, **options: Any) -> AsyncIterator[Producer]:
    async with connect(open_stream=server.open_stream) as client:
        async with open_producer(client, transactional_id="x", linger_ms=0, **options) as producer:
            yield producer


async def committed(server: NativeServer) -> list[bytes | None]:
    async with connect(open_stream=server.open_stream) as client:
        async with open_consumer(client, follow=False, isolation=Isolation.READ_COMMITTED) as consumer:
            await consumer.assign(T0)
            return [record.value async for _, record in consumer.records()]


@asynccontextmanager
async def commit_in_doubt(server: NativeServer, fault: str) -> AsyncIterator[tuple[Producer, Transaction]]:
    """A producer whose commit of a record, b"a", had no answer; from now on the server gives some."""
    faults_on(server, m.EndTransactionRequest, *[fault] * 40)
    async with transactional(server, max_block_ms=2_000) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        await producer.send("t", b"a", partition=0)
        with pytest.raises(ConnectionLostError):
            await transaction.commit()
        server.faults.clear()
        yield producer, transaction


async def test_a_block_commits_at_its_end(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        async with producer.transaction():
            sent = await producer.send("t", b"a", partition=0)
            assert (await sent).offset == 0
            assert await committed(server) == []
        assert await committed(server) == [b"a"]
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"a", b"b"]
    assert ends(server) == [True, True]


async def test_an_exception_aborts_and_goes_on_its_way(server: NativeServer, clock: MockClock) -> None:
    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            raise LookupError("mine")

    async with transactional(server) as producer:
        with pytest.raises(LookupError, match="mine"):
            await fail(producer)
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert ends(server) == [False, True]


async def test_what_was_not_sent_yet_is_given_up_by_an_abort(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        sent = await producer.send("t", b"a", partition=0)
        await transaction.abort()
        assert sent.is_done
        with pytest.raises(InvalidTxnStateError, match="no transaction is open"):
            await transaction.commit()


async def test_a_record_that_fails_fails_the_commit_and_aborts(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        server.faults.append(lambda one: InvalidRecordError("bad") if isinstance(one, m.ProducePartition) else None)
        with pytest.raises(InvalidRecordError, match="bad"):
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        server.faults.clear()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert ends(server) == [False, True]


async def test_after_a_failed_record_sending_raises_what_it_failed_with(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        server.faults.append(lambda one: InvalidRecordError("bad") if isinstance(one, m.ProducePartition) else None)
        transaction = producer.transaction()
        await transaction.begin()
        sent = await producer.send("t", b"a", partition=0)
        with pytest.raises(InvalidRecordError):
            await sent
        with pytest.raises(InvalidRecordError):
            await producer.send("t", b"b", partition=0)
        await transaction.abort()


async def test_sending_outside_of_a_transaction_is_refused(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        with pytest.raises(InvalidTxnStateError, match="begin one first"):
            await producer.send("t", b"a")
        async with producer.transaction():
            with pytest.raises(InvalidTxnStateError, match="a transaction is open"):
                await producer.transaction().begin()
    assert ends(server) == [], "an empty transaction is nobody's business"


async def test_a_producer_without_id_has_no_transactions(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        with pytest.raises(InvalidTxnStateError, match="without transactional_id"):
            producer.transaction()


async def test_a_lost_answer_to_the_commit_is_asked_for_again(server: NativeServer, clock: MockClock) -> None:
    faults_on(server, m.EndTransactionRequest, "drop", "drop after", RequestError("later", ErrorCode.CONCURRENT_TRANSACTIONS))
    async with transactional(server) as producer:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
    assert await committed(server) == [b"a"]
    assert ends(server) == [True] * 4


async def test_lost_answers_inside_a_transaction_write_nothing_twice(server: NativeServer, clock: MockClock) -> None:
    faults_on(server, m.ProduceRequest, "drop after", None, "drop", "drop after")
    async with transactional(server) as producer:
        async with producer.transaction():
            for number in range(5):
                await (await producer.send("t", b"%d" % number, partition=0))
    assert await committed(server) == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_older_producer_is_fenced_for_good(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as older:
        transaction = older.transaction()
        await transaction.begin()
        await (await older.send("t", b"older", partition=0))
        async with transactional(server) as newer:
            with pytest.raises(RequestError, match="fenced"):
                await transaction.commit()
            with pytest.raises(RequestError, match="fenced"):
                await older.send("t", b"late", partition=0)
            with pytest.raises(RequestError, match="fenced"):
                await older.transaction().begin()
            async with newer.transaction():
                await newer.send("t", b"newer", partition=0)
    assert await committed(server) == [b"newer"]


async def test_a_fenced_batch_ends_the_producer(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as older:
        transaction = older.transaction()
        await transaction.begin()
        async with transactional(server):
            sent = await older.send("t", b"older", partition=0)
            with pytest.raises(InvalidProducerEpochError):
                await sent
            with pytest.raises(InvalidProducerEpochError):
                await transaction.abort()


async def test_a_transaction_whose_end_is_unknown_is_left_behind_for_another_epoch(
    server: NativeServer, clock: MockClock
) -> None:
    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            server.is_down = True
            server.kill()

    async with transactional(server, max_block_ms=2_000, delivery_timeout_ms=1_000) as producer:
        with pytest.raises(RequestError):
            await fail(producer)
        server.is_down = False
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert server.transactional["x"][1] == 1


async def test_a_record_whose_outcome_is_unknown_leads_to_another_epoch(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server, delivery_timeout_ms=1_000) as producer:
        faults_on(server, m.ProduceRequest, *["drop after"] * 50)
        with pytest.raises(RequestError, match="delivery_timeout_ms"):
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        server.faults.clear()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert server.transactional["x"][1] == 1


async def test_a_cancelled_block_aborts(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        with trio.CancelScope() as scope:
            async with producer.transaction():
                await (await producer.send("t", b"a", partition=0))
                scope.cancel()
                await trio.lowlevel.checkpoint()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]
    assert ends(server) == [False, True]


async def test_offsets_of_a_transaction_are_kept_when_it_commits(server: NativeServer, clock: MockClock) -> None:
    async def fail(producer: Producer) -> None:
        async with producer.transaction() as transaction:
            await transaction.send_offsets("g", {T0: 9})
            raise LookupError

    async with transactional(server) as producer:
        async with producer.transaction() as transaction:
            await transaction.send_offsets("g", {T0: 7})
            assert server.groups == {}
        assert server.groups == {"g": {T0: (7, None)}}
        with pytest.raises(LookupError):
            await fail(producer)
    assert server.groups == {"g": {T0: (7, None)}}


async def test_opening_fences_whoever_was_there_and_survives_a_lost_connection(server: NativeServer, clock: MockClock) -> None:
    faults_on(server, m.InitProducerRequest, "drop", "drop after")
    async with transactional(server) as producer:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
    assert await committed(server) == [b"a"]


async def test_a_server_without_producer_ids_is_told_of_with_the_way_out(server: NativeServer, clock: MockClock) -> None:
    faults_on(server, m.InitProducerRequest, *[UnsupportedVersionError("api is 'init_producer'")] * 3)
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        sent = await producer.send("t", b"a")
        with pytest.raises(UnsupportedVersionError, match="enable_idempotence=False"):
            await sent
        with pytest.raises(UnsupportedVersionError):
            await producer.send("t", b"b")


@pytest.mark.parametrize("fault", ["drop", "drop after"])
async def test_a_producer_id_is_asked_for_until_it_comes(server: NativeServer, clock: MockClock, fault: str) -> None:
    faults_on(server, m.InitProducerRequest, fault, fault)
    async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
        sent = await producer.send("t", b"a", partition=0)
        assert (await sent).offset == 0


async def test_a_closed_producer_abandons_what_waits_for_a_producer_id(server: NativeServer, clock: MockClock) -> None:
    faults_on(server, m.InitProducerRequest, *["drop"] * 1000)
    sent: list[SentRecord] = []

    async def fail() -> None:
        async with connect(open_stream=server.open_stream) as client, open_producer(client) as producer:
            sent.append(await producer.send("t", b"a", partition=0))
            await trio.sleep(1)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    with pytest.raises(ClosedError):
        sent[0].value()


def test_options_that_contradict_each_other_are_refused() -> None:
    client: Client = None  # type: ignore[assignment]  # never reached

    async def open_with(**options: Any) -> None:
        async with open_producer(client, **options):
            raise AssertionError("opened")

    for options in ({"acks": 1, "enable_idempotence": True}, {"acks": 0, "transactional_id": "x"}):
        with pytest.raises(ValueError, match="acks"):
            trio.run(lambda options=options: open_with(**options))
    with pytest.raises(ValueError, match="enable_idempotence"):
        trio.run(lambda: open_with(transactional_id="x", enable_idempotence=False))


@pytest.mark.parametrize("kind", [m.ProduceRequest, m.EndTransactionRequest])
async def test_a_cancelled_commit_leaves_room_for_the_next_transaction(
    server: NativeServer, clock: MockClock, kind: type[Any]
) -> None:
    faults_on(server, kind, trio.Event())
    async with transactional(server) as producer:
        with trio.move_on_after(1) as scope:
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert scope.cancelled_caught
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await committed(server) == [b"b"]


async def test_a_commit_whose_outcome_is_unknown_is_not_aborted_and_may_be_left(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server, max_block_ms=2_000) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        await (await producer.send("t", b"a", partition=0))
        server.is_down = True
        server.kill()
        with pytest.raises(ConnectionLostError):
            await transaction.commit()
        server.is_down = False
        with pytest.raises(InvalidTxnStateError, match="commit again, or begin the next transaction"):
            await transaction.abort()
        await transaction.begin()
        await producer.send("t", b"b", partition=0)
        await transaction.commit()
    assert await committed(server) == [b"b"]
    assert ends(server) == [True]
    assert server.transactional["x"][1] == 1


async def test_a_commit_whose_outcome_is_unknown_may_be_asked_for_again(server: NativeServer, clock: MockClock) -> None:
    async with commit_in_doubt(server, "drop after") as (_, transaction):
        await transaction.commit()
        await transaction.begin()
        await transaction.abort()
    assert await committed(server) == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
async def test_an_end_that_was_asked_for_twice_does_not_end_the_next_transaction_when_it_arrives(
    server: NativeServer, clock: MockClock, commit: bool
) -> None:
    faults_on(server, m.EndTransactionRequest, "drop")
    async with transactional(server) as producer, connect(open_stream=server.open_stream) as late:
        transaction = producer.transaction()
        await transaction.begin()
        await (await producer.send("t", b"a", partition=0))
        await (transaction.commit() if commit else transaction.abort())
        delayed = next(one for one in server.requests if isinstance(one, m.EndTransactionRequest))
        async with producer.transaction():
            await (await producer.send("t", b"b", partition=0))
            with pytest.raises(RequestError, match="fenced"):
                await late.call(delayed)
            await (await producer.send("t", b"c", partition=0))
    assert await committed(server) == ([b"a", b"b", b"c"] if commit else [b"b", b"c"])


async def test_a_commit_that_the_caller_repeats_is_followed_by_another_epoch(server: NativeServer, clock: MockClock) -> None:
    async with commit_in_doubt(server, "drop") as (producer, transaction):
        await transaction.commit()
        assert server.transactional["x"][1] == 0
        async with producer.transaction():
            assert server.transactional["x"][1] == 1


async def test_offsets_that_were_sent_twice_do_not_reach_the_next_transaction_when_they_arrive(
    server: NativeServer, clock: MockClock
) -> None:
    faults_on(server, m.CommitOffsetsRequest, "drop")
    async with transactional(server) as producer:
        async with producer.transaction() as transaction:
            await transaction.send_offsets("g", {T0: 7})
        delayed = next(one for one in server.requests if isinstance(one, m.CommitOffsetsRequest))
        assert delayed.transaction is not None
        async with producer.transaction():
            assert server.transactional["x"] == (delayed.transaction.producer_id, delayed.transaction.producer_epoch + 1)


async def test_transactions_without_a_repetition_share_their_epoch(server: NativeServer, clock: MockClock) -> None:
    async with transactional(server) as producer:
        for number in range(3):
            async with producer.transaction() as transaction:
                await producer.send("t", b"%d" % number, partition=0)
                await transaction.send_offsets("g", {T0: number})
    assert server.transactional["x"][1] == 0
