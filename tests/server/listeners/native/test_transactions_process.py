"""Producers that are recognised, transactions and groups over the native protocol, on a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Isolation, Record

from tests.support.logs import START_MS, batch
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient, error_of, records_from


def transactional_batch(producer: messages.InitProducerResponse, sequence: int, *values: bytes) -> bytes:
    return producer_batch(producer, sequence, *values, is_transactional=True)


def producer_batch(producer: messages.InitProducerResponse, sequence: int, *values: bytes, **options: Any) -> bytes:
    return build_batch(
        [(time.time_ns() // 1_000_000, None, value, ()) for value in values],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        **options,
    )


def begin(client: WireClient, transactional_id: str | None) -> messages.InitProducerResponse:
    answer: messages.InitProducerResponse = client.call(messages.InitProducerRequest(transactional_id))
    return answer


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


# ---- producers ---------------------------------------------------------------------------------------------------------


def test_hello_lists_every_call_there_is(client: WireClient) -> None:
    assert client.hello is not None
    assert client.hello.apis == messages.API_VERSIONS


def test_producer_ids_are_never_given_twice(client: WireClient) -> None:
    ids = [begin(client, None).producer_id for _ in range(20)]
    assert len(set(ids)) == 20


def test_a_batch_that_comes_again_is_answered_with_its_first_offset(client: WireClient, topic: str) -> None:
    producer = begin(client, None)
    data = producer_batch(producer, 0, b"a", b"b")
    assert [client.produce(topic, 0, data) for _ in range(3)] == [0, 0, 0]
    assert client.produce(topic, 0, producer_batch(producer, 2, b"c")) == 2
    assert client.high_watermark(topic) == 3


def test_a_sequence_with_a_hole_is_refused_for_that_partition_alone(client: WireClient, topic: str) -> None:
    producer = begin(client, None)
    client.produce(topic, 0, producer_batch(producer, 0, b"a"))
    error = error_of(client.produce, topic, 0, producer_batch(producer, 5, b"c"))
    assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, 0, batch()) == 1


# ---- transactions ------------------------------------------------------------------------------------------------------


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


def test_records_of_a_small_answer_say_where_to_go_on(client: WireClient, topic: str) -> None:
    client.produce(topic, 0, batch(*range(START_MS, START_MS + 10), value=bytes(100)))
    found: list[Record] = []
    offset = 0
    while offset < 10:
        entry = client.fetch(topic, 0, offset, format=messages.Format.RECORDS, partition_max_bytes=250)
        found += entry.records  # type: ignore[arg-type]
        assert entry.next_offset == found[-1].offset + 1
        offset = entry.next_offset
    assert [record.offset for record in found] == list(range(10))


def test_a_newer_producer_of_the_same_id_fences_the_older_and_aborts_its_transaction(
    server: ServerProcess, client: WireClient, topic: str, name: str
) -> None:
    older = begin(client, name)
    produce_in(client, name, topic, transactional_batch(older, 0, b"older"))
    with WireClient.connect(server.address) as other:
        newer = begin(other, name)
    assert newer.producer_id == older.producer_id
    assert newer.producer_epoch > older.producer_epoch
    fenced = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
    assert error_of(produce_in, client, name, topic, transactional_batch(older, 1, b"late")).code in fenced
    assert error_of(end, client, name, older, commit=True).code in fenced
    assert committed_values(client, topic) == []


def test_ending_a_transaction_again_is_answered_the_same(client: WireClient, topic: str, name: str) -> None:
    producer = begin(client, name)
    produce_in(client, name, topic, transactional_batch(producer, 0, b"a"))
    end(client, name, producer, commit=True)
    end(client, name, producer, commit=True)
    assert client.high_watermark(topic) == 2
    assert error_of(end, client, name, producer, commit=False).code is ErrorCode.INVALID_TXN_STATE


def test_transactional_batches_and_their_id_come_together(client: WireClient, topic: str, name: str) -> None:
    producer = begin(client, name)
    error = error_of(client.produce, topic, 0, transactional_batch(producer, 0, b"a"))
    assert (error.code, "name its transactional_id" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
    error = error_of(produce_in, client, name, topic, batch())
    assert (error.code, "are not transactional" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
    assert client.high_watermark(topic) == 0


def test_a_transaction_spans_partitions(client: WireClient, name: str) -> None:
    topic = f"spanned-{name}"
    client.create_topic(topic, 3)
    producer = begin(client, name)
    request = messages.ProduceRequest(
        tuple(messages.ProducePartition(topic, n, transactional_batch(producer, 0, b"%d" % n)) for n in range(3)),
        transactional_id=name,
    )
    assert [entry.error for entry in client.call(request).partitions] == [None] * 3
    end(client, name, producer, commit=True)
    for partition in range(3):
        entry = client.fetch(topic, partition, 0, isolation=Isolation.READ_COMMITTED)
        assert (entry.last_stable_offset, records_from(entry.records, 0)[0].value) == (2, b"%d" % partition)


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


# ---- groups ------------------------------------------------------------------------------------------------------------


def commit(client: WireClient, group: str, topic: str, offset: int, **options: Any) -> RequestError | None:
    request = messages.CommitOffsetsRequest(group, (messages.CommittedPartition(topic, 0, offset, "note"),), **options)
    error: RequestError | None = client.call(request).partitions[0].error
    return error


def committed(client: WireClient, group: str, topic: str, **options: Any) -> tuple[int, str | None]:
    request = messages.FetchOffsetsRequest(group, (messages.OffsetsPartition(topic, 0),), **options)
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


def test_groups_are_listed_and_deleted(client: WireClient, topic: str, name: str) -> None:
    commit(client, name, topic, 1)
    assert name in client.call(messages.ListGroupsRequest()).groups
    deleted = client.call(messages.DeleteGroupsRequest((name, "never-was"))).groups
    assert [(entry.group, entry.error and entry.error.code) for entry in deleted] == [
        (name, None),
        ("never-was", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert name not in client.call(messages.ListGroupsRequest()).groups
    assert committed(client, name, topic)[0] == -1


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


# ---- changes of topics -------------------------------------------------------------------------------------------------


def test_a_topic_gets_partitions_and_never_loses_one(client: WireClient, topic: str) -> None:
    def grow(total: int) -> RequestError | None:
        answer = client.call(messages.CreatePartitionsRequest((messages.NewPartitions(topic, total),)))
        error: RequestError | None = answer.topics[0].error
        return error

    assert grow(5) is None
    assert len(client.partition_metadata(topic)) == 5
    assert client.produce(topic, 4, batch()) == 0
    refused = grow(2)
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_PARTITIONS


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


def test_records_below_an_offset_are_deleted(client: WireClient, topic: str) -> None:
    def trim(before_offset: int) -> messages.DeleteRecordsPartitionResponse:
        request = messages.DeleteRecordsRequest((messages.DeleteRecordsPartition(topic, 0, before_offset),))
        entry: messages.DeleteRecordsPartitionResponse = client.call(request).partitions[0]
        return entry

    client.produce(topic, 0, batch(*range(START_MS, START_MS + 10)))
    assert trim(4).log_start_offset == 4
    assert error_of(client.fetch, topic, 0, 3).code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert records_from(client.fetch(topic, 0, 4).records, 4)[0].offset == 4
    error = trim(11).error
    assert error is not None
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert trim(messages.TO_HIGH_WATERMARK).log_start_offset == 10
