from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode, InvalidProducerEpochError, InvalidRecordError, InvalidTxnStateError, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.types import TopicPartition
from triolog.tools.client.connection import connect
from triolog.tools.client.errors import ConnectionLostError

from ..doors import Served

T0 = TopicPartition("t", 0)


def transactional(served: Served, **options: Any) -> Any:
    return served.producer(transactional_id="x", linger_ms=0, **options)


def ends(served: Served) -> list[bool]:
    return [request.commit for request in served.requests(m.EndTransactionRequest)]


def epoch(served: Served) -> int:
    return served.server.transactional["x"][1]


async def send(producer: Any, value: bytes) -> None:
    await (await producer.send("t", value, partition=0))


@asynccontextmanager
async def commit_in_doubt(served: Served, fault: str) -> AsyncIterator[tuple[Any, Any]]:
    """A producer whose commit of a record, b"a", had no answer; from now on the server gives some."""
    async with transactional(served, max_block_ms=300) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        await send(producer, b"a")
        served.faults_on(m.EndTransactionRequest, *[fault] * 1000)
        with pytest.raises(ConnectionLostError):
            await transaction.commit()
        served.server.faults.clear()
        yield producer, transaction


async def test_a_block_commits_at_its_end_with_its_offsets(served: Served) -> None:
    async with transactional(served) as producer:
        async with producer.transaction() as transaction:
            assert (await (await producer.send("t", b"a", partition=0))).offset == 0
            await transaction.send_offsets("g", {T0: 7})
            assert await served.committed() == []
            assert served.server.groups == {}
        assert await served.committed() == [b"a"]
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await served.committed() == [b"a", b"b"]
    assert ends(served) == [True, True]
    assert served.server.groups == {"g": {T0: (7, None)}}


async def test_an_exception_aborts_and_goes_on_its_way(served: Served) -> None:
    async def fail() -> None:
        async with producer.transaction() as transaction:
            await send(producer, b"a")
            await transaction.send_offsets("g", {T0: 9})
            raise LookupError("mine")

    async with transactional(served) as producer:
        with pytest.raises(LookupError, match="mine"):
            await fail()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
    assert await served.committed() == [b"b"]
    assert ends(served) == [False, True]
    assert served.server.groups == {}


async def test_what_was_not_sent_yet_is_given_up_by_an_abort(served: Served) -> None:
    async with served.producer(transactional_id="x", linger_ms=60_000) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        sent = await producer.send("t", b"a", partition=0)
        await transaction.abort()
        assert sent.is_done
        with pytest.raises(InvalidTxnStateError, match="no transaction is open"):
            await transaction.commit()


async def test_a_record_that_fails_fails_what_is_sent_after_it_and_the_commit_and_aborts(served: Served) -> None:
    async def fail() -> None:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)

    served.faults_on(m.ProducePartition, InvalidRecordError("bad"))
    async with transactional(served) as producer:
        with pytest.raises(InvalidRecordError, match="bad"):
            await fail()
        async with producer.transaction():
            await producer.send("t", b"b", partition=0)
        served.faults_on(m.ProducePartition, InvalidRecordError("bad"))
        transaction = producer.transaction()
        await transaction.begin()
        sent = await producer.send("t", b"c", partition=0)
        with pytest.raises(InvalidRecordError):
            await sent
        with pytest.raises(InvalidRecordError):
            await producer.send("t", b"d", partition=0)
        await transaction.abort()
    assert await served.committed() == [b"b"]
    assert ends(served)[:2] == [False, True]


async def test_sending_outside_of_a_transaction_is_refused(served: Served) -> None:
    async with transactional(served) as producer:
        with pytest.raises(InvalidTxnStateError, match="Begin one first"):
            await producer.send("t", b"a")
        async with producer.transaction():
            with pytest.raises(InvalidTxnStateError, match="a transaction is open"):
                await producer.transaction().begin()
    assert ends(served) == [], "an empty transaction is nobody's business"
    async with served.producer() as plain:
        with pytest.raises(InvalidTxnStateError, match="without transactional_id"):
            plain.transaction()


