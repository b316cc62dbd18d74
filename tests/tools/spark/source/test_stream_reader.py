"""The stream reader as Spark drives it, without Spark: offsets go through JSON text, tasks get another, pickled reader."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import triolog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows
from triolog.protocol.native.messages import MetadataRequest
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.listeners.native import log_calls
from triolog.tools.client.blocking.client import BlockingClient
from triolog.tools.client.procedures.groups import fetch_offsets
from triolog.tools.spark.source.broker import close_connections
from triolog.tools.spark.source.reader import DataLossError, OffsetRange, ReadTask
from triolog.tools.spark.source.source import TriologDataSource
from triolog.tools.spark.source.stream_reader import StreamReader

KEEP = {"retention.ms": "-1"}
Json = dict[str, dict[str, int]]


def _reader(broker: BlockingBroker, clock: Callable[[], float] | None = None, **options: Any) -> StreamReader:
    given = {"triolog.servers": f"127.0.0.1:{broker.native.port}", "startingOffsets": "earliest"}
    given |= {name.replace("__", "."): str(value) for name, value in options.items()}
    if "subscribePattern" not in options:
        given.setdefault("subscribe", "events")
    source = TriologDataSource(given)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    if clock is not None:
        reader._clock = clock
    return reader


@attrs.define
class Query:
    """What Spark does with a reader, and its checkpoint: the ends of batches, as text."""

    reader: StreamReader
    limit: ReadLimit | None = None
    planned: list[str] = attrs.field(factory=list)
    committed: int = 0
    rows: list[tuple[int, int]] = attrs.field(factory=list)
    sizes: list[int] = attrs.field(factory=list)

    def restart(self, reader: StreamReader, limit: ReadLimit | None = None) -> None:
        """A query on the same checkpoint; a batch that was planned and not committed is run again with its range."""
        self.reader, self.limit = reader, limit
        if self.committed < len(self.planned):
            self.run_planned()

    def plan(self) -> bool:
        """Whether there is another batch."""
        limit = self.reader.getDefaultReadLimit() if self.limit is None else self.limit
        start = self.planned[-1] if self.planned else json.dumps(self.reader.initialOffset())
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if self.planned:
            self.reader.commit(json.loads(start))
        if end == start and self.planned:  # Spark runs the first batch of a query even when it has nothing
            return False
        self.planned.append(end)
        return True

    def run_planned(self) -> None:
        index = self.committed
        start = self.planned[index - 1] if index else json.dumps(self.reader.initialOffset())
        rows = read(self.reader, json.loads(start), json.loads(self.planned[index]))
        self.rows += rows
        self.sizes.append(len(rows))
        self.committed += 1

    def run(self, batches: int = 1000) -> None:
        for _ in range(batches):
            if not self.plan():
                return
            self.run_planned()


def read(reader: StreamReader, start: Json, end: Json) -> list[tuple[int, int]]:
    task = pickle.loads(pickle.dumps(reader))
    batches = [
        batch for partition in reader.partitions(start, end) for batch in task.read(pickle.loads(pickle.dumps(partition)))
    ]
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def ranges_of(partitions: list[Any]) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task."""
    return [task.ranges for task in partitions if isinstance(task, ReadTask)]


@pytest.fixture
def events(server: BlockingBroker) -> BlockingBroker:
    """100 records in partition 0, 300 in partition 1."""
    server.create_topic("events", 2, KEEP)
    server.append("events", [(number, b"k", b"x" * 100, ()) for number in range(100)])
    server.append("events", [(number, b"k", b"x" * 100, ()) for number in range(300)], partition=1)
    return server


def id_of(broker: BlockingBroker, topic: str = "events") -> str:
    """The topic's id, as the server names it."""
    with BlockingClient(("127.0.0.1", broker.native.port)) as client:
        [entry] = client.metadata(MetadataRequest((topic,))).topics
    assert entry.topic_id is not None
    return entry.topic_id


def offsets_in(end: str | Json) -> Json:
    """The offsets of an end, without the notes."""
    found: Json = json.loads(end) if isinstance(end, str) else end
    return {topic: partitions for topic, partitions in found.items() if "#" not in topic}


ALL = [(0, offset) for offset in range(100)] + [(1, offset) for offset in range(300)]


def test_offsets_are_canonical_json_and_the_start_to_the_letter_without_new_records(events: BlockingBroker) -> None:
    reader = _reader(events, startingOffsets='{"events": {"1": 5, "0": 7}}')
    topic_id = f"events#id={id_of(events)}"
    assert json.dumps(reader.initialOffset()) == f'{{"events": {{"0": 7, "1": 5}}, "{topic_id}": {{}}}}'
    reader = _reader(events)
    start = {topic_id: {}, "events": {"1": 300, "0": 100}}  # an order that we would not write
    assert json.dumps(reader.latestOffset(start, ReadAllAvailable())) == json.dumps(start)


