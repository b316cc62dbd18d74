"""Options of reading as Spark's users write them, and patterns of Java without a JVM."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType
from triolog.protocol.records.columnar.schema import COLUMNS, arrow_schema
from triolog.protocol.types import NO_OFFSET, Isolation, TopicPartition
from triolog.tools.spark.option_table.option import STRICT, OptionError
from triolog.tools.spark.option_table.reading import READING
from triolog.tools.spark.sink.server_access import ACCESS, KAFKA_ACCESS, Servers
from triolog.tools.spark.source import bounds
from triolog.tools.spark.source.bounds import (
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    BoundError,
    Earliest,
    Latest,
    PartitionRange,
    StreamOffsets,
)
from triolog.tools.spark.source.java_pattern import PatternError, compile_java
from triolog.tools.spark.source.options import Assigned, Matching, ReadOptions, Subscribed
from triolog.tools.spark.source.reader import OffsetRange, divide, estimated_bytes, raise_count
from triolog.tools.spark.source.schema import DDL, SchemaError, columns_of, spark_schema

NEEDED = {"kafka.bootstrap.servers": "localhost:9095", "subscribe": "events"}


def _read(streaming: bool | None = False, **options: str) -> ReadOptions:
    return ReadOptions.from_options(
        NEEDED | {name.replace("__", "."): value for name, value in options.items()}, streaming=streaming
    )


def _refused(options: dict[str, str], streaming: bool | None = False) -> str:
    with pytest.raises(OptionError) as caught:
        ReadOptions.from_options(options, streaming=streaming)
    return str(caught.value)


def test_defaults_are_those_of_sparks_kafka_source_and_names_have_no_case() -> None:
    batch, stream = _read(), _read(streaming=True)
    assert (batch.starting, batch.ending) == (Earliest(), Latest())
    assert (stream.starting, stream.ending) == (Latest(), Latest())
    options = _read()
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (options.metadata_retries, options.metadata_retry_ms, options.poll_timeout_ms) == (3, 10, 120_000)
    assert (options.starting_strategy, options.max_trigger_delay_ms) == ("error", 900_000)
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert _read(MINPARTITIONS="4").min_partitions == 4
    options = ReadOptions.from_options({"triolog.servers": "[::1]:9095", "subscribe": "events"})
    assert (options.servers, options.server) == (Servers((("::1", 9095),)), "[::1]:9095")


READ_AS: Final[list[tuple[str, str, str, Any]]] = [
    ("assign", '{"b": [1, 0], "a": [2]}', "selection", Assigned((("a", 2), ("b", 0), ("b", 1)))),  # type: ignore[arg-type]
    ("subscribe", "events, orders,", "selection", Subscribed(("events", "orders"))),
    ("subscribePattern", "ev.*", "selection", Matching("ev.*")),
    ("startingOffsets", "earliest", "starting", Earliest()),
    ("startingOffsets", "latest", "starting", Latest()),
    ("startingTimestamp", "5", "starting", AtTime(5, "startingTimestamp")),
    (
        "startingOffsetsByTimestamp",
        '{"t": {"0": 5}}',
        "starting",
        AtTimes({TopicPartition("t", 0): 5}, "startingOffsetsByTimestamp"),
    ),
    (
        "startingOffsets",
        '{"t": {"0": -2, "1": -1, "2": 23}}',
        "starting",
        AtOffsets({TopicPartition("t", 0): -2, TopicPartition("t", 1): -1, TopicPartition("t", 2): 23}, "startingOffsets"),
    ),
    ("startingOffsetsByTimestampStrategy", "LATEST", "starting_strategy", "latest"),
    ("maxOffsetsPerTrigger", "10", "max_offsets_per_trigger", 10),
    ("minOffsetsPerTrigger", "10", "min_offsets_per_trigger", 10),
    ("maxTriggerDelay", "10s", "max_trigger_delay_ms", 10_000),
    ("maxTriggerDelay", "2 min", "max_trigger_delay_ms", 120_000),
    ("maxTriggerDelay", "250", "max_trigger_delay_ms", 250),
    ("maxBytesPerTrigger", "1m", "max_bytes_per_trigger", 1 << 20),
    ("minPartitions", "3", "min_partitions", 3),
    ("maxRecordsPerPartition", "3", "max_records_per_partition", 3),
    ("failOnDataLoss", "False", "fail_on_data_loss", False),
    ("includeHeaders", "true", "include_headers", True),
    ("groupIdPrefix", "reports", "client_id", "reports"),
    ("kafka.group.id", "reports", "group", "reports"),
    ("kafkaConsumer.pollTimeoutMs", "5", "poll_timeout_ms", 5),
    ("kafka.request.timeout.ms", "5", "request_timeout_ms", 5),
    ("fetchOffset.numRetries", "0", "metadata_retries", 0),
    ("fetchOffset.retryIntervalMs", "0", "metadata_retry_ms", 0),
    ("isolationLevel", "read_committed", "isolation", Isolation.READ_COMMITTED),
    ("kafka.isolation.level", "read_committed", "isolation", Isolation.READ_COMMITTED),
    ("splitBytes", "32m", "split_bytes", 32 << 20),
    ("arrowMaxRecords", "7", "arrow_max_records", 7),
    ("fetchMaxBytes", "65536", "fetch_max_bytes", 65536),
    ("checkCrcs", "true", "check_crcs", True),
    ("kafka.check.crcs", "true", "check_crcs", True),
    ("columns", "Offset, timestampType", "columns", ("offset", "timestampType")),
]
"""Option, its text, field, what the field is then."""


@pytest.mark.parametrize(("option", "text", "field", "value"), READ_AS)
def test_an_option_is_read(option: str, text: str, field: str, value: Any) -> None:
    options = {"kafka.bootstrap.servers": "localhost:9095", option: text}
    if not option.startswith(("assign", "subscribe")):
        options["subscribe"] = "events"
    assert getattr(ReadOptions.from_options(options, streaming=True), field) == value


@pytest.mark.parametrize("option", ["endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"])
def test_a_batch_has_an_end_and_a_stream_refuses_it(option: str) -> None:
    text = {"endingTimestamp": "9", "endingOffsets": "latest"}.get(option, '{"events": {"0": 9}}')
    expected = {
        "endingTimestamp": AtTime(9, option),
        "endingOffsets": Latest(),
        "endingOffsetsByTimestamp": AtTimes({TopicPartition("events", 0): 9}, option),
    }
    assert _read(**{option: text}).ending == expected[option]
    assert f"option {option} is refused in a streaming query" in _refused(NEEDED | {option: text}, streaming=True)


def test_every_option_is_in_a_test_of_this_file() -> None:
    tested = {option for option, *_ in READ_AS}
    elsewhere = {"kafka.bootstrap.servers", "triolog.servers", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"}
    assert tested | elsewhere | {*ACCESS, *KAFKA_ACCESS, STRICT} == set(READING.names)


def test_a_time_for_all_beats_a_time_for_each_beats_offsets() -> None:
    times, each = '{"events": {"0": 5}}', '{"events": {"0": 7}}'
    options = _read(startingTimestamp="5", startingOffsetsByTimestamp=times, startingOffsets=each)
    assert options.starting == AtTime(5, "startingTimestamp")
    assert isinstance(_read(startingOffsetsByTimestamp=times, startingOffsets=each).starting, AtTimes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "events"}, "option kafka.bootstrap.servers is missing"),
        ({**NEEDED, "kafka.bootstrap.servers": "a:1,b"}, "expected the address of a server, as in localhost:9095, or several"),
        ({**NEEDED, "kafka.bootstrap.servers": " , "}, "option kafka.bootstrap.servers is ',', expected the address"),
        (
            {"triolog.servers": "a:1"},
            "exactly one of assign, subscribe and subscribePattern is required",
        ),
        ({**NEEDED, "assign": '{"a": [0]}'}, "assign and subscribe are given"),
        ({**NEEDED, "subscribe": " , "}, "option subscribe is ',', expected names of topics"),
        ({"triolog.servers": "a:1", "assign": "[1]"}, "option assign is '[1]', expected partitions of topics, as in"),
        ({"triolog.servers": "a:1", "assign": '{"a": [-1]}'}, "option assign gives a the partitions [-1]"),
        ({"triolog.servers": "a:1", "subscribePattern": "("}, "option subscribePattern is '(': a ( is not closed"),
        ({"triolog.servers": "a:1", "subscribePattern": ""}, "option subscribePattern is empty"),
        ({**NEEDED, "startingOffset": "1"}, "unknown option startingoffset. Did you mean startingOffsets?"),
        ({**NEEDED, "wholly": "1"}, "unknown option wholly. A read takes kafka.bootstrap.servers"),
        ({**NEEDED, "kafka.auto.offset.reset": "earliest"}, "option kafka.auto.offset.reset is refused: startingOffsets"),
        ({**NEEDED, "kafka.key.deserializer": "x"}, "keys are bytes"),
        ({**NEEDED, "kafka.value.deserializer": "x"}, "values are bytes"),
        ({**NEEDED, "kafka.enable.auto.commit": "true"}, "kafka.group.id publishes it"),
        ({**NEEDED, "kafka.interceptor.classes": "x"}, "classes of Kafka's clients do not run here"),
        ({**NEEDED, "path": "/x"}, "option path is refused: subscribe"),
        ({**NEEDED, "topic": "events"}, "it is an option of writing. To read, name the topic with subscribe"),
        ({**NEEDED, "startingOffsets": "latest"}, "option startingOffsets is 'latest', expected earliest, or an offset"),
        ({**NEEDED, "endingOffsets": "earliest"}, "option endingOffsets is 'earliest', expected latest, or an offset"),
        ({**NEEDED, "startingOffsets": '{"events": {"0": -1}}'}, "has -1 for events-0, which stands for the latest offset"),
        ({**NEEDED, "endingOffsets": '{"events": {"0": -2}}'}, "has -2 for events-0, which stands for the earliest offset"),
        ({**NEEDED, "startingOffsets": '{"events": {"0": -3}}'}, "has -3 for events-0, expected"),
        ({**NEEDED, "startingOffsets": '{"events": {"x": 3}}'}, "names partition 'x' of events"),
        ({**NEEDED, "startingOffsets": '{"events": 3}'}, "has 3 for topic events"),
        ({**NEEDED, "startingOffsets": "{}"}, "option startingOffsets is '{}'"),
        ({**NEEDED, "startingOffsets": '{"events": {"0": true}}'}, "has True for events-0"),
        ({**NEEDED, "startingTimestamp": "-1"}, "option startingTimestamp is '-1', expected a number from 0"),
        ({**NEEDED, "startingOffsetsByTimestampStrategy": "none"}, "expected one of error, latest"),
        ({**NEEDED, "minPartitions": "0"}, "option minPartitions is '0', expected a number from 1"),
        ({**NEEDED, "failOnDataLoss": "maybe"}, "option failOnDataLoss is 'maybe', expected one of true, false"),
        ({**NEEDED, "maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon', expected a time such as"),
        ({**NEEDED, "splitBytes": "1"}, "option splitBytes is '1', expected bytes from 65536"),
        ({**NEEDED, "fetchMaxBytes": "1t"}, "option fetchMaxBytes is '1t'"),
        ({**NEEDED, "columns": "key,nope"}, "option columns is 'key,nope', expected names out of key, value"),
        ({**NEEDED, "columns": "key,key"}, "each once"),
        ({**NEEDED, "kafka.group.id": ""}, "option kafka.group.id has 0 characters"),
        ({**NEEDED, "isolationLevel": "serializable"}, "expected one of read_uncommitted, read_committed"),
        (
            {**NEEDED, "isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "options isolationLevel and kafka.isolation.level contradict each other",
        ),
        (
            {**NEEDED, "checkCrcs": "true", "kafka.check.crcs": "false"},
            "options checkCrcs and kafka.check.crcs contradict each other",
        ),
        (
            {**NEEDED, "kafka.max.poll.records": "x"},
            "option kafka.max.poll.records is refused: fetchMaxBytes and arrowMaxRecords set the sizes of a read. "
            "Leave it out, or set strictOptions to false",
        ),
        (
            {**NEEDED, "kafka.sasl.kerberos.service.name": "x", "strictOptions": "false"},
            "logs in with SCRAM, PLAIN or OAUTHBEARER only",
        ),
        ({**NEEDED, "strictOptions": "no"}, "option strictOptions is 'no', expected one of true, false"),
    ],
)
def test_a_bad_option_is_refused_by_name_with_what_is_allowed(options: dict[str, str], message: str) -> None:
    assert message in _refused(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingTimestamp": "9", "endingTimestamp": "5"}, "9 to 5 of every partition"),
        (
            {"startingOffsets": '{"events": {"0": 9}}', "endingOffsets": '{"events": {"0": 5}}'},
            "options startingOffsets and endingOffsets contradict each other: they request 9 to 5 of events-0",
        ),
        (
            {"startingOffsetsByTimestamp": '{"events": {"1": 9}}', "endingOffsetsByTimestamp": '{"events": {"1": 5}}'},
            "9 to 5 of events-1",
        ),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is 9, above maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "Spark accepts one limit"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], message: str) -> None:
    assert message in _refused(NEEDED | options, streaming=None)


def test_bounds_are_for_partitions_that_are_assigned_and_the_latest_offset_contradicts_no_start() -> None:
    _read(startingOffsets='{"events": {"0": 9}}', endingOffsets='{"events": {"0": -1}}')
    options = {"triolog.servers": "a:1", "assign": '{"t": [0]}', "startingOffsets": '{"t": {"0": 1, "1": 1}}'}
    assert "option startingOffsets names t-1, which assign does not" in _refused(options)


def test_unused_and_unknown_options_are_ignored_with_one_warning_if_strict_options_is_false() -> None:
    unused = {"kafka.fetch.min.bytes": "1", "kafka.max.poll.records": "x", "wholly": "1"}
    with pytest.warns(UserWarning, match=r"no effect: kafka\.fetch\.min\.bytes, kafka\.max\.poll\.records, wholly") as caught:
        ReadOptions.from_options(NEEDED | unused | {"strictOptions": "FALSE"}, streaming=True)
    assert len(caught) == 1
    for option, text in unused.items():
        assert f"option {option}" in _refused(NEEDED | {option: text})


def test_a_batch_read_warns_about_limits_of_a_stream() -> None:
    with pytest.warns(UserWarning, match="in streaming queries only: maxOffsetsPerTrigger"):
        _read(maxOffsetsPerTrigger="5")


def test_a_pattern_is_searched_inside_names_and_not_in_internal_topics() -> None:
    assert Matching("offsets").matches("my-offsets-2")
    assert not Matching("^offsets").matches("my-offsets")
    assert not Matching("offsets").matches("__consumer_offsets")
    assert Matching("audit$").matches("__audit"), "a topic of a user"


def test_a_list_of_servers_is_tried_one_after_the_other() -> None:
    servers = ReadOptions.from_options({"triolog.servers": "a:1, b:2,a:1", "subscribe": "events"}).servers
    assert str(servers) == "a:1,b:2"
    source = servers.source()
    assert [source() for _ in range(3)] == [("a", 1), ("b", 2), ("a", 1)]


def test_options_are_the_same_after_pickling() -> None:
    options = _read(startingOffsets='{"events": {"0": 9}}')
    assert pickle.loads(pickle.dumps(options)) == options


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), min_size=1, max_size=8).map(
    lambda spans: [OffsetRange("t", number, low, low + count) for number, (low, count) in enumerate(spans)]
)


def _is_cover(parts: list[OffsetRange], whole: OffsetRange) -> bool:
    mine = [part for part in parts if part.partition == whole.partition]
    edges = all(first.high == second.low for first, second in pairwise(mine))
    return edges and (mine[0].low, mine[-1].high) == (whole.low, whole.high) and all(part.count > 0 for part in mine)


@given(RANGES, st.integers(1, 40))
def test_parts_are_the_ranges_without_overlap_or_hole(ranges: list[OffsetRange], parts: int) -> None:
    for range_ in ranges:
        divided = divide(range_, parts)
        assert _is_cover(divided, range_)
        assert max(part.count for part in divided) - min(part.count for part in divided) <= 1


@given(RANGES, st.integers(1, 40))
def test_raising_the_count_keeps_the_offsets_and_comes_near_the_count(ranges: list[OffsetRange], least: int) -> None:
    raised = raise_count(ranges, least)
    assert all(_is_cover(raised, range_) for range_ in ranges)
    if len(ranges) >= least:
        assert raised == ranges
    elif min(range_.count for range_ in ranges) >= least:
        assert abs(len(raised) - least) <= len(ranges)


@pytest.mark.parametrize(
    ("counts", "least", "expected"),
    [
        ([100], 4, [25, 25, 25, 25]),
        ([1, 99], 4, [1, 33, 33, 33]),
        ([10, 10, 100], 4, [10, 10, 50, 50]),
        ([1], 5, [1]),
        ([25, 15], 4, [8, 8, 9, 7, 8]),  # 2.5 and 1.5 are 3 and 2 in Spark, whose Math.round takes halves up
        ([1, 1], 3, [1, 1]),
    ],
)
def test_small_ranges_stay_whole_and_large_ones_share_the_rest(counts: list[int], least: int, expected: list[int]) -> None:
    ranges = [OffsetRange("t", number, 0, count) for number, count in enumerate(counts)]
    assert [range_.count for range_ in raise_count(ranges, least)] == expected


def test_bytes_are_estimated_by_the_share_of_offsets_of_a_partition() -> None:
    range_ = OffsetRange("t", 0, 10, 30)
    assert estimated_bytes(range_, PartitionRange(0, 100, 1000)) == 200
    assert estimated_bytes(range_, PartitionRange(5, 5, 1000)) == 0
    assert estimated_bytes(range_, None) == 0
    assert OffsetRange("t", 3, 0, 1).name == TopicPartition("t", 3)


NAME = TopicPartition("t", 0)
RANGE = PartitionRange(10, 90, 1000)


@pytest.mark.parametrize(
    ("bound", "found", "start", "end"),
    [
        (Earliest(), None, 10, 10),
        (Latest(), None, 90, 90),
        (AtOffsets({NAME: 42}, "o"), None, 42, 42),
        (AtOffsets({NAME: -2}, "o"), None, 10, 10),
        (AtOffsets({NAME: -1}, "o"), None, 90, 90),
        (AtTime(5, "o"), 33, 33, 33),
        (AtTimes({NAME: 5}, "o"), 33, 33, 33),
    ],
)
def test_a_bound_is_an_offset(bound: Bound, found: int | None, start: int, end: int) -> None:
    assert (bounds.question(bound, NAME) is not None) is (found is not None)
    assert bounds.start_offset(bound, NAME, RANGE, found, "error") == start
    assert bounds.end_offset(bound, NAME, RANGE, found) == end


def test_what_has_no_offset_is_an_error_that_names_the_option() -> None:
    with pytest.raises(BoundError, match=r"option o: no record of t-0 is at or after 5 ms\. .* offset 90"):
        bounds.start_offset(AtTime(5, "o"), NAME, RANGE, NO_OFFSET, "error")
    assert bounds.start_offset(AtTime(5, "o"), NAME, RANGE, NO_OFFSET, "latest") == 90
    assert bounds.end_offset(AtTimes({NAME: 5}, "o"), NAME, RANGE, NO_OFFSET) == 90
    partitions = {TopicPartition("t", number): None for number in range(9)}
    with pytest.raises(BoundError, match="option o leaves out t-1, t-2, t-3, t-4, t-5 and 3 more"):
        bounds.check_partitions(AtOffsets({NAME: 5}, "o"), partitions)


@pytest.mark.parametrize(
    ("bound", "moves"),
    [
        (Earliest(), True),
        (Latest(), True),
        (AtTime(5, "o"), True),
        (AtOffsets({NAME: 5}, "o"), False),
        (AtOffsets({NAME: -1}, "o"), True),
    ],
)
def test_only_offsets_stay_where_they_are(bound: Bound, moves: bool) -> None:
    assert bounds.is_moving(bound) is moves


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "Z", "a-1"]), st.integers(0, 20))
MAPS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


def test_topics_and_partitions_are_in_order_and_partitions_by_their_number() -> None:
    offsets = StreamOffsets({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3})
    assert json.dumps(offsets.to_json()) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


def test_notes_are_keys_that_no_topic_has_with_empty_maps() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("a", 1)
    offsets = StreamOffsets({a: 7, b: 9}, {"a": "Kp_N-3"}, {a: 5, b: 6})
    assert offsets.to_json() == {"a": {"0": 7, "1": 9}, "a#id=Kp_N-3": {}, "a#start=0:5,1:6": {}}
    assert _read(startingOffsets=json.dumps(offsets.to_json())).starting == AtOffsets({a: 7, b: 9}, "startingOffsets")


IDS = st.dictionaries(st.sampled_from(["a", "b", "Z", "a-1"]), st.text("abcXYZ019_-", min_size=22, max_size=22))


@given(MAPS, IDS, MAPS, st.randoms())
def test_the_same_offsets_are_the_same_text(
    offset_map: dict[TopicPartition, int], ids: dict[str, str], starts: dict[TopicPartition, int], random: object
) -> None:
    shuffled = sorted(offset_map.items(), key=lambda _: random.random())  # type: ignore[attr-defined]
    offsets = StreamOffsets(offset_map, ids, starts)
    assert json.dumps(StreamOffsets(dict(shuffled), ids, starts).to_json()) == json.dumps(offsets.to_json())
    assert StreamOffsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}, {"a#start=1": {}}])
def test_a_checkpoint_of_another_source_is_refused_with_what_it_has(value: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="which are not of this source"):
        StreamOffsets.from_json(value)


@given(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000))), st.integers(1, 3000))
def test_a_limit_is_shared_out_and_every_backlog_moves(spans: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {partition: low for partition, (low, _) in spans.items()}
    end = {partition: low + size for partition, (low, size) in spans.items()}
    limited = bounds.prorate(start, end, limit)
    taken = {partition: limited[partition] - start[partition] for partition in start}
    waiting = {partition: size for partition, (_, size) in spans.items()}
    assert all(min(1, waiting[partition]) <= taken[partition] <= waiting[partition] for partition in start)
    assert sum(taken.values()) <= limit + len(start)
    if sum(waiting.values()) <= limit:
        assert limited == end


def test_shares_follow_the_backlog_and_partitions_without_a_start_stay() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    limited = bounds.prorate({a: 0, b: 10, c: 5}, {a: 900, b: 110, c: 5}, 100)
    assert limited == {a: 90, b: 20, c: 5}
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert bounds.prorate({a: 0}, {a: 100, b: 7}, 10) == {a: 10, b: 7}


def test_sparks_schema_is_arrows_and_the_documented_one_or_some_of_its_columns() -> None:
    assert to_arrow_schema(spark_schema(COLUMNS), timezone="UTC").equals(arrow_schema(COLUMNS))
    assert {field.name: field.dataType.simpleString() for field in spark_schema(COLUMNS).fields} == DDL
    assert columns_of(spark_schema(["offset", "key"])) == ("offset", "key")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("ofset", LongType()), "the schema has a column ofset. A read returns key, value"),
        (StructField("Offset", LongType()), "with exactly this case"),
        (StructField("offset", StringType()), "column offset as string, but it is bigint"),
        (StructField("offset", LongType(), nullable=False), "column offset as NOT NULL"),
        (StructField("headers", ArrayType(StringType())), "column headers as array<string>"),
    ],
)
def test_a_column_that_cannot_be_given_is_named(field: StructField, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("<", ".").replace(">", ".")):
        columns_of(StructType([field]))


def test_a_schema_without_columns_or_with_one_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="a column twice"):
        columns_of(spark_schema(["offset", "offset"]))
    # An Arrow batch without columns has no number of rows
    with pytest.raises(SchemaError, match="no columns"):
        columns_of(StructType([]))


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("pt", "opt opt.b", "o"),
        ("^opt$", "opt", "opt.b"),
        ("[a-z&&[^x]]pt", "opt", "xpt"),
        ("[^a-c&&[b]]", "a c", "b"),
        ("[a-c[x-z]]", "b y", "d"),
        ("[a-p&&[^o]&&[^b-d]]", "a", "o b"),
        ("[]o]", "o", "p"),
        ("[[:alpha:]]", "a h", "b"),
        ("(?i)OP(?-i)T", "opT", "opt"),
        ("(?i:[^o])", "a", "O o"),
        (r"\Qt.b\E", "opt.b", "optxb"),
        (r"\p{Lower}\d", "a1", "A1 1a"),
        (r"\P{Alnum}", "a.b", "ab"),
        (r"\x6f\u0070", "opt", "pto"),
        ("(?<name>a|b)+$", "xab", "abx"),
        ("a{2,}", "baa", "aba"),
        ("a*+a", "", "aaa"),
        (r"\bb", "a.b b", "ab"),
        (r"\s|\R", "", "a-b"),
    ],
)
def test_a_pattern_is_found_as_java_finds_it(pattern: str, found: str, not_found: str) -> None:
    compiled = compile_java(pattern)
    assert [name for name in found.split() if not compiled.search(name)] == []
    assert [name for name in not_found.split() if compiled.search(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "*a", "a**", "a{,2}", "{", "[", "[a", "[a&&]", "[a&&[b]c]", "[z-a]", r"(a)\1", r"\k<a>", r"\G", r"\X"),
        *(r"\b{g}", "(?x)a", "(?P<n>a)", "(?#a)", "(?(1)a)", r"\y", "\\", r"\x4", r"\p{IsGreek}", r"(?i)\p{Lower}", "a" * 1001),
    ],
)
def test_a_pattern_that_java_refuses_or_that_has_no_equal_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_java(pattern)
