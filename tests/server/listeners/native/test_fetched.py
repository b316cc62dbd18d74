"""Plain records of a fetch: what compressed batches unpack to has a limit too."""

from __future__ import annotations

from triolog.protocol.native import messages
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.steps import BatchLimits
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.broker import FetchAnswer, FetchedRecords, FetchPartition
from triolog.server.listeners.native.fetches import fetch_body_steps
from triolog.server.storage.disk.diskops import compute
from triolog.server.storage.lookups.fetched_records import WantedRecords, plain_partitions

RECORDS = 100
VALUE = bytes(1000)
REQUEST = messages.FetchRequest((), format=messages.Format.RECORDS)
LARGE = 2**31 - 1


def zipped(**record: object) -> FetchedRecords:
    """One compressed batch, a hundredth of what is in it."""
    value, headers = record.get("value", VALUE), record.get("headers", ())
    records = [(0, None, value, headers) for _ in range(RECORDS)]
    batch = build_batch(records, compression_type=CompressionType.GZIP)  # type: ignore[arg-type]
    return FetchedRecords(batch, RECORDS, 0, RECORDS)


def unpacked(fetched: FetchedRecords, partitions: int, max_bytes: int) -> list[tuple[int, int]]:
    """(records, next offset) of each partition."""
    asked = [FetchPartition(TopicPartition("topic", number), 0, LARGE) for number in range(partitions)]
    answers = [FetchAnswer(question.topic_partition, fetched, None) for question in asked]
    wanted = [WantedRecords(fetched, 0, LARGE)] * partitions
    plain = compute(plain_partitions(wanted, max_bytes=max_bytes, limits=BatchLimits()))
    body = compute(fetch_body_steps(answers, asked, REQUEST, plain))
    return [(len(entry["records"]), entry["next_offset"]) for entry in body["partitions"]]


def test_the_partitions_of_a_request_share_one_limit() -> None:
    """They are read on where it ended; the first record comes in any case; headers count."""
    assert unpacked(zipped(), 3, 10**6) == [(100, 100)] * 3
    assert unpacked(zipped(), 3, 150_000) == [(100, 100), (46, 46), (0, 0)]
    assert unpacked(zipped(), 2, -1) == [(1, 1), (0, 0)]
    assert unpacked(zipped(value=b"", headers=[("key", VALUE)]), 1, 50_000) == [(49, 49)]
