"""The batch reader without Spark, on a real server, and on a small one that fails in between or is older than some calls."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio
import triolog
from pyspark.sql.datasource import InputPartition
from triolog.protocol.errors import CorruptRecordError, ErrorCode, RequestError
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType, TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.spark.source.bounds import BoundError, PartitionRange
from triolog.tools.spark.source.broker import Broker, BrokerUnavailableError, TopicMissingError, close_connections
from triolog.tools.spark.source.options import ReadOptions
from triolog.tools.spark.source.reader import GROUP_BYTES, BatchReader, DataLossError, OffsetRange, ReadTask, plan_ranges
from triolog.tools.spark.source.schema import spark_schema
from triolog.tools.spark.source.source import TriologDataSource

from tests.support.native_server import NativeServer
from tests.support.native_server_thread import ServerThread, serving

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


def planned(reader: BatchReader) -> list[tuple[OffsetRange, ...]]:
    return [task.ranges for task in reader.partitions() if isinstance(task, ReadTask)]


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
    with pytest.raises(BoundError, match=r"startingOffsets leaves out events-1, events-2\. Name every partition"):
        _reader(events, startingOffsets='{"events": {"0": 1}}').partitions()
    with pytest.raises(BoundError, match=r"endingOffsets names events-3"):
        _reader(events, endingOffsets='{"events": {"0": 1, "1": 1, "2": 1, "3": 1}}').partitions()


def test_a_topic_that_is_not_there_is_named(events: BlockingBroker) -> None:
    with pytest.raises(TopicMissingError, match=r"127\.0\.0\.1:\d+ has no topic evnts\. Create it"):
        _reader(events, subscribe="evnts").partitions()
    with pytest.raises(TopicMissingError, match="has no partition events-7\\. The option assign names it"):
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
        ({"minPartitions": 1}, [100] * 3),
        ({"maxRecordsPerPartition": 50, "minPartitions": 12}, [25] * 12),
    ],
)
def test_tasks_are_as_many_and_as_small_as_asked(events: BlockingBroker, options: dict[str, int], expected: list[int]) -> None:
    reader = _reader(events, **options)
    assert sorted(range_.count for [range_] in planned(reader)) == sorted(expected)
    assert _offsets(reader) == {partition: list(range(100)) for partition in range(3)}


@pytest.mark.merge
def test_small_partitions_share_a_task_and_one_arrow_batch(server: BlockingBroker) -> None:
    server.create_topic("events", 200, KEEP)
    for partition in range(0, 200, 2):
        server.append("events", [(1, b"k", b"x" * 100, ())] * 20, partition=partition)
    reader = _reader(server)
    assert [len(task) for task in planned(reader)] == [100]
    assert [batch.num_rows for batch in _batches(reader)] == [2000]
    assert [batch.num_rows for batch in _batches(_reader(server, arrowMaxRecords=90))] == [80] * 25
    assert _offsets(reader) == {partition: list(range(20)) for partition in range(0, 200, 2)}
    assert [len(task) for task in planned(_reader(server, maxRecordsPerPartition=50))] == [2] * 50
    assert [len(task) for task in planned(_reader(server, minPartitions=1))] == [1] * 100


def test_a_task_of_several_partitions_stays_small(server: BlockingBroker) -> None:
    server.create_topic("events", 12, KEEP)
    for partition in range(12):
        server.append("events", [b"x" * (GROUP_BYTES // 4)] * (10 if partition == 5 else 1), partition=partition)
    tasks = planned(_reader(server))
    assert [[range_.partition for range_ in task] for task in tasks] == [[0, 1, 2], [3, 4], [5], [6, 7, 8], [9, 10, 11]]


def test_a_large_partition_is_cut_into_pieces_of_about_the_size_asked_for(server: BlockingBroker) -> None:
    server.create_topic("events", 1, KEEP)
    for _ in range(64):
        server.append("events", [b"x" * 1000] * 10)
    reader = _reader(server, splitBytes=str(128 << 10))
    assert 4 <= len(planned(reader)) <= 7
    assert _offsets(reader) == {0: list(range(640))}


def test_offsets_outside_of_the_log_fail_or_are_skipped(events: BlockingBroker, caplog: pytest.LogCaptureFixture) -> None:
    events.delete_records("events", 50, partition=1)
    starting = '{"events": {"0": 0, "1": 10, "2": 0}}'
    with pytest.raises(
        DataLossError, match=r"events-1: offset 10 is to be read and the log starts at offset 50.*failOnDataLoss"
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
    [task] = reader.partitions()
    events.delete_records("events", 60)
    with pytest.raises(DataLossError, match="events-0: offset 0 is to be read and the log starts at offset 60"):
        list(reader.read(task))
    lenient = _reader(events, assign='{"events": [0]}', failOnDataLoss="false")
    assert sum(batch.num_rows for batch in lenient.read(task)) == 40
    assert "the log starts at offset 60" in caplog.text
    events.delete_topic("events")
    with pytest.raises(DataLossError, match="events-0: offset 0 is requested, but the topic or partition no longer exists"):
        list(reader.read(task))
    assert list(lenient.read(task)) == []


def test_a_server_that_starts_again_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path, native="127.0.0.1:0") as broker:
        broker.create_topic("events", 2, KEEP)
        for partition in range(2):
            for _ in range(20):
                broker.append("events", [b"x" * 400] * 5, partition=partition)
        address = broker.native
        reader = _reader(broker, fetchMaxBytes="4096", minPartitions=2)
        tasks = reader.partitions()
        rows = reader.read(tasks[0])
        found = [next(rows)]
    with triolog.blocking.open(tmp_path, native=address):
        found += list(rows)
        found += list(reader.read(tasks[1]))
        close_connections()
    offsets = [(row["partition"], row["offset"]) for batch in found for row in batch.to_pylist()]
    assert offsets == [(partition, offset) for partition in range(2) for offset in range(100)]


def test_records_without_a_timestamp_have_the_millisecond_before_the_epoch(server: BlockingBroker) -> None:
    server.create_topic("events", 1, KEEP)
    server.append("events", build_batch([(-1, b"k", b"v", ())]))
    [row] = _rows(_reader(server))
    assert row["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


COUNT = 40


@pytest.fixture
def thread() -> Iterator[ServerThread]:
    """Two partitions of 20 batches with two records each."""
    with serving(events=2) as handle:
        handle.run(_fill)
        yield handle
        close_connections()


def _fill(thread: NativeServer) -> None:
    for log in thread.logs["events"]:
        for number in range(COUNT // 2):
            log.append(build_batch([(number, b"k", b"x" * 400, ())] * 2))


def _served_reader(handle: ServerThread, **options: Any) -> BatchReader:
    given = {"triolog.servers": f"127.0.0.1:{handle.port}", "subscribe": "events", "fetchMaxBytes": "2048"}
    given |= {name.replace("__", "."): str(value) for name, value in options.items()}
    read = ReadOptions.from_options(given, streaming=False)
    return BatchReader(read, ("partition", "offset"))


def _read_offsets(reader: BatchReader) -> list[tuple[int, int]]:
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


ALL = [(partition, offset) for partition in range(2) for offset in range(COUNT)]


def _fails(handle: ServerThread, kind: type, fault: Callable[[], Any], times: int) -> None:
    """The third to last requests of a kind fail, `times` of them."""
    seen = 0

    def answer(request: m.RequestMessage) -> Any:
        nonlocal seen
        seen += isinstance(request, kind)
        return fault() if isinstance(request, kind) and 2 < seen <= 2 + times else None

    handle.run(lambda thread: thread.faults.append(answer))


@pytest.mark.parametrize("fault", ["drop", "drop after"])
def test_a_connection_that_breaks_loses_and_doubles_nothing(thread: ServerThread, fault: str) -> None:
    _fails(thread, m.FetchRequest, lambda: fault, times=3)
    assert _read_offsets(_served_reader(thread)) == ALL
    assert thread.run(lambda found: found.connections) > 1


def test_errors_that_pass_are_waited_for(thread: ServerThread) -> None:
    _fails(thread, m.FetchRequest, lambda: RequestError("moving house", ErrorCode.NOT_LEADER_OR_FOLLOWER), times=3)
    assert _read_offsets(_served_reader(thread)) == ALL


def test_errors_that_stay_are_raised_at_once(thread: ServerThread) -> None:
    _fails(thread, m.FetchRequest, lambda: RequestError("no", ErrorCode.POLICY_VIOLATION), times=1)
    with pytest.raises(RequestError, match="POLICY_VIOLATION: no"):
        _read_offsets(_served_reader(thread))


@pytest.mark.merge
def test_a_server_that_stops_answering_is_named_and_costs_the_time_of_the_options_and_no_more(thread: ServerThread) -> None:
    thread.run(
        lambda found: found.faults.append(lambda request: trio.Event() if isinstance(request, m.MetadataRequest) else None)
    )
    began = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=rf":{thread.port} did not respond within 2000 ms.*is this its address"):
        _served_reader(thread, kafkaConsumer__pollTimeoutMs=2000, kafka__request__timeout__ms=1900).partitions()
    assert time.monotonic() - began < 3.7  # two requests of 1900 ms are more


def test_an_error_that_does_not_pass_in_time_is_not_called_a_server_that_is_gone(thread: ServerThread) -> None:
    offline = RequestError("the log directory has failed", ErrorCode.KAFKA_STORAGE_ERROR)
    _fails(thread, m.FetchRequest, lambda: offline, times=1000)
    with pytest.raises(BrokerUnavailableError, match=r"only errors within 150 ms.* the log directory has failed$"):
        _read_offsets(_served_reader(thread, kafkaConsumer__pollTimeoutMs=150))


def test_both_bounds_of_all_partitions_are_asked_for_in_one_request(thread: ServerThread) -> None:
    assert _read_offsets(_served_reader(thread, startingTimestamp=5, endingTimestamp=6)) == [(0, 10), (0, 11), (1, 10), (1, 11)]
    asked = thread.run(
        lambda found: [len(each.partitions) for each in found.requests if isinstance(each, m.OffsetsForTimesRequest)]
    )
    assert asked == [4]


def test_without_the_call_for_split_points_partitions_are_cut_at_even_offsets(thread: ServerThread) -> None:
    options = ReadOptions.from_options(
        {"triolog.servers": f"127.0.0.1:{thread.port}", "subscribe": "events", "splitBytes": "1m"}
    )
    name = TopicPartition("events", 0)
    known = {name: PartitionRange(0, COUNT, 4 << 20)}
    planned = plan_ranges(Broker(options), options, [OffsetRange(*name, 10, COUNT)], known)
    assert [(range_.low, range_.high) for range_ in planned] == [(10, 20), (20, 30), (30, 40)]


def test_damaged_records_are_an_error_or_reported_and_skipped(thread: ServerThread, caplog: pytest.LogCaptureFixture) -> None:
    def damage(request: m.RequestMessage) -> Any:
        is_refused = (
            isinstance(request, m.FetchRequest) and request.gaps is m.Gaps.REFUSE and request.partitions[0].offset >= 10
        )
        return RequestError("offsets 10 to 12 are damaged", ErrorCode.CORRUPT_MESSAGE) if is_refused else None

    thread.run(lambda found: found.faults.append(damage))
    with pytest.raises(DataLossError, match=r"events-0: offset 1\d cannot be read: offsets 10 to 12 are damaged"):
        _read_offsets(_served_reader(thread))
    assert _read_offsets(_served_reader(thread, failOnDataLoss="false")) == ALL
    assert "offsets 10 to 12 are damaged" in caplog.text


def test_damage_that_the_server_cannot_pass_over_ends_the_read_whatever_failondataloss_says(thread: ServerThread) -> None:
    def damage(request: m.RequestMessage) -> Any:
        is_there = isinstance(request, m.FetchRequest) and request.partitions[0].offset >= 10
        return RequestError("the batch at position 812 has another CRC", ErrorCode.CORRUPT_MESSAGE) if is_there else None

    thread.run(lambda found: found.faults.append(damage))
    with pytest.raises(CorruptRecordError, match=r"events-0: offset 1\d is damaged .* position 812 .* `triolog repair`"):
        _read_offsets(_served_reader(thread, failOnDataLoss="false"))


def test_a_log_that_has_shrunk_since_it_was_planned_is_data_loss(thread: ServerThread) -> None:
    reader = _served_reader(thread)
    tasks = reader.partitions()
    thread.run(lambda found: found.log("events", 1).cut(30))
    with pytest.raises(DataLossError, match="events-1: offsets up to 40 are to be read and the log ends at offset 30"):
        [list(reader.read(task)) for task in tasks]


def test_aborted_records_come_to_uncommitted_reads_only(thread: ServerThread) -> None:
    def transact(found: NativeServer) -> None:
        log = found.log("events", 1)
        for producer_id, commit in ((7, False), (8, True)):
            log.append(
                build_batch(
                    [(50, None, b"t", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
                )
            )
            log.end_transaction(producer_id, 0, commit=commit)
        log.append(build_batch([(50, None, b"t", ())], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True))

    thread.run(transact)
    assert _read_offsets(_served_reader(thread)) == [*ALL, (1, 40), (1, 42), (1, 44)]
    for option in ("isolationLevel", "kafka__isolation__level"):
        assert _read_offsets(_served_reader(thread, **{option: "read_committed"})) == [*ALL, (1, 42)]


def test_a_reader_that_is_given_up_leaves_the_connection_usable(thread: ServerThread) -> None:
    reader = _served_reader(thread, minPartitions=2)
    rows = reader.read(reader.partitions()[0])
    next(rows)
    rows.close()
    assert _read_offsets(reader) == ALL
    assert thread.run(lambda found: found.connections) == 1
