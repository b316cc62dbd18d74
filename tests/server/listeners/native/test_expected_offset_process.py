"""Appends over the native protocol that are made only where the log ends as their sender thinks."""

from __future__ import annotations

import threading

from triolog.protocol.errors import ErrorCode
from triolog.protocol.native import messages

from tests.support.logs import batch
from tests.support.server_process import ServerProcess
from tests.support.wire_client import WireClient

WRITERS = 4
EACH = 15


def entry_of(client: WireClient, *entries: messages.ProducePartition) -> tuple[messages.ProducePartitionResponse, ...]:
    answer: messages.ProduceResponse = client.call(messages.ProduceRequest(entries))
    return answer.partitions


def test_each_partition_of_a_request_has_its_own_expectation(client: WireClient, topic: str) -> None:
    client.produce(topic, 1, batch())
    plain = (messages.PlainRecord(None, None, b"plain"),)
    answers = entry_of(
        client,
        messages.ProducePartition(topic, 0, batch(), 0),
        messages.ProducePartition(topic, 1, plain, 0),
        messages.ProducePartition(topic, 2, plain, 0),
    )
    assert [None if answer.error is None else answer.error.code for answer in answers] == [
        None,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        None,
    ]
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
