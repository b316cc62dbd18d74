"""Staging, splits and leases over the wire, with the client's own connection against a broker in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.records.batch import crc32c, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking.connection import BlockingConnection
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.errors import ConnectionLostError

from tests.support.logs import START_MS

PATIENCE_S: Final = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    with triolog.blocking.open(tmp_path, durability="os", native="127.0.0.1:0") as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture
def connection(broker: BlockingBroker) -> Iterator[BlockingConnection]:
    opened = BlockingConnection(broker.native, ClientConfig(), time.monotonic() + PATIENCE_S)
    try:
        yield opened
    finally:
        opened.lose(ConnectionLostError("the test is over"))


def batch(text: str) -> bytes:
    return build_batch([(START_MS, None, text.encode(), ())])


def ask(connection: BlockingConnection, request: m.RequestMessage) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    return connection.finish(connection.start(request, deadline), deadline)


def values(broker: BlockingBroker, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in broker.fetch("t", 0, partition=partition)]


def test_what_is_staged_is_committed_once(broker: BlockingBroker, connection: BlockingConnection) -> None:
    parts = (m.StagePartition("t", 0, batch("a")), m.StagePartition("t", 1, batch("b")), m.StagePartition("no", 0, b"x"))
    staged = ask(connection, m.StageRequest("query", 0, "task", parts)).partitions
    assert [(each.size_bytes, each.crc) for each in staged[:2]] == [(len(batch("a")), crc32c(batch(x))) for x in "ab"]
    assert staged[2].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    named = tuple(m.StagedPartition(each.topic, each.partition, each.size_bytes, each.crc) for each in staged[:2])
    request = m.CommitStageRequest("query", 0, (m.StagedTask("task", named),))
    places = (m.StageCommittedPartition("t", 0, 0, 1), m.StageCommittedPartition("t", 1, 0, 1))
    assert ask(connection, m.LastCommitRequest("query")).version == m.NO_VERSION
    assert ask(connection, request) == m.CommitStageResponse(True, places)
    assert ask(connection, request) == m.CommitStageResponse(False, places)
    assert ask(connection, m.LastCommitRequest("query")).version == 0
    assert (values(broker), values(broker, 1)) == ([b"a"], [b"b"])


def test_requests_of_a_connection_are_staged_in_the_order_sent(broker: BlockingBroker, connection: BlockingConnection) -> None:
    deadline = time.monotonic() + PATIENCE_S
    texts = [str(number) for number in range(40)]
    sent = [
        connection.start(m.StageRequest("query", 0, "task", (m.StagePartition("t", 0, batch(text)),)), deadline)
        for text in texts
    ]
    answers: list[Any] = [connection.finish(each, deadline) for each in sent]
    sizes = [answer.partitions[0].size_bytes for answer in answers]
    assert sizes == sorted(sizes)
    named = m.StagedPartition("t", 0, sizes[-1], answers[-1].partitions[0].crc)
    ask(connection, m.CommitStageRequest("query", 0, (m.StagedTask("task", (named,)),)))
    assert values(broker) == [text.encode() for text in texts]


def test_a_range_is_cut_at_batches_in_each_partition_alone(broker: BlockingBroker, connection: BlockingConnection) -> None:
    for number in range(200):
        broker.append("t", batch(f"{number:200}"))
    asked = (
        m.SplitPointsPartition("t", 0, 0, 200, 10_000),
        m.SplitPointsPartition("t", 1, 0, 1, 10_000),
        m.SplitPointsPartition("t", 1, 0, 0, 10_000),
    )
    first, second, third = ask(connection, m.SplitPointsRequest(asked)).partitions
    assert [point.offset for point in first.points][:1] == [0]
    assert len(first.points) > 2
    assert sum(point.bytes for point in first.points) == 200 * len(batch(f"{0:200}"))
    assert second.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (third.error, third.points) == (None, ())


def test_leased_segments_can_be_read_from_their_paths(broker: BlockingBroker, connection: BlockingConnection) -> None:
    broker.append("t", batch("a"))
    lease = ask(connection, m.LeaseSegmentsRequest((m.Partition("t", 0), m.Partition("t", 9)), 60_000))
    leased, missing = lease.partitions
    assert missing.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (leased.log_start_offset, leased.high_watermark, leased.last_stable_offset) == (0, 1, 1)
    [segment] = leased.segments
    assert Path(segment.path).parent == Path(leased.directory)
    data = Path(segment.path).read_bytes()[: segment.size_bytes]
    assert [header.records_count for header, _ in iter_batches(data)] == [1]
    again = ask(connection, m.LeaseSegmentsRequest((m.Partition("t", 0), m.Partition("t", 1)), 60_000, lease.lease_id))
    assert again.partitions[0] == leased
    assert "t-1 is not part of lease" in again.partitions[1].error.message
    ask(connection, m.LeaseSegmentsRequest((), 0, lease.lease_id))
    assert not Path(leased.directory).exists()
    with pytest.raises(RequestError, match="Take a new one"):
        ask(connection, m.LeaseSegmentsRequest((), 1, lease.lease_id))
