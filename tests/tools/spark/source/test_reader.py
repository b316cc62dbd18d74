from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType
from triolog.server.embedded import BlockingBroker
from triolog.tools.spark.source.bounds import BoundError
from triolog.tools.spark.source.broker import TopicMissingError, close_connections
from triolog.tools.spark.source.reader import BatchReader, DataLossError, OffsetRange
from triolog.tools.spark.source.schema import spark_schema
from triolog.tools.spark.source.source import TriologDataSource

KEEP = {"retention.ms": "-1"}


@pytest.fixture
def events(server: BlockingBroker) -> BlockingBroker:
    """100 records in each of three partitions, one in a second."""
    server.create_topic("events", 3, KEEP)
    for partition in range(3):
        server.append("events", [(number * 1000, b"k", b"%d" % number, ()) for number in range(100)], partition=partition)
    return server


def _reader(broker: BlockingBroker, schema: Sequence[str] | None = None, **options: Any) -> BatchReader:
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.native.port}"}
    if not {"assign", "subscribePattern"} & options.keys():
        given["subscribe"] = "events"
    given |= {name.replace("__", "."): str(value) for name, value in options.items()}
    source = TriologDataSource(given)
    reader = source.reader(source.schema() if schema is None else spark_schema(schema))
    assert isinstance(reader, BatchReader)
    return reader


def _batches(reader: BatchReader) -> Iterator[pa.RecordBatch]:
    """What tasks give: each with a reader that has been pickled before anything was planned."""
    task = pickle.loads(pickle.dumps(reader))
    for partition in reader.partitions():
        yield from task.read(pickle.loads(pickle.dumps(partition)))


def _rows(reader: BatchReader) -> list[dict[str, Any]]:
    return [row for batch in _batches(reader) for row in batch.to_pylist()]


def _offsets(reader: BatchReader) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in _rows(reader):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_what_is_assigned_or_matches_is_read_and_nothing_else(events: BlockingBroker) -> None:
    assert _offsets(_reader(events, assign='{"events": [2]}')) == {2: list(range(100))}
    events.create_topic("eve", 1, KEEP)
    events.append("eve", [b"x"])
    rows = _rows(_reader(events, subscribePattern="eve(nts)?"))
    assert {row["topic"] for row in rows} == {"eve", "events"}
    assert len(rows) == 301
    assert _reader(events, subscribePattern="nothing").partitions() == []
    assert list(_reader(events).read(InputPartition(None))) == [], "the partition that Spark makes up for no tasks"


def test_offsets_and_times_bound_a_read_and_the_end_is_exclusive(events: BlockingBroker) -> None:
    starting = '{"events": {"0": 10, "1": -2, "2": 99}}'
    ending = '{"events": {"0": 12, "1": 3, "2": -1}}'
    found = _offsets(_reader(events, startingOffsets=starting, endingOffsets=ending))
    assert found == {0: [10, 11], 1: [0, 1, 2], 2: [99]}
    assert _offsets(_reader(events, startingTimestamp=5001, endingTimestamp=7000)) == {0: [6], 1: [6], 2: [6]}
    starting = '{"events": {"0": 98000, "1": 0, "2": 5000}}'
    ending = '{"events": {"0": 99000, "1": 0, "2": 6000}}'
    found = _offsets(_reader(events, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending))
    assert found == {0: [98], 2: [5]}


def test_bounds_name_exactly_the_partitions_that_are_read(events: BlockingBroker) -> None:
    with pytest.raises(BoundError, match=r"startingOffsets leaves out events-1, events-2; name every partition"):
        _reader(events, startingOffsets='{"events": {"0": 1}}').partitions()
    with pytest.raises(BoundError, match=r"endingOffsets names events-3, which are not among"):
        _reader(events, endingOffsets='{"events": {"0": 1, "1": 1, "2": 1, "3": 1}}').partitions()


def test_a_topic_that_is_not_there_is_named(events: BlockingBroker) -> None:
    with pytest.raises(TopicMissingError, match=r"127\.0\.0\.1:\d+ has no topic evnts; create it"):
        _reader(events, subscribe="evnts").partitions()
    with pytest.raises(TopicMissingError, match="has no partition events-7; the option assign names it"):
        _reader(events, assign='{"events": [7]}').partitions()


def test_only_the_columns_asked_for_come_in_their_order(events: BlockingBroker) -> None:
    [batch, *_] = _batches(_reader(events, ["timestampType", "offset"]))
    assert batch.schema.names == ["timestampType", "offset"]
    [batch, *_] = _batches(_reader(events, columns="value,key"))
    assert batch.schema.names == ["value", "key"]


def test_arrow_batches_are_as_small_as_asked(events: BlockingBroker) -> None:
    sizes = [batch.num_rows for batch in _batches(_reader(events, arrowMaxRecords="30"))]
    assert sizes == [30, 30, 30, 10] * 3


