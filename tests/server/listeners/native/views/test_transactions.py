"""The calls that show transactions and producers, and those that abort them, on a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from triolog.protocol.errors import ErrorCode, InvalidRequestError, InvalidTxnStateError, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.listeners.native.described import describe_producers, describe_transactions, list_transactions
from triolog.server.listeners.native.group_calls import abort_hanging_transactions, abort_transaction

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition
from tests.support.logs import START_MS, Clock
from tests.support.transactions import TransactionalProducer, committed_values, is_stable

OTHER = TopicPartition("other", 1)


@pytest.fixture
async def broker(fast_path: Path, clock: Clock) -> AsyncIterator[Broker]:
    async with one_partition(fast_path, clock=clock) as broker:
        await broker.topics.create("other", 2)
        yield broker


async def append_without_joining(broker: Broker, producer_id: int = 77, partition: TopicPartition = PARTITION) -> None:
    """As a producer whose coordinator's log was left behind: nobody would end its transaction."""
    records = [(START_MS, None, b"lost", ())]
    batch = build_batch(records, producer_id=producer_id, producer_epoch=4, base_sequence=0, is_transactional=True)
    await broker.writer.append(partition, batch)


def hanging(producer_id: int, partition: TopicPartition = PARTITION) -> m.AbortHangingTransactionsRequest:
    return m.AbortHangingTransactionsRequest((m.HangingTransaction(*partition, producer_id),))


async def listed(broker: Broker, **asked: object) -> list[tuple[str, str, int]]:
    answer = await list_transactions(broker, m.ListTransactionsRequest(**asked))  # type: ignore[arg-type]
    return [(each.transactional_id, each.state, each.open_ms) for each in answer.transactions]


async def test_what_is_open_longest_comes_first_then_what_was_used_last(broker: Broker, clock: Clock) -> None:
    for name in ("idle", "idle too", "younger", "oldest"):
        await TransactionalProducer.start(broker, name)
        clock.advance(1)
    for name in ("oldest", "younger"):
        await (await TransactionalProducer.start(broker, name)).produce(PARTITION, name)
        clock.advance(500)
    assert await listed(broker) == [
        ("oldest", "Ongoing", 1000),
        ("younger", "Ongoing", 500),
        ("idle too", "Empty", -1),
        ("idle", "Empty", -1),
    ]
    assert await listed(broker, states=("Empty",)) == [("idle too", "Empty", -1), ("idle", "Empty", -1)]
    assert await listed(broker, states=()) == []
    assert await listed(broker, open_for_ms=501) == [("oldest", "Ongoing", 1000)]
    assert len(await listed(broker, open_for_ms=0)) == 2
    answer = await list_transactions(broker, m.ListTransactionsRequest(max_transactions=1))
    [oldest] = answer.transactions
    assert (answer.left_out, oldest.transactional_id, oldest.partition_count, oldest.timeout_ms) == (3, "oldest", 1, 60_000)
    with pytest.raises(InvalidRequestError, match="'Open' is not a state of a transaction"):
        await listed(broker, states=("Open",))


async def test_a_description_has_the_partitions_and_what_is_not_known_has_an_error(broker: Broker, clock: Clock) -> None:
    producer = await TransactionalProducer.start(broker)
    for partition in (PARTITION, OTHER):
        await producer.produce(partition, "v")
    clock.advance(7)
    found, missing = (await describe_transactions(broker, m.DescribeTransactionsRequest(("mover", "nobody")))).transactions
    assert [each.topic_partition for each in found.partitions] == sorted([PARTITION, OTHER])
    assert (found.state, found.producer_id, found.start_timestamp, found.open_ms) == (
        "Ongoing",
        producer.producer_id,
        START_MS,
        7,
    )
    assert missing.error is not None
    assert missing.error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_producers_are_told_with_what_they_have_open_and_whether_it_hangs(broker: Broker) -> None:
    await broker.writer.append(
        PARTITION, build_batch([(START_MS, None, b"v", ())], producer_id=500, producer_epoch=0, base_sequence=0)
    )
    owner = await TransactionalProducer.start(broker)
    await owner.produce(PARTITION, "v")
    await append_without_joining(broker)
    asked = tuple(m.Partition(*each) for each in (PARTITION, OTHER, TopicPartition(TOPIC, 9)))
    first, empty, missing = (await describe_producers(broker, m.DescribeProducersRequest(asked))).partitions
    assert [(each.producer_id, each.transaction_start_offset, each.is_hanging) for each in first.producers] == [
        (owner.producer_id, 1, False),
        (77, 2, True),
        (500, -1, False),
    ]
    assert (first.producers[1].producer_epoch, first.producers[1].last_sequence) == (4, 0)
    assert (empty.producers, empty.error) == ((), None)
    assert missing.error is not None
    [only] = (await describe_producers(broker, m.DescribeProducersRequest(asked[:1], open_only=True))).partitions
    assert [each.producer_id for each in only.producers] == [owner.producer_id, 77]
    [few] = (await describe_producers(broker, m.DescribeProducersRequest(asked[:1], max_producers=1))).partitions
    assert ([each.producer_id for each in few.producers], few.left_out) == ([owner.producer_id], 2)