async def test_lost_answers_write_nothing_twice_and_end_nothing_twice(served: Served) -> None:
    served.faults_on(m.InitProducerRequest, "drop", "drop after")
    served.faults_on(m.ProduceRequest, "drop after", None, "drop", "drop after")
    busy = RequestError("later", ErrorCode.CONCURRENT_TRANSACTIONS)
    served.faults_on(m.EndTransactionRequest, "drop", "drop after", busy)
    async with transactional(served) as producer:
        async with producer.transaction():
            for number in range(5):
                await send(producer, b"%d" % number)
    assert await served.committed() == [b"0", b"1", b"2", b"3", b"4"]
    assert ends(served) == [True] * 4


async def test_an_older_producer_is_fenced_for_good(served: Served) -> None:
    async with transactional(served) as older:
        transaction = older.transaction()
        await transaction.begin()
        await send(older, b"older")
        async with transactional(served) as newer:
            for refused in (transaction.commit, lambda: older.send("t", b"late", partition=0), older.transaction().begin):
                with pytest.raises(RequestError, match="fenced"):
                    await refused()
            async with newer.transaction():
                await newer.send("t", b"newer", partition=0)
            assert await served.committed() == [b"newer"]
            transaction = newer.transaction()
            await transaction.begin()
            async with transactional(served):
                sent = await newer.send("t", b"a batch ends it too", partition=0)
                with pytest.raises(InvalidProducerEpochError):
                    await sent
                with pytest.raises(InvalidProducerEpochError):
                    await transaction.abort()


async def test_a_record_whose_outcome_is_unknown_leads_to_another_epoch(served: Served) -> None:
    async def fail() -> None:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)

    async with transactional(served, delivery_timeout_ms=300) as producer:
        served.faults_on(m.ProduceRequest, *["drop after"] * 1000)
        with pytest.raises(RequestError, match="delivery_timeout_ms"):
            await fail()
        served.server.faults.clear()
        async with producer.transaction():
            await send(producer, b"b")
    assert await served.committed() == [b"b"]
    assert epoch(served) == 1


async def test_a_commit_whose_outcome_is_unknown_is_not_aborted_and_may_be_left(served: Served) -> None:
    async with commit_in_doubt(served, "drop") as (producer, transaction):
        with pytest.raises(InvalidTxnStateError, match="Commit again, or begin the next transaction"):
            await transaction.abort()
        await transaction.begin()
        await producer.send("t", b"b", partition=0)
        await transaction.commit()
    assert await served.committed() == [b"b"]
    assert set(ends(served)) == {True}
    assert epoch(served) == 1


@pytest.mark.parametrize("fault", ["drop", "drop after"])
async def test_a_commit_of_unknown_outcome_is_repeated_and_followed_by_another_epoch(served: Served, fault: str) -> None:
    async with commit_in_doubt(served, fault) as (producer, transaction):
        await transaction.commit()
        assert epoch(served) == 0
        async with producer.transaction():
            assert epoch(served) == 1
        await transaction.begin()
        await transaction.abort()
    assert await served.committed() == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_repeated_end_does_not_end_the_next_transaction(served: Served, commit: bool) -> None:
    served.faults_on(m.EndTransactionRequest, "drop")
    async with transactional(served) as producer, connect(*served.address()) as late:
        transaction = producer.transaction()
        await transaction.begin()
        await send(producer, b"a")
        await (transaction.commit() if commit else transaction.abort())
        delayed = served.requests(m.EndTransactionRequest)[0]
        async with producer.transaction():
            await send(producer, b"b")
            with pytest.raises(RequestError, match="fenced"):
                await late.call(delayed)
            await send(producer, b"c")
    assert await served.committed() == ([b"a", b"b", b"c"] if commit else [b"b", b"c"])


async def test_offsets_that_were_sent_twice_do_not_reach_the_next_transaction_when_they_arrive(served: Served) -> None:
    served.faults_on(m.CommitOffsetsRequest, "drop")
    async with transactional(served) as producer:
        async with producer.transaction() as transaction:
            await transaction.send_offsets("g", {T0: 7})
        delayed = served.requests(m.CommitOffsetsRequest)[0].transaction
        async with producer.transaction():
            assert served.server.transactional["x"] == (delayed.producer_id, delayed.producer_epoch + 1)


async def test_transactions_without_a_repetition_share_their_epoch(served: Served) -> None:
    async with transactional(served) as producer:
        for number in range(3):
            async with producer.transaction() as transaction:
                await producer.send("t", b"%d" % number, partition=0)
                await transaction.send_offsets("g", {T0: number})
    assert epoch(served) == 0
