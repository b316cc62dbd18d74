"""Transactions, groups and appends at an expected offset over the native protocol, on a real server."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Isolation

from tests.support.logs import batch
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient, error_of

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
    assert (error.code, "name its transactional_id" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
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
