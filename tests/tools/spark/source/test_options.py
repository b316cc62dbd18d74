from __future__ import annotations

import pickle
from typing import Any, Final

import pytest
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.spark.sink.write_options import ACCESS, OptionError
from triolog.tools.spark.source.bounds import AtOffsets, AtTime, AtTimes, Earliest, Latest
from triolog.tools.spark.source.options import NAMES, Assigned, Matching, ReadOptions, Subscribed

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
    assert (options.address, options.server) == (("::1", 9095), "[::1]:9095")


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
    ("pinInitialOffset", "false", "pin_initial_offset", False),
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
    assert tested | elsewhere | set(ACCESS) == set(NAMES)


def test_a_time_for_all_beats_a_time_for_each_beats_offsets() -> None:
    times, each = '{"events": {"0": 5}}', '{"events": {"0": 7}}'
    options = _read(startingTimestamp="5", startingOffsetsByTimestamp=times, startingOffsets=each)
    assert options.starting == AtTime(5, "startingTimestamp")
    assert isinstance(_read(startingOffsetsByTimestamp=times, startingOffsets=each).starting, AtTimes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "events"}, "option kafka.bootstrap.servers is missing"),
        ({**NEEDED, "kafka.bootstrap.servers": "a:1,b:2"}, "expected the address of one server"),
        (
            {"triolog.servers": "a:1"},
            "exactly one of assign, subscribe and subscribePattern says what is read, and none is given",
        ),
        ({**NEEDED, "assign": '{"a": [0]}'}, "assign and subscribe are given"),
        ({**NEEDED, "subscribe": " , "}, "option subscribe is ',', expected names of topics"),
        ({"triolog.servers": "a:1", "assign": "[1]"}, "option assign is '[1]', expected partitions of topics, as in"),
        ({"triolog.servers": "a:1", "assign": '{"a": [-1]}'}, "option assign gives a the partitions [-1]"),
        ({"triolog.servers": "a:1", "subscribePattern": "("}, "option subscribePattern is '(', which is no regular expression"),
        ({"triolog.servers": "a:1", "subscribePattern": ""}, "option subscribePattern is empty"),
        ({**NEEDED, "startingOffset": "1"}, "unknown option startingoffset; did you mean startingOffsets?"),
        ({**NEEDED, "wholly": "1"}, "unknown option wholly; a read takes kafka.bootstrap.servers"),
        ({**NEEDED, "kafka.auto.offset.reset": "earliest"}, "option kafka.auto.offset.reset is refused: where reading begins"),
        ({**NEEDED, "kafka.key.deserializer": "x"}, "keys are bytes"),
        ({**NEEDED, "kafka.value.deserializer": "x"}, "values are bytes"),
        ({**NEEDED, "kafka.enable.auto.commit": "true"}, "kafka.group.id publishes it"),
        ({**NEEDED, "kafka.interceptor.classes": "x"}, "nothing of Kafka's client"),
        ({**NEEDED, "path": "/x"}, "option path is refused: what is read is named by subscribe"),
        ({**NEEDED, "topic": "events"}, "it is an option of writing; to read, name the topic with subscribe"),
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
            "options isolationLevel and kafka.isolation.level say different things",
        ),
    ],
)
def test_a_bad_option_is_refused_by_name_with_what_is_allowed(options: dict[str, str], message: str) -> None:
    assert message in _refused(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingTimestamp": "9", "endingTimestamp": "5"}, "of every partition 9 to 5 is asked for"),
        (
            {"startingOffsets": '{"events": {"0": 9}}', "endingOffsets": '{"events": {"0": 5}}'},
            "options startingOffsets and endingOffsets contradict each other: of events-0 9 to 5",
        ),
        (
            {"startingOffsetsByTimestamp": '{"events": {"1": 9}}', "endingOffsetsByTimestamp": '{"events": {"1": 5}}'},
            "of events-1 9 to 5",
        ),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is 9, above maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "Spark takes one limit"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], message: str) -> None:
    assert message in _refused(NEEDED | options, streaming=None)


def test_bounds_are_for_partitions_that_are_assigned_and_the_latest_offset_contradicts_no_start() -> None:
    _read(startingOffsets='{"events": {"0": 9}}', endingOffsets='{"events": {"0": -1}}')
    options = {"triolog.servers": "a:1", "assign": '{"t": [0]}', "startingOffsets": '{"t": {"0": 1, "1": 1}}'}
    assert "option startingOffsets names t-1, which assign does not" in _refused(options)


def test_options_without_a_meaning_are_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"no use for them: kafka\.security\.protocol"):
        _read(kafka__security__protocol="PLAINTEXT")
    with pytest.warns(UserWarning, match="of streaming queries only: maxOffsetsPerTrigger"):
        _read(maxOffsetsPerTrigger="5")


def test_a_pattern_is_for_the_whole_name_and_not_for_internal_topics() -> None:
    pattern = Matching(".*offsets")
    assert pattern.matches("my-offsets")
    assert not pattern.matches("offsets-2")
    assert not pattern.matches("__consumer_offsets")
    assert Matching(".*").matches("__audit"), "a topic of a user"


def test_options_are_the_same_after_pickling() -> None:
    options = _read(startingOffsets='{"events": {"0": 9}}')
    assert pickle.loads(pickle.dumps(options)) == options
