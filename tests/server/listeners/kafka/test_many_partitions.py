"""One request about thousands of partitions takes no long turn of the event loop, whichever API it is of, on either door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.native import messages

from tests.server.listeners.test_turns import Served, served, short_turns
from tests.support.kafka_wire import ask

pytestmark = pytest.mark.merge

TOPIC: Final = "big"
COUNT: Final = 2_000
NUMBERS: Final = list(range(COUNT))


def each(**fields: Any) -> list[dict[str, Any]]:
    """A partition's entry for each partition."""
    return [{"partition_index": number, **fields} for number in NUMBERS]


FETCHED: Final = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1000} for number in NUMBERS]
ASKED: Final[list[tuple[str, int, dict[str, Any]]]] = [
    ("Metadata", 12, {"topics": None, "allow_auto_topic_creation": False}),
    ("Metadata", 12, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
    ("DescribeTopicPartitions", 0, {"topics": [{"name": TOPIC}], "response_partition_limit": COUNT}),
    ("DescribeLogDirs", 4, {"topics": None}),
    ("DescribeLogDirs", 4, {"topics": [{"topic": TOPIC, "partitions": NUMBERS}]}),
    ("OffsetCommit", 8, {"group_id": "g", "topics": [{"name": TOPIC, "partitions": each(committed_offset=0)}]}),
    ("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": None}]}),
    ("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": NUMBERS}]}]}),
    ("ListOffsets", 6, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": each(timestamp=-1)}]}),
    ("Fetch", 12, {"topics": [{"topic": TOPIC, "partitions": FETCHED}], "max_wait_ms": 1, "min_bytes": 1, "max_bytes": 10**6}),
    ("DeleteRecords", 2, {"topics": [{"name": TOPIC, "partitions": each(offset=-1)}], "timeout_ms": 60_000}),
    ("ElectLeaders", 2, {"topic_partitions": None, "election_type": 0, "timeout_ms": 1000}),
    ("OffsetDelete", 0, {"group_id": "g", "topics": [{"name": TOPIC, "partitions": each()}]}),
]


async def transaction(attacked: Served) -> None:
    """Of all partitions, and with offsets for all of them."""
    call = attacked.kafka.call
    got = await call(ask("InitProducerId", transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1), 4)
    whose = {"producer_id": got.producer_id, "producer_epoch": got.producer_epoch}
    joining = {f"v3_and_below_{name}": value for name, value in {**whose, "transactional_id": "t"}.items()}
    topics = [{"name": TOPIC, "partitions": NUMBERS}]
    assert await call(ask("AddPartitionsToTxn", **joining, v3_and_below_topics=topics), 3)
    assert not (await call(ask("EndTxn", transactional_id="t", **whose, committed=True), 3)).error_code
    group: dict[str, Any] = {"transactional_id": "t", "group_id": "in a transaction", **whose}
    assert not (await call(ask("AddOffsetsToTxn", **group), 3)).error_code
    offsets = [{"name": TOPIC, "partitions": each(committed_offset=0)}]
    assert await call(ask("TxnOffsetCommit", **group, generation_id=-1, topics=offsets), 3)
    assert not (await call(ask("EndTxn", transactional_id="t", **whose, committed=True), 3)).error_code


NATIVE: Final[list[Callable[[], messages.RequestMessage]]] = [
    lambda: messages.MetadataRequest(),
    lambda: messages.CommitOffsetsRequest("n", tuple(messages.CommittedPartition(TOPIC, number, 0) for number in NUMBERS)),
    lambda: messages.FetchOffsetsRequest("n", None),
    lambda: messages.DeleteRecordsRequest(tuple(messages.DeleteRecordsPartition(TOPIC, number, -1) for number in NUMBERS)),
    lambda: messages.OffsetsForTimesRequest(tuple(messages.OffsetsForTimesPartition(TOPIC, number, -1) for number in NUMBERS)),
    lambda: messages.FetchRequest(tuple(messages.FetchPartition(TOPIC, number, 0, 1000) for number in NUMBERS)),
]


async def test_requests_about_many_partitions_take_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path) as attacked:
        steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("create", lambda: attacked.native.call(messages.CreateTopicsRequest((messages.NewTopic(TOPIC, COUNT),)))),
            *(
                (name, lambda name=name, version=version, fields=fields: attacked.kafka.call(ask(name, **fields), version))  # type: ignore[misc]
                for name, version, fields in ASKED
            ),
            ("a transaction", lambda: transaction(attacked)),
            *((f"native {number}", lambda make=make: attacked.native.call(make())) for number, make in enumerate(NATIVE)),  # type: ignore[misc]
            ("delete", lambda: attacked.kafka.call(ask("DeleteTopics", topics=[{"name": TOPIC}], timeout_ms=60_000), 6)),
        ]
        failed = []
        for name, step in steps:
            try:
                with short_turns():
                    await step()
            except AssertionError as exc:
                failed.append(f"{name}: {exc}")
        assert not failed, "\n".join(failed)
