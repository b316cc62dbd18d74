"""Transactions over the wire, of both protocol versions, and what administrators see of them."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages import transactions

from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

ID = "mover"
Producer = tuple[int, int]


def whose(producer: Producer) -> dict[str, Any]:
    return {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}


async def started(client: KafkaStream, version: int = 5, expected: Producer = (-1, -1)) -> Producer:
    request = ask("InitProducerId", **whose(expected), transaction_timeout_ms=60_000)
    answer = await client.call(request, version)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def joining(producer: Producer, *partitions: int, topic: str = TOPIC) -> Any:
    return ask(
        "AddPartitionsToTxn",
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
    )


async def joined_codes(client: KafkaStream, request: Any, version: int = 3) -> list[int]:
    [topic] = (await client.call(request, version)).results_by_topic_v3_and_below
    return [each.partition_error_code for each in topic.results_by_partition]


async def ended(client: KafkaStream, producer: Producer, *, commit: bool, version: int) -> transactions.EndTxnResponse:
    request = ask("EndTxn", **whose(producer), committed=commit)
    return await client.call(request, version)


def marker_of(producer: Producer, *partitions: int, topic: str = TOPIC, coordinator_epoch: int = 0) -> dict[str, Any]:
    return {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        "coordinator_epoch": coordinator_epoch,
    }


async def marker_codes(client: KafkaStream, *markers: dict[str, Any], version: int = 1) -> list[list[int]]:
    """The codes of each marker's one topic."""
    answer = await client.call(ask("WriteTxnMarkers", markers=list(markers)), version)
    return [[each.error_code for topic in marker.topics for each in topic.partitions] for marker in answer.markers]


async def produce_code(client: KafkaStream, producer: Producer, version: int, kafka: KafkaServer, sequence: int = 0) -> int:
    records = batch("v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, is_transactional=True)
    request = produce_request(records, topic_id=kafka.topic_id(), transactional_id=ID)
    return (await client.call(request, version)).responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(4))
async def test_version_1_goes_on_under_one_epoch(kafka: KafkaServer, client: KafkaStream, version: int, commit: bool) -> None:
    producer = await started(client, min(version, 4))
    for number in range(2):
        assert await joined_codes(client, joining(producer, 0), version) == [0]
        assert await produce_code(client, producer, 9, kafka, number) == 0
        answer = await ended(client, producer, commit=commit, version=min(version, 3))
        assert (answer.error_code, answer.producer_epoch) == (0, -1)
    fetched = (await client.call(fetch_request(fetch_partition(), isolation_level=1), 11)).responses[0].partitions[0]
    assert fetched.last_stable_offset == fetched.high_watermark == 4
    assert [each.first_offset for each in fetched.aborted_transactions] == ([] if commit else [0, 2])


