"""The readers of `triolog_segments`, driven as Spark drives them, on files that real logs and servers wrote."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import triolog
from triolog.protocol.errors import InvalidRequestError
from triolog.protocol.types import Isolation
from triolog.server.embedded import BlockingBroker
from triolog.tools.segments.segment_damage import ReadMode
from triolog.tools.spark.option_table.option import OptionError
from triolog.tools.spark.segments.segments_options import OPTIONS, SegmentOptions
from triolog.tools.spark.segments.segments_reader import SegmentsReader
from triolog.tools.spark.segments.segments_source import TriologSegments
from triolog.tools.spark.source.bounds import BoundError, Earliest, Latest
from triolog.tools.spark.source.broker import TopicMissingError, close_connections
from triolog.tools.spark.source.options import Matching
from triolog.tools.spark.source.reader import DataLossError
from triolog.tools.spark.source.schema import columns_of, spark_schema

from tests.support.segment_files import START_MS, DrawnBatch, write_log
from tests.support.stopped_logs import write_stopped_logs
from tests.tools.spark.source.test_options import READ_AS

COLUMNS = ("topic", "partition", "offset")


def reader(**options: str) -> Any:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return SegmentsReader(SegmentOptions.from_options(given), COLUMNS)


def rows(made: SegmentsReader) -> list[tuple[str, int, int]]:
    made = pickle.loads(pickle.dumps(made))
    tasks = made.partitions()
    found = []
    for task in tasks or [None]:
        for batch in made.read(pickle.loads(pickle.dumps(task))):
            found += [(row["topic"], row["partition"], row["offset"]) for row in batch.to_pylist()]
    return found


def offsets(made: SegmentsReader) -> list[int]:
    return [offset for _, _, offset in rows(made)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Topics a (two partitions) and b; records at offset n have START_MS + 10 n."""
    for name, batches in (("a-0", 30), ("a-1", 10), ("b-0", 20), ("__consumer_offsets-0", 1)):
        drawn = [DrawnBatch(times=(20 * slot, 20 * slot + 10), value_bytes=100) for slot in range(batches)]
        write_log(tmp_path / name, [drawn[: batches // 2], drawn[batches // 2 :]], index_interval_bytes=300)
    return tmp_path


def test_everything_but_internal_topics_is_read_when_nothing_is_selected_in_as_many_tasks_as_wanted(directory: Path) -> None:
    found = rows(reader(path=str(directory)))
    assert found == [
        *(("a", 0, offset) for offset in range(60)),
        *(("a", 1, offset) for offset in range(20)),
        *(("b", 0, offset) for offset in range(40)),
    ]
    assert {row[:2] for row in rows(reader(path=str(directory / "a-1")))} == {("a", 1)}
    assert len(reader(path=str(directory), subscribe="a").partitions()) == 2
    assert len(reader(path=str(directory), subscribe="a", minPartitions="6").partitions()) >= 6
    tasks = reader(path=str(directory), subscribe="b", maxRecordsPerPartition="8").partitions()
    assert len(tasks) >= 5


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"subscribe": "b"}, [("b", 0)]),
        ({"subscribe": "a,b"}, [("a", 0), ("a", 1), ("b", 0)]),
        ({"assign": '{"a": [1]}'}, [("a", 1)]),
        ({"subscribePattern": "[ab]"}, [("a", 0), ("a", 1), ("b", 0)]),
        ({"subscribe": "__consumer_offsets"}, [("__consumer_offsets", 0)]),
    ],
)
def test_a_selection_says_what_is_read(directory: Path, selection: dict[str, str], expected: list[tuple[str, int]]) -> None:
    found = rows(reader(path=str(directory), **selection))
    assert list(dict.fromkeys((topic, partition) for topic, partition, _ in found)) == expected


@pytest.mark.parametrize(("option", "value"), [("subscribe", "missing"), ("assign", '{"a": [7]}')])
def test_what_is_not_there_is_named(directory: Path, option: str, value: str) -> None:
    with pytest.raises(TopicMissingError, match=f"{directory} has no partition .*{option}"):
        reader(path=str(directory), **{option: value}).partitions()