def test_a_maximum_of_rows_is_shared_out_by_backlog(events: BlockingBroker) -> None:
    query = Query(_reader(events, maxOffsetsPerTrigger=100))
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(100)
    query.run()
    assert query.sizes == [100, 100, 100, 100]
    assert offsets_in(query.planned[0]) == {"events": {"0": 25, "1": 75}}
    assert sorted(query.rows) == ALL


def test_a_maximum_of_bytes_is_kept_by_what_the_log_has_between_offsets(server: BlockingBroker) -> None:
    server.create_topic("events", 2, KEEP)
    for partition in range(2):
        for _ in range(50):
            server.append("events", [b"x" * 1000] * 8, partition=partition)
    query = Query(_reader(server, maxBytesPerTrigger=200_000))
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(200_000)
    query.run()
    assert sorted(query.rows) == [(partition, offset) for partition in range(2) for offset in range(400)]
    assert all(size <= 240 for size in query.sizes)
    assert len(query.sizes) <= 8


def test_a_maximum_of_bytes_is_kept_in_a_backlog_of_any_size(server: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_calls, "MAX_SPLIT_POINTS", 16)
    server.create_topic("events", 1, KEEP)
    for _ in range(100):
        server.append("events", [b"x" * 1000] * 8)
    query = Query(_reader(server, maxBytesPerTrigger=24_000))
    query.run()
    assert query.rows == [(0, offset) for offset in range(800)]
    assert max(query.sizes) <= 24


def test_a_maximum_of_bytes_below_one_record_still_moves(events: BlockingBroker) -> None:
    query = Query(_reader(events, maxBytesPerTrigger=1))
    query.run(3)
    assert query.rows


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_minimum_of_rows_is_waited_for_until_the_delay_has_passed(events: BlockingBroker) -> None:
    clock = Clock()
    reader = _reader(events, clock, minOffsetsPerTrigger=50, maxTriggerDelay="10s")
    assert reader.getDefaultReadLimit() == ReadMinRows(50)
    end = reader.latestOffset(reader.initialOffset(), ReadMinRows(50))
    events.append("events", [b"x"] * 49)
    assert reader.latestOffset(end, ReadMinRows(50)) == end
    events.append("events", [b"x"])
    enough = reader.latestOffset(end, ReadMinRows(50))
    assert offsets_in(enough) == {"events": {"0": 150, "1": 300}}
    events.append("events", [b"x"])
    assert reader.latestOffset(enough, ReadMinRows(50)) == enough
    clock.now_s += 10
    assert offsets_in(reader.latestOffset(enough, ReadMinRows(50))) == {"events": {"0": 151, "1": 300}}


def test_a_minimum_and_a_maximum_go_together(events: BlockingBroker) -> None:
    clock = Clock()
    reader = _reader(events, clock, minOffsetsPerTrigger=10, maxOffsetsPerTrigger=100)
    assert reader.getDefaultReadLimit() == ReadMaxRows(100)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    assert offsets_in(first) == {"events": {"0": 25, "1": 75}}
    almost = first | {"events": {"0": 100, "1": 291}}
    assert reader.latestOffset(almost, ReadMaxRows(100)) == almost


def test_the_latest_offsets_are_reported_and_taken_by_a_trigger_without_limits(events: BlockingBroker) -> None:
    reader = _reader(events, maxOffsetsPerTrigger=10, minOffsetsPerTrigger=5)
    latest = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert offsets_in(latest) == {"events": {"0": 100, "1": 300}}
    reader = _reader(events, maxOffsetsPerTrigger=10)
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert reader.reportLatestOffset() == {"events": {"0": 100, "1": 300}}


def test_available_now_takes_what_was_there_when_it_began_in_limited_batches(events: BlockingBroker) -> None:
    query = Query(_reader(events, maxOffsetsPerTrigger=150))
    query.reader.prepareForTriggerAvailableNow()
    events.append("events", [b"late"] * 10)
    query.run()
    assert sorted(query.rows) == ALL
    assert max(query.sizes) <= 152