@pytest.mark.parametrize("version", [12, 13])
async def test_version_2_joins_by_producing_under_new_epochs(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    producer = await started(client)
    for number in range(3):
        assert producer[1] == number
        assert await produce_code(client, producer, version, kafka) == 0
        answer = await ended(client, producer, commit=True, version=5)
        again = await ended(client, producer, commit=True, version=5)
        assert (answer.error_code, again) == (0, answer)
        producer = answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize(("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_before_12_produces_join_nothing(kafka: KafkaServer, client: KafkaStream, version: int, code: ErrorCode) -> None:
    producer = await started(client)
    assert await produce_code(client, producer, version, kafka) == code


async def test_partitions_join_all_or_none(client: KafkaStream) -> None:
    producer = await started(client)
    assert await joined_codes(client, joining(producer, 0, 9)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await ended_state(client) == "Empty"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_internal_topics_do_not_join_by_name(client: KafkaStream, topic: str) -> None:
    """They are there: the group's by the offsets that join."""
    producer = await started(client)
    assert (await client.call(ask("AddOffsetsToTxn", **whose(producer), group_id="readers"), 3)).error_code == 0
    assert await joined_codes(client, joining(producer, 0, topic=topic)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def ended_state(client: KafkaStream) -> str:
    [state] = (await client.call(ask("DescribeTransactions", transactional_ids=[ID]), 0)).transaction_states
    return state.transaction_state


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (3, ErrorCode.PRODUCER_FENCED)])
async def test_a_producer_that_was_replaced_is_told_so_in_words_that_its_version_knows(
    kafka: KafkaServer, client: KafkaStream, version: int, code: ErrorCode
) -> None:
    old = await started(client)
    await joined_codes(client, joining(old, 0))
    new = await started(client)
    assert await joined_codes(client, joining(old, 0), version) == [code]
    assert (await ended(client, old, commit=True, version=version)).error_code == code
    assert await produce_code(client, old, 12, kafka) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await joined_codes(client, joining(new, 0)) == [0]


async def test_a_producer_goes_on_after_an_error_under_its_own_next_epoch(client: KafkaStream) -> None:
    producer = await started(client)
    following = await started(client, 4, producer)
    assert following == (producer[0], producer[1] + 1)
    await started(client)
    request = ask("InitProducerId", **whose(producer), transaction_timeout_ms=60_000)
    assert (await client.call(request, 4)).error_code == ErrorCode.PRODUCER_FENCED
    assert (await client.call(request, 3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_without_transactions_may_name_any_timeout(client: KafkaStream, version: int) -> None:
    answers = [
        await client.call(ask("InitProducerId", transactional_id=None, transaction_timeout_ms=timeout), version)
        for timeout in (0, -1, 2**31 - 1)
    ]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, 0)] * 3
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": -1, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 7, "producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
async def test_a_producer_that_cannot_be_is_refused(client: KafkaStream, fields: dict[str, Any], code: ErrorCode) -> None:
    request = ask("InitProducerId", **{"transactional_id": ID, "transaction_timeout_ms": 60_000, **fields})
    assert (await client.call(request, 4)).error_code == code


async def test_an_open_transaction_is_described_listed_and_ended_by_hand(kafka: KafkaServer, client: KafkaStream) -> None:
    producer = await started(client)
    await produce_code(client, producer, 12, kafka)
    asked = ask("DescribeTransactions", transactional_ids=[ID, "unknown", ""])
    found, unknown, empty = (await client.call(asked, 0)).transaction_states
    assert (found.error_code, found.transaction_state, found.producer_id) == (0, "Ongoing", producer[0])
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, [0])]
    assert (unknown.producer_id, unknown.producer_epoch, unknown.transaction_start_time_ms) == (0, 0, 0)
    assert (unknown.error_code, empty.error_code) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST)

    producers = ask("DescribeProducers", topics=[{"name": TOPIC, "partition_indexes": [0, 9]}])
    [topic] = (await client.call(producers, 0)).topics
    open_, missing = topic.partitions
    [active] = open_.active_producers
    assert (active.producer_id, active.last_sequence, active.current_txn_start_offset) == (producer[0], 0, 0)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    marker = marker_of(producer, 0, 9, coordinator_epoch=active.coordinator_epoch + 1)
    assert await marker_codes(client, marker) == [[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    [topic] = (await client.call(producers, 0)).topics
    assert topic.partitions[0].active_producers[0].current_txn_start_offset == -1


NO_PRODUCER = ErrorCode.UNKNOWN_SERVER_ERROR
NOT_HERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("version", [1, 2])
async def test_a_marker_of_no_producer_is_answered_as_by_kafka_others_are_written(client: KafkaStream, version: int) -> None:
    for producer in ((7, -1), (-1, 0), (-1, -1), (-5, -5), (2**63 - 1, -(2**15)), (-(2**63), 0)):
        codes = await marker_codes(client, marker_of(producer, 0, 9), version=version)
        assert codes == [[NO_PRODUCER, NOT_HERE]], producer
    good, bad = marker_of((8, 0), 0, 0), marker_of((8, -1), 1)
    assert await marker_codes(client, bad, good, bad, good, version=version) == [[NO_PRODUCER], [0, 0], [NO_PRODUCER], [0, 0]]
    assert await marker_codes(client, version=version) == []
    assert await marker_codes(client, marker_of((8, -1)), version=version) == [[]]
    assert await marker_codes(client, marker_of((8, -1), -1, topic=""), version=version) == [[NOT_HERE]]


@pytest.mark.parametrize("version", [1, 2])
async def test_the_first_marker_of_a_producer_is_fenced_below_epoch_minus_1(client: KafkaStream, version: int) -> None:
    epochs = {-1: 0, -2: FENCED, -(2**31): FENCED, 2**31 - 1: 0}
    for producer_id, (epoch, code) in enumerate(epochs.items()):
        marker = marker_of((producer_id, 2**15 - 1), 0, coordinator_epoch=epoch)
        assert await marker_codes(client, marker, version=version) == [[code]], epoch


@pytest.mark.parametrize("version", range(3))
async def test_transactions_by_state_producer_age_and_pattern(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    producer = await started(client)
    await produce_code(client, producer, 12, kafka)

    async def listed(**filters: object) -> list[str]:
        given = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = await client.call(ask("ListTransactions", **given), version)
        assert answer.error_code == 0
        return [each.transactional_id for each in answer.transaction_states]

    assert await listed() == [ID]
    assert await listed(state_filters=["Ongoing"], producer_id_filters=[producer[0]]) == [ID]
    assert await listed(state_filters=["Empty"]) == []
    assert await listed(producer_id_filters=[producer[0] + 1]) == []
    assert await listed(duration_filter=60_000) == ([] if version >= 1 else [ID])
    assert await listed(transactional_id_pattern="m.*r") == [ID]
    assert await listed(transactional_id_pattern="x") == ([] if version >= 2 else [ID])


async def test_a_state_or_a_pattern_that_cannot_be_is_said(client: KafkaStream) -> None:
    request = ask("ListTransactions", state_filters=["Sleeping"])
    assert (await client.call(request, 2)).unknown_state_filters == ["Sleeping"]
    request = ask("ListTransactions", state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    assert (await client.call(request, 2)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_an_id_that_has_begun_nothing_is_older_than_any_age(client: KafkaStream) -> None:
    await started(client)
    request = ask("ListTransactions", state_filters=[], producer_id_filters=[], duration_filter=10**9)
    assert [each.transactional_id for each in (await client.call(request, 1)).transaction_states] == [ID]


@pytest.mark.parametrize(
    ("version", "epoch_delta", "code"),
    [(2, 0, ErrorCode.INVALID_PRODUCER_EPOCH), (3, 0, ErrorCode.INVALID_PRODUCER_EPOCH), (2, 1, 0), (1, 0, 0), (0, 0, 0)],
)
async def test_marker_of_version_2_needs_an_epoch_above_the_open_one(
    kafka: KafkaServer, client: KafkaStream, version: int, epoch_delta: int, code: int
) -> None:
    """A late marker of the transaction before could end the next one otherwise (KIP-1228)."""
    producer = await started(client)
    assert await produce_code(client, producer, 12, kafka) == 0
    marker = marker_of((producer[0], producer[1] + epoch_delta), 0, coordinator_epoch=1) | {"transaction_version": version}
    assert await marker_codes(client, marker, version=2) == [[code]]
    assert (await fetched_offsets(client)) == ((1, 0) if code else (2, 2))
    if not code:
        assert await marker_codes(client, marker, version=2) == [[0]], "again, when nothing is open"


async def fetched_offsets(client: KafkaStream) -> tuple[int, int]:
    """High watermark and last stable offset."""
    fetched = (await client.call(fetch_request(fetch_partition(), isolation_level=1), 11)).responses[0].partitions[0]
    return fetched.high_watermark, fetched.last_stable_offset