def test_a_read_of_many_fetches_in_any_compression_is_the_log(server: BlockingBroker) -> None:
    server.create_topic("events", 1, KEEP)
    for number in range(60):
        records = [(1, b"%d" % number, b"x" * 300, ())] * (1 + number % 7)
        server.append("events", build_batch(records, compression_type=CompressionType(number % 5)))
    expected = [b"%d" % number for number in range(60) for _ in range(1 + number % 7)]
    for checked in ("true", "false"):
        rows = _rows(_reader(server, fetchMaxBytes="1024", checkCrcs=checked))
        assert [row["key"] for row in rows] == expected
        assert [row["offset"] for row in rows] == list(range(len(expected)))


def test_a_record_far_above_the_fetch_size_comes_whole(server: BlockingBroker) -> None:
    server.create_topic("events", 1, KEEP | {"max.message.bytes": str(10 << 20)})
    server.append("events", [b"x" * (8 << 20)])
    server.append("events", [b"small"])
    assert [len(row["value"]) for row in _rows(_reader(server, fetchMaxBytes="65536"))] == [8 << 20, 5]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxRecordsPerPartition": 40}, [34, 33, 33] * 3),
        ({"minPartitions": 6}, [50] * 6),
        ({"minPartitions": 2}, [100] * 3),
        ({"maxRecordsPerPartition": 50, "minPartitions": 12}, [25] * 12),
    ],
)
def test_tasks_are_as_many_and_as_small_as_asked(events: BlockingBroker, options: dict[str, int], expected: list[int]) -> None:
    reader = _reader(events, **options)
    ranges = [partition for partition in reader.partitions() if isinstance(partition, OffsetRange)]
    assert sorted(range_.count for range_ in ranges) == sorted(expected)
    assert _offsets(reader) == {partition: list(range(100)) for partition in range(3)}


def test_a_large_partition_is_cut_into_pieces_of_about_the_size_asked_for(server: BlockingBroker) -> None:
    server.create_topic("events", 1, KEEP)
    for _ in range(64):
        server.append("events", [b"x" * 1000] * 10)
    reader = _reader(server, splitBytes=str(128 << 10))
    ranges = [partition for partition in reader.partitions() if isinstance(partition, OffsetRange)]
    assert 4 <= len(ranges) <= 7
    assert _offsets(reader) == {0: list(range(640))}


def test_offsets_outside_of_the_log_are_an_error_or_reported_and_skipped(
    events: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    events.delete_records("events", 50, partition=1)
    starting = '{"events": {"0": 0, "1": 10, "2": 0}}'
    with pytest.raises(
        DataLossError, match=r"events-1: offset 10 is to be read and the log starts at offset 50; .*failOnDataLoss"
    ):
        _reader(events, startingOffsets=starting).partitions()
    assert _offsets(_reader(events, startingOffsets=starting, failOnDataLoss="false"))[1] == list(range(50, 100))
    assert "events-1: offset 10 is to be read and the log starts at offset 50" in caplog.text
    ending = '{"events": {"0": 101, "1": -1, "2": -1}}'
    with pytest.raises(DataLossError, match="events-0: offsets up to 101 are to be read and the log ends at offset 100"):
        _reader(events, endingOffsets=ending).partitions()
    assert len(_offsets(_reader(events, endingOffsets=ending, failOnDataLoss="false"))[0]) == 100


def test_what_vanishes_under_a_task_is_noticed_in_it(events: BlockingBroker, caplog: pytest.LogCaptureFixture) -> None:
    reader = _reader(events, assign='{"events": [0]}')
    [planned] = reader.partitions()
    events.delete_records("events", 60)
    with pytest.raises(DataLossError, match="events-0: offset 0 is to be read and the log starts at offset 60"):
        list(reader.read(planned))
    lenient = _reader(events, assign='{"events": [0]}', failOnDataLoss="false")
    assert sum(batch.num_rows for batch in lenient.read(planned)) == 40
    assert "the log starts at offset 60" in caplog.text
    events.delete_topic("events")
    with pytest.raises(DataLossError, match="events-0: offset 0 is to be read and there is no such topic"):
        list(reader.read(planned))
    assert list(lenient.read(planned)) == []


def test_a_server_that_starts_again_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with BlockingBroker(tmp_path) as broker:
        broker.create_topic("events", 2, KEEP)
        for partition in range(2):
            for _ in range(20):
                broker.append("events", [b"x" * 400] * 5, partition=partition)
        address = broker.native
        reader = _reader(broker, fetchMaxBytes="4096")
        planned = reader.partitions()
        rows = reader.read(planned[0])
        found = [next(rows)]
    with BlockingBroker(tmp_path, native=address):
        found += list(rows)
        found += list(reader.read(planned[1]))
        close_connections()
    offsets = [(row["partition"], row["offset"]) for batch in found for row in batch.to_pylist()]
    assert offsets == [(partition, offset) for partition in range(2) for offset in range(100)]


def test_records_without_a_timestamp_have_the_millisecond_before_the_epoch(server: BlockingBroker) -> None:
    server.create_topic("events", 1, KEEP)
    server.append("events", build_batch([(-1, b"k", b"v", ())]))
    [row] = _rows(_reader(server))
    assert row["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
