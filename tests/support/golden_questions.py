"""What is asked of a broker that serves `tests/data/kafka-4.3.1`: of Kafka when it was written, of triolog ever since."""

from __future__ import annotations

import base64
import time
from typing import Any, Final

from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.protocol.records.record import iter_records

from tests.support.kafka_admin import NO_ID
from tests.support.kafka_server import fetch_partition, fetch_request
from tests.support.kafka_wire import KafkaWire, ask
from tests.support.share_members import ACCEPT, NOT_YET, WireMember

CODECS, MOVES, QUEUE, COMPACTED = "codecs", "moves", "queue", "compacted"
TOPICS: Final = (CODECS, MOVES, QUEUE, COMPACTED)
CLASSIC, CONSUMERS, SHARERS = "classic-readers", "readers", "sharers"
DEADLINE_S: Final = 60.0


def answers(wire: KafkaWire) -> dict[str, Any]:
    """Plain values. It goes on with the share group, last."""
    return {
        "topic_ids": {name: base64.b64encode(topic_id(wire, name)).decode() for name in TOPICS},
        "records": {name: _records(wire, name, 0) for name in TOPICS},
        "committed": _records(wire, MOVES, 1),
        "transaction": _transaction(wire),
        "offsets": {group: _offsets(wire, group) for group in (CLASSIC, CONSUMERS)},
        "shares": _share_offsets(wire),
        "acquired": _acquired(wire),
        "shares_then": _share_offsets(wire),
    }


def topic_id(wire: KafkaWire, name: str) -> bytes:
    asked = ask("Metadata", topics=[{"topic_id": NO_ID, "name": name}], allow_auto_topic_creation=False)
    found: bytes = wire.call(asked, 12).topics[0].topic_id
    return found


def _records(wire: KafkaWire, name: str, isolation: int) -> dict[str, Any]:
    """Those of all batches, with what tells them apart, and where transactions were aborted."""
    deadline, offset = time.monotonic() + DEADLINE_S, 0
    batches, aborted = [], set[int]()
    while True:
        told = _fetched(wire, name, isolation, offset)
        assert told.error_code in (0, *NOT_YET), told
        found = list(iter_batches(bytes(told.records or b"")))
        aborted |= {each.first_offset for each in told.aborted_transactions or ()}
        batches += [_batch(*each) for each in found]
        if not told.error_code and not found:
            break
        offset = found[-1][0].next_offset if found else offset
        assert time.monotonic() < deadline, told
    ends = {"last_stable_offset": told.last_stable_offset, "high_watermark": told.high_watermark}
    return {**ends, "aborted": sorted(aborted), "batches": batches}


def _batch(header: BatchHeader, batch: Any) -> dict[str, Any]:
    records = [] if header.is_control else iter_records(batch, header)
    return {
        "attributes": header.attributes,
        "epoch": header.producer_epoch,
        "records": [[record.offset, record.timestamp, _text(record.key), _text(record.value)] for record in records],
    }


def _text(data: Any) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _fetched(wire: KafkaWire, name: str, isolation: int, offset: int) -> Any:
    """Kafka answers with records of one segment."""
    asked = fetch_request(fetch_partition(offset), topic=name, isolation_level=isolation, max_wait_ms=1)
    return wire.call(asked, 12).responses[0].partitions[0]


def _transaction(wire: KafkaWire) -> list[Any]:
    [state] = wire.call(ask("DescribeTransactions", transactional_ids=["mover"]), 0).transaction_states
    topics = [[topic.topic, topic.partitions] for topic in state.topics]
    return [state.error_code, state.transaction_state, state.producer_epoch, state.transaction_timeout_ms, topics]


def _offsets(wire: KafkaWire, group: str) -> list[Any]:
    asked = ask("OffsetFetch", groups=[{"group_id": group, "topics": None}])
    [told] = wire.call(asked, 10).groups
    return [
        [base64.b64encode(topic.topic_id).decode(), part.partition_index, part.committed_offset, part.metadata]
        for topic in told.topics
        for part in topic.partitions
    ]


def _share_offsets(wire: KafkaWire) -> list[Any]:
    """Start offset and lag."""
    asked = ask("DescribeShareGroupOffsets", groups=[{"group_id": SHARERS, "topics": None}])
    [group] = wire.call(asked, 1).groups
    return [[topic.topic_name, each.start_offset, each.lag] for topic in group.topics for each in topic.partitions]


def _acquired(wire: KafkaWire) -> list[Any]:
    """What another member is given, which accepts it."""
    member = WireMember(wire, SHARERS, QUEUE, topic_id(wire, QUEUE), "successor")
    member.join()
    found = []
    for _ in range(4):
        acquired = member.acquire(4)
        found.append([list(each) for each in acquired])
        for first, last, _count in acquired:
            member.acknowledge(first, last, [ACCEPT])
    member.leave()
    return found