def test_available_now_from_the_latest_offset_that_was_found_after_it_began(events: BlockingBroker) -> None:
    reader = _reader(events, startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    events.append("events", [b"between"])
    query = Query(reader)
    query.run()
    assert query.rows == []
    events.append("events", [b"behind"])
    query.restart(_reader(events, startingOffsets="latest"))
    query.run()
    assert query.rows == [(0, 101)]


def test_available_now_leaves_a_rest_below_the_minimum_to_the_next_run(events: BlockingBroker) -> None:
    options = {"minOffsetsPerTrigger": 150, "maxOffsetsPerTrigger": 150}
    query = Query(_reader(events, **options))
    query.reader.prepareForTriggerAvailableNow()
    query.run()
    assert query.sizes == [149, 149], "shares are rounded down"
    query.restart(_reader(events, **options))
    query.reader.prepareForTriggerAvailableNow()
    query.run()
    assert query.sizes == [149, 149, 102]


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_first_batch_that_is_run_again_begins_where_the_query_did(events: BlockingBroker, starting: str) -> None:
    query = Query(_reader(events, startingOffsets=starting))
    query.reader.initialOffset()
    events.append("events", [b"first"] * 3)
    assert query.plan()
    events.append("events", [b"second"] * 2)
    query.restart(_reader(events, startingOffsets=starting))
    assert query.sizes == [3 if starting == "latest" else 403]
    query.run()
    assert sum(query.sizes) == (5 if starting == "latest" else 405)


def test_a_first_batch_that_retention_overtook_is_lost_data(events: BlockingBroker) -> None:
    query = Query(_reader(events))
    assert query.plan()
    events.delete_records("events", 7, partition=0)
    with pytest.raises(DataLossError, match="events-0: offset 0 is to be read and the log starts at offset 7"):
        query.restart(_reader(events))


def test_a_checkpoint_of_sparks_kafka_source_goes_on_and_gets_topic_ids(events: BlockingBroker) -> None:
    query = Query(_reader(events), planned=['{"events":{"0":90,"1":290}}'], committed=1)
    query.run()
    assert sorted(query.rows) == [row for row in ALL if row >= (1, 290) or (0, 90) <= row < (1, 0)]
    assert json.loads(query.planned[-1])[f"events#id={id_of(events)}"] == {}


def test_a_new_partition_and_a_new_topic_are_read_from_their_beginning(events: BlockingBroker) -> None:
    query = Query(_reader(events, subscribePattern="events|eve"))
    query.run()
    events.create_partitions("events", 3)
    events.append("events", [b"x"] * 4, partition=2)
    events.create_topic("eve", 1, KEEP)
    query.run()
    assert offsets_in(query.planned[-1]) == {"eve": {"0": 0}, "events": {"0": 100, "1": 300, "2": 4}}
    assert sorted(query.rows) == [*ALL, *((2, offset) for offset in range(4))]


def strict_and_lenient(events: BlockingBroker, batches: int = 1000, **options: Any) -> list[Query]:
    """Queries for which data loss is an error and is none, after so many batches."""
    queries = [Query(_reader(events, failOnDataLoss=fails, **options)) for fails in ("true", "false")]
    for query in queries:
        query.run(batches)
    return queries


def test_offsets_that_expire_fail_or_are_reported(events: BlockingBroker, caplog: pytest.LogCaptureFixture) -> None:
    strict, lenient = strict_and_lenient(events, 2, maxOffsetsPerTrigger=40)
    events.delete_records("events", 200, partition=1)
    with pytest.raises(DataLossError, match=r"events-1: offset 60 is to be read and the log starts at offset 200"):
        strict.run()
    lenient.run()
    assert "events-1: offset 60 is to be read and the log starts at offset 200" in caplog.text
    assert sorted(lenient.rows) == [row for row in ALL if row < (1, 60) or row >= (1, 200)]


@pytest.mark.parametrize("selection", [{"subscribePattern": "ev.*"}, {"subscribe": "events,eve"}])
def test_a_vanished_topic_fails(events: BlockingBroker, caplog: pytest.LogCaptureFixture, selection: dict[str, str]) -> None:
    events.create_topic("eve", 1, KEEP)
    events.append("eve", [b"x"])
    strict, lenient = strict_and_lenient(events, **selection)
    events.delete_topic("eve")
    with pytest.raises(DataLossError, match="eve-0: offset 1 is requested, but the topic or partition no longer exists"):
        strict.run()
    lenient.run()
    assert "eve-0" not in lenient.planned[-1]
    assert "eve-0: offset 1" in caplog.text


@pytest.mark.parametrize("count", [3, 500])
def test_a_topic_that_was_created_again_is_lost_data_however_long_it_is(
    events: BlockingBroker, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    strict, lenient = strict_and_lenient(events)
    events.delete_topic("events")
    events.create_topic("events", 2, KEEP)
    events.append("events", [b"new"] * count)
    with pytest.raises(DataLossError, match=r"events-0: offset 100 .* deleted and created again"):
        strict.run()
    lenient.run()
    assert "events-1: offset 300 is requested, but the topic was deleted and created again" in caplog.text
    events.append("events", [b"new"] * 2)
    lenient.run()
    assert lenient.rows[len(ALL) :] == [(0, offset) for offset in range(count + 2)]


def test_a_topic_that_is_created_again_while_a_batch_waits_is_lost_data(events: BlockingBroker) -> None:
    strict, lenient = strict_and_lenient(events, 1, maxOffsetsPerTrigger=40)
    for query in (strict, lenient):
        assert query.plan()
    events.delete_topic("events")
    events.create_topic("events", 2, KEEP)
    events.append("events", [b"new"] * 500)
    with pytest.raises(DataLossError, match=r"events-0: offset 10 .* the topic was deleted and created again"):
        strict.run_planned()
    lenient.run_planned()
    lenient.run()
    assert lenient.sizes[:2] == [40, 0]
    assert lenient.rows[40:] == [(0, offset) for offset in range(500)]


def test_progress_is_published_for_a_group_where_it_can_be(events: BlockingBroker, caplog: pytest.LogCaptureFixture) -> None:
    Query(_reader(events, kafka__group__id="reports")).run()
    with BlockingClient(("127.0.0.1", events.native.port)) as client:
        kept = client.run(
            fetch_offsets("reports", [TopicPartition("events", 0), TopicPartition("events", 1)], require_stable=True)
        )
    assert {partition.partition: offset.offset for partition, offset in kept.items()} == {0: 100, 1: 300}
    reader = _reader(events, kafka__group__id="reports")
    reader.commit({"elsewhere": {"0": 5}})
    assert "group reports: could not publish offsets" in caplog.text
    reader.stop()


def test_micro_batches_are_split_as_batches_are(events: BlockingBroker) -> None:
    reader = _reader(events, minPartitions=8)
    offsets: tuple[Json, Json] = ({"events": {"0": 0, "1": 0}}, {"events": {"0": 100, "1": 300}})
    assert [range_.count for [range_] in ranges_of(reader.partitions(*offsets))] == [50] * 8
    assert [len(ranges) for ranges in ranges_of(_reader(events).partitions(*offsets))] == [2]


class Streaming(RuleBasedStateMachine):
    """Any order of appends, batches with any limit, failures between planning and commit, and restarts: every record from the
    first offset of the query on comes exactly once."""

    broker: BlockingBroker
    topics = 0

    @initialize(starting=st.sampled_from(["earliest", "latest"]), before=st.integers(0, 20), between=st.integers(0, 3))
    def begin(self, starting: str, before: int, between: int) -> None:
        Streaming.topics += 1
        self.topic = f"topic-{Streaming.topics}"
        self.starting = starting
        self.ends = [0]
        self.broker.create_topic(self.topic, 1, KEEP)
        if before:
            self.append(before, 0)
        self.query = Query(self.opened())
        self.query.reader.initialOffset()
        if between:
            self.append(between, 0)
        assert self.query.plan()
        self.first = [0] if starting == "earliest" else [before]

    def opened(self, **options: Any) -> StreamReader:
        return _reader(self.broker, subscribe=self.topic, startingOffsets=self.starting, **options)

    @rule(count=st.integers(1, 20), partition=st.integers(0, 3))
    def append(self, count: int, partition: int) -> None:
        partition %= len(self.ends)
        self.broker.append(self.topic, [b"x"] * count, partition=partition)
        self.ends[partition] += count

    @rule()
    def add_partition(self) -> None:
        if len(self.ends) < 4:
            self.broker.create_partitions(self.topic, len(self.ends) + 1)
            self.ends.append(0)
            self.first.append(0)

    @rule(limit=st.none() | st.builds(ReadMaxRows, st.integers(1, 10)) | st.builds(ReadMaxBytes, st.integers(1, 300)))
    def batch(self, limit: ReadLimit | None) -> None:
        if self.query.committed < len(self.query.planned):
            self.query.run_planned()
        self.query.limit = limit
        if self.query.plan():
            self.query.run_planned()

    @rule()
    def only_plan(self) -> None:
        if self.query.committed == len(self.query.planned):
            self.query.plan()

    @rule(available_now=st.booleans())
    def restart(self, available_now: bool) -> None:
        reader = self.opened()
        if available_now:
            reader.prepareForTriggerAvailableNow()
        self.query.restart(reader)
        if available_now:
            self.query.run()
            self.query.restart(self.opened())
            assert self.query.rows == [] or self.is_complete()

    def is_complete(self) -> bool:
        return len(self.query.rows) == sum(self.ends) - sum(self.first)

    @invariant()
    def nothing_comes_twice_or_out_of_order(self) -> None:
        for partition, first in enumerate(self.first):
            offsets = [offset for number, offset in self.query.rows if number == partition]
            assert offsets == list(range(first, first + len(offsets)))

    def teardown(self) -> None:
        self.query.restart(self.opened())
        self.query.run()
        assert self.is_complete()


@pytest.mark.timeout(280)
def test_any_history_of_batches_and_restarts_reads_every_record_once() -> None:
    with triolog.blocking.open(MEMORY, native="127.0.0.1:0") as broker:
        Streaming.broker = broker
        run_state_machine_as_test(Streaming, settings=settings(stateful_step_count=20))
        close_connections()