async def test_an_aborted_transaction_is_gone_everywhere_and_its_producer_is_fenced(broker: Broker) -> None:
    producer = await TransactionalProducer.start(broker)
    for partition in (PARTITION, OTHER):
        await producer.produce(partition, "taken back")
    await abort_transaction(broker, m.AbortTransactionRequest("mover"))
    for partition in (PARTITION, OTHER):
        assert is_stable(broker, partition)
        assert await committed_values(broker, partition) == []
    assert await listed(broker) == [("mover", "CompleteAbort", -1)]
    with pytest.raises(RequestError, match=r"^PRODUCER_FENCED"):
        await producer.commit()
    again = await TransactionalProducer.start(broker)
    await again.produce(PARTITION, "kept")
    await again.commit()
    assert await committed_values(broker, PARTITION) == ["kept"]


async def test_where_nothing_is_open_nothing_is_aborted(broker: Broker) -> None:
    with pytest.raises(RequestError, match="'mover' is not known") as caught:
        await abort_transaction(broker, m.AbortTransactionRequest("mover"))
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer = await TransactionalProducer.start(broker)
    with pytest.raises(InvalidTxnStateError, match="it is EMPTY"):
        await abort_transaction(broker, m.AbortTransactionRequest("mover"))
    await producer.produce(PARTITION, "kept")
    await producer.commit()
    with pytest.raises(InvalidTxnStateError, match="it is COMPLETE_COMMIT"):
        await abort_transaction(broker, m.AbortTransactionRequest("mover"))
    assert await committed_values(broker, PARTITION) == ["kept"]


async def test_what_hangs_is_aborted_where_it_is_and_readers_go_on(broker: Broker) -> None:
    await append_without_joining(broker)
    await broker.writer.append(PARTITION, [(START_MS, None, b"behind", ())])
    assert await committed_values(broker, PARTITION) == []
    [answer] = (await abort_hanging_transactions(broker, hanging(77))).partitions
    assert (answer.error, answer.start_offset) == (None, 0)
    assert await committed_values(broker, PARTITION) == ["behind"]
    [answer] = (await abort_hanging_transactions(broker, hanging(77))).partitions
    assert isinstance(answer.error, InvalidTxnStateError)


async def test_what_a_transactional_id_has_open_is_not_aborted_on_one_of_its_partitions(broker: Broker) -> None:
    producer = await TransactionalProducer.start(broker)
    await producer.produce(PARTITION, "v")
    asked = (
        *hanging(producer.producer_id).partitions,
        *hanging(producer.producer_id, OTHER).partitions,
        *hanging(1, TopicPartition("nowhere", 0)).partitions,
    )
    answers = (await abort_hanging_transactions(broker, m.AbortHangingTransactionsRequest(asked))).partitions
    assert [each.error and each.error.code for each in answers] == [
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert answers[0].error is not None
    assert "belongs to a transactional id" in answers[0].error.message
    await producer.commit()
    assert await committed_values(broker, PARTITION) == ["v"]
    assert actor_of(broker).log.producers.first_unstable_offset is None