def test_bounds_are_offsets_or_times(directory: Path) -> None:
    def found(**bounds: str) -> list[int]:
        return offsets(reader(path=str(directory), assign='{"a": [0]}', **bounds))

    assert found(startingOffsets='{"a": {"0": 7}}', endingOffsets='{"a": {"0": 9}}') == [7, 8]
    assert found(startingOffsets='{"a": {"0": -2}}', endingOffsets='{"a": {"0": -1}}') == list(range(60))
    assert found(startingTimestamp=str(START_MS + 95), endingTimestamp=str(START_MS + 130)) == [10, 11, 12]
    assert found(startingOffsetsByTimestamp=f'{{"a": {{"0": {START_MS + 590}}}}}') == [59]
    assert found(endingOffsetsByTimestamp=f'{{"a": {{"0": {START_MS + 10}}}}}') == [0]
    late = str(START_MS + 10_000)
    with pytest.raises(BoundError, match="no record of a-0 is at or after"):
        found(startingTimestamp=late)
    assert found(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []
    assert found(endingTimestamp=late) == list(range(60))


def test_offsets_that_are_not_there_are_data_loss(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / "log-start-offset-checkpoint").write_bytes(b"0\n1\na 0 10\n")
    bounds = {"assign": '{"a": [0]}', "startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 70}}'}
    with pytest.raises(DataLossError, match="a-0: offset 5 is to be read and the log starts at offset 10"):
        reader(path=str(directory), **bounds).partitions()
    assert offsets(reader(path=str(directory), failOnDataLoss="false", **bounds)) == list(range(10, 60))
    assert "the log ends at offset 60" in caplog.text


def test_a_directory_without_logs_gives_nothing(tmp_path: Path) -> None:
    assert rows(reader(path=str(tmp_path))) == []


def test_a_stopped_servers_directory_is_read_committed_by_default(tmp_path: Path) -> None:
    stopped = write_stopped_logs(tmp_path / "data", partitions=2)
    everything = rows(reader(path=str(stopped.path), isolationLevel=Isolation.READ_UNCOMMITTED.value))
    assert everything == [
        (*partition, record.offset) for partition, records in sorted(stopped.records.items()) for record in records
    ]
    committed = rows(reader(path=str(stopped.path)))
    assert set(committed) < set(everything)


def test_the_schema_is_what_the_options_ask_for(directory: Path) -> None:
    source = TriologSegments({"path": str(directory), "columns": "offset,key"})
    assert source.name() == "triolog_segments"
    assert columns_of(source.schema()) == ("offset", "key")
    made = source.reader(schema=spark_schema(["partition"]))
    assert isinstance(made, SegmentsReader)
    assert {tuple(batch.schema.names) for task in made.partitions() for batch in made.read(task)} == {("partition",)}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    config = {"segment.bytes": "2000", "file.delete.delay.ms": "0"}
    with triolog.blocking.open(tmp_path / "data", durability="os", config=config, native="127.0.0.1:0") as running:
        running.create_topic("events", 2)
        for number in range(40):
            running.append("events", [b"x" * 50] * 5, partition=number % 2)
        yield running
        close_connections()


def leased(running: BlockingBroker, **options: str) -> Any:
    servers = f"{running.native.host}:{running.native.port}"
    return reader(snapshot="server", triolog__servers=servers, **options)


def test_a_running_servers_files_are_read_by_a_lease_while_it_lasts(broker: BlockingBroker) -> None:
    expected = [("events", partition, offset) for partition in range(2) for offset in range(100)]
    assert rows(leased(broker)) == expected
    made = leased(broker)
    task = made.partitions()[0]
    ended = attrs.evolve(task.lease, lease_id="gone")
    with pytest.raises(InvalidRequestError, match="there is no lease 'gone'"):
        list(made.read(attrs.evolve(task, lease=ended)))
    with pytest.raises(TopicMissingError, match="has no topic missing"):
        leased(broker, subscribe="missing").partitions()


def test_a_running_servers_directory_is_read_without_a_lease_to_its_end(broker: BlockingBroker, tmp_path: Path) -> None:
    """Its indexes are preallocated, and a lease of somebody else lies beside the logs."""
    leased(broker).partitions()
    made = reader(path=str(tmp_path / "data"), mode="FAILFAST")
    tasks = made.partitions()
    broker.append("events", [b"later"] * 100)
    expected = [(partition, offset) for partition in range(2) for offset in range(100)]
    assert [
        (row["partition"], row["offset"]) for task in tasks for each in made.read(task) for row in each.to_pylist()
    ] == expected


def test_leased_files_outlive_their_retention(broker: BlockingBroker) -> None:
    made = leased(broker, assign='{"events": [0]}')
    tasks = made.partitions()
    broker.delete_records("events", 90)
    broker.append("events", [b"later"])
    found = [row["offset"] for task in tasks for batch in made.read(task) for row in batch.to_pylist()]
    assert found == list(range(100))


OTHERWISE: Final = frozenset({"kafkaConsumer.pollTimeoutMs", "kafka.request.timeout.ms"})
"""Only with a server, see below."""
SHARED: Final = [
    row for row in READ_AS if row[0] in set(OPTIONS.names) - OTHERWISE and "latest" not in row[1] and "-1" not in row[1]
]
"""Without a start at the latest offset, which a batch refuses."""


def read(**options: str) -> SegmentOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return SegmentOptions.from_options({"path": "/data"} | given)


def refused(options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        SegmentOptions.from_options(options)
    return str(caught.value)


def test_a_directory_is_all_that_is_needed() -> None:
    options = read()
    assert options.paths == ("/data",)
    assert (options.mode, options.snapshot) == (ReadMode.PERMISSIVE, "files")
    assert options.is_committed
    assert options.read.check_crcs
    assert (options.read.starting, options.read.ending) == (Earliest(), Latest())
    assert isinstance(options.read.selection, Matching)
    assert options.read.selection.matches("events")
    assert not options.read.selection.matches("__consumer_offsets")


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"path": "/data"}, ("/data",)),
        ({"path": "file:///data"}, ("/data",)),
        ({"path": "file:/data"}, ("/data",)),
        ({"paths": '["/a", "/b"]'}, ("/a", "/b")),
        ({"logDir": "/a, /b"}, ("/a", "/b")),
    ],
)
def test_directories_are_named_in_three_ways(given: dict[str, str], paths: tuple[str, ...]) -> None:
    assert SegmentOptions.from_options(given).paths == paths


@pytest.mark.parametrize(("option", "text", "field", "value"), SHARED)
def test_what_is_shared_with_the_server_source_is_read_as_there(option: str, text: str, field: str, value: object) -> None:
    assert getattr(read(**{option: text}).read, field) == value


@pytest.mark.parametrize("name", ["isolationLevel", "kafka__isolation__level"])
def test_uncommitted_records_are_read_when_asked_for(name: str) -> None:
    options = read(**{name: "read_uncommitted"})
    assert options.read.isolation is Isolation.READ_UNCOMMITTED
    assert not options.is_committed


@pytest.mark.parametrize("mode", list(ReadMode))
def test_mode_is_named_in_any_case(mode: ReadMode) -> None:
    assert read(mode=mode.value).mode is read(mode=mode.value.lower()).mode is mode


def test_a_running_server_is_named_for_its_lease() -> None:
    options = SegmentOptions.from_options(
        {
            "snapshot": "server",
            "triolog.servers": "localhost:9095",
            "leaseMs": "5000",
            "kafkaConsumer.pollTimeoutMs": "7000",
            "kafka.request.timeout.ms": "3000",
        }
    )
    assert (options.paths, options.snapshot, options.lease_ms) == ((), "server", 5000)
    assert options.read.server == "localhost:9095"
    assert (options.read.poll_timeout_ms, options.read.request_timeout_ms) == (7000, 3000)
    with_kafkas_name = SegmentOptions.from_options({"snapshot": "server", "kafka.bootstrap.servers": "localhost:9095"})
    assert with_kafkas_name.read.server == "localhost:9095"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no directory is given\\. Name one with load\\(path\\)"),
        ({"path": "/a", "logDir": "/b"}, "path and logDir are given"),
        ({"path": ""}, "option path is ''"),
        ({"logDir": "/a,,"}, "option logDir is '/a,,'"),
        ({"paths": "/a"}, "option paths is '/a', expected a JSON list"),
        ({"path": "/a", "mode": "LENIENT"}, "mode.*LENIENT"),
        ({"path": "/a", "snapshot": "now"}, "snapshot.*now"),
        ({"path": "/a", "snapshot": "server", "triolog.servers": "x:1"}, "option path is refused with snapshot=server"),
        ({"snapshot": "server"}, "kafka.bootstrap.servers"),
        ({"path": "/a", "triolog.servers": "x:1"}, "option triolog.servers is refused with snapshot=files"),
        ({"path": "/a", "leaseMs": "5000"}, "option leaseMs is refused with snapshot=files"),
        ({"snapshot": "server", "triolog.servers": "x:1", "leaseMs": "1"}, "leaseMs.*1000"),
        ({"path": "/a", "subscibe": "a"}, "unknown option subscibe. Did you mean subscribe"),
        ({"path": "/a", "maxOffsetsPerTrigger": "5"}, "unknown option maxoffsetspertrigger"),
        ({"path": "/a", "kafka.group.id": "g"}, "unknown option kafka.group.id"),
        ({"path": "/a", "startingOffsets": "latest"}, "startingOffsets"),
        ({"path": "/a", "startingTimestamp": "9", "endingTimestamp": "5"}, "contradict each other"),
        ({"path": "/a", "checkCrcs": "perhaps"}, "checkCrcs"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SegmentOptions.from_options(given)


def test_options_can_be_sent_to_a_worker() -> None:
    options = read(mode="FAILFAST", startingTimestamp="5")
    assert pickle.loads(pickle.dumps(options)) == options
