"""Appending: what is checked, what is changed in a batch, and what one plan writes."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol import errors
from triolog.protocol.errors import RequestError
from triolog.protocol.limits import INT32_MAX, KIB
from triolog.protocol.records.batch import (
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    check_batch,
    end_txn_marker,
    iter_batches,
    parse_header,
    with_producer,
)
from triolog.protocol.records.builder import BatchBuilder, build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.records.steps import UNLIMITED, BatchLimits
from triolog.protocol.types import NO_TIMESTAMP, AppendResult, Bytes, CompressionType, TimestampType
from triolog.server.config import LogConfig, RecordValidation
from triolog.server.storage.disk.diskops import Sync, SyncDirectory, Write
from triolog.server.storage.log.append import plan_append
from triolog.server.storage.log.prepare import MOST_RECORDS, PreparedAppend, prepare_append, prepare_one, steps_of
from triolog.server.storage.producers.producer_cursor import AppendOrigin

from tests.support.logs import START_MS, TOPIC_PARTITION, Clock, DrivenLog, batch, open_driven
from tests.support.record_batches import damaged, headers, patched, record_lists, tiny_records

CODECS: Final = pytest.mark.parametrize("codec", list(CompressionType), ids=lambda codec: codec.name.lower())
APPEND_TIME: Final = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
DAY_MS: Final = 86_400_000
MARKER: Final = end_txn_marker(producer_id=1, producer_epoch=0, commit=True, timestamp=START_MS, coordinator_epoch=0)


def prepare(records: Bytes, config: LogConfig | None = None, **options: Any) -> PreparedAppend:
    return prepare_append(records, TOPIC_PARTITION, config or LogConfig(), now_ms=START_MS, **options)


def stored(driven: DrivenLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of the active segment, as it lies in the file; its CRC has been checked."""
    data = Path(driven.log.active.log.path).read_bytes()[: driven.log.active.size]
    found = []
    for header, view in iter_batches(data):
        check_batch(view, header)
        found.append((header, bytes(view)))
    return found


@pytest.mark.parametrize(("delta", "count"), [(0, 3), (15, 3), (-3, 3), (5, 6), (1, 2), (-1, 0)])
@CODECS
def test_counts_that_disagree_with_each_other_or_the_records_are_refused(
    delta: int, count: int, codec: CompressionType
) -> None:
    """Kafka: LogValidatorTest.testInconsistentCountAndOffset, testUnmatchedNumberOfRecords."""
    records = batch(START_MS, START_MS, START_MS, compression_type=codec)
    with pytest.raises(errors.InvalidRecordError, match="topic-0: "):
        prepare(patched(records, last_offset_delta=delta, records_count=count))


@CODECS
def test_inner_offsets_that_do_not_count_up_are_refused(codec: CompressionType) -> None:
    """Kafka: LogValidatorTest.testValidationOfBatchesWithNonSequentialInnerOffsets."""
    builder = BatchBuilder(compression_type=codec)
    for offset in range(0, 40, 2):
        builder.append_at(offset, START_MS, None, b"value")
    records = builder.build()
    with pytest.raises(errors.InvalidRecordError):
        prepare(records)
    with pytest.raises(errors.InvalidRecordError):
        prepare(patched(records, last_offset_delta=19))


@CODECS
def test_two_batches_are_refused_where_one_is_expected(codec: CompressionType) -> None:
    """Kafka: LogValidatorTest.checkOnlyOneBatch."""
    records = batch(compression_type=codec) + batch(compression_type=codec)
    with pytest.raises(errors.InvalidRecordError, match="2 record batches, expected exactly one"):
        prepare(records, one_batch=True)
    assert prepare(records).records_count == 2


def test_a_coordinators_marker_is_stored_uncompressed_whatever_the_topic_says() -> None:
    """Kafka: LogValidatorTest.testControlRecordsNotCompressed."""
    config = LogConfig(compression_type=CompressionType.SNAPPY)
    ((header, data),) = prepare(MARKER, config, origin=AppendOrigin.COORDINATOR).batches
    assert bytes(data) == MARKER
    assert header.compression_type is CompressionType.NONE


@pytest.mark.parametrize("position", [21, 30, 61, -1])
def test_a_flipped_bit_is_a_corrupt_record(position: int) -> None:
    records = bytearray(batch())
    records[position] ^= 0x40
    with pytest.raises(errors.CorruptRecordError, match="topic-0: batch at offset 0 carries CRC"):
        prepare(records)


def test_max_message_bytes_counts_the_whole_batch_and_again_what_it_is_rebuilt_as() -> None:
    records = batch()
    assert prepare(records, LogConfig(max_message_bytes=len(records))).size == len(records)
    with pytest.raises(errors.RecordTooLargeError, match=f"above max.message.bytes={len(records) - 1}"):
        prepare(records, LogConfig(max_message_bytes=len(records) - 1))
    sent = batch(value=bytes(5000), compression_type=CompressionType.GZIP)
    config = LogConfig(compression_type=CompressionType.NONE, max_message_bytes=1000)
    with pytest.raises(errors.RecordTooLargeError, match=r"after conversion to compression.type"):
        prepare(sent, config)


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        (b"", errors.InvalidRecordError, "no record batch"),
        (batch(base_offset=7), errors.InvalidRecordError, "base offset 7\\. Producers send 0"),
        (batch() + batch()[:70], errors.CorruptRecordError, "the last batch is incomplete: 70 bytes are left after"),
        (patched(batch(), attributes=5), errors.UnsupportedCompressionTypeError, "codec 5"),
        (patched(batch(), attributes=0x10), errors.InvalidRecordError, "transactional but names no producer"),
        (MARKER, errors.InvalidRecordError, "control batch"),
        *(
            (
                patched(batch(compression_type=codec, producer_id=1234, producer_epoch=0, base_sequence=0), base_sequence=-2),
                errors.InvalidRecordError,
                "producer 1234 sent base sequence -2",
            )
            for codec in CompressionType
        ),
    ],
)
def test_what_no_producer_sends_is_refused(records: bytes, error: type[errors.RequestError], message: str) -> None:
    """Kafka: LogValidatorTest.testControlRecordsNotAllowedFromClients, LogValidatorTest.checkInvalidSequence."""
    with pytest.raises(error, match=f"topic-0: .*{message}"):
        prepare(records)


def test_an_append_above_segment_bytes_is_answered_alone(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testMessageSetSizeCheck."""
    large, small = batch(value=bytes(100)), batch()
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=len(large) - 1))
    answers = driven.append_group([driven.prepare(small), driven.prepare(large), driven.prepare(small)])
    assert isinstance(answers[1], errors.RecordBatchTooLargeError)
    assert f"above segment.bytes={len(large) - 1}" in answers[1].message
    assert [answer.base_offset for answer in answers if isinstance(answer, AppendResult)] == [0, 1]
    assert driven.offsets() == [0, 1]


@CODECS
def test_a_compacted_topic_refuses_records_without_a_key(codec: CompressionType) -> None:
    """Kafka: UnifiedLogTest.testCompactedTopicConstraints."""
    config = LogConfig(cleanup_policy=("compact",))
    keyed, unkeyed = (START_MS, b"key", b"value", ()), (START_MS, None, b"value", ())
    for records in ([unkeyed, keyed], [keyed, unkeyed], [unkeyed]):
        with pytest.raises(errors.InvalidRecordError, match="a record has no key") as raised:
            prepare(build_batch(records, compression_type=codec), config)
        assert [index for index, _ in raised.value.record_errors] == [records.index(unkeyed)]
    assert prepare(build_batch([keyed, keyed], compression_type=codec), config).records_count == 2


@pytest.mark.parametrize(("bound", "distance_ms"), [("before", -DAY_MS - 1), ("after", DAY_MS + 1)])
@CODECS
def test_a_timestamp_too_far_in_the_past_or_the_future_is_refused(codec: CompressionType, bound: str, distance_ms: int) -> None:
    """Kafka: LogValidatorTest.testRecordWithPastTimestampIsRejected, testRecordWithFutureTimestampIsRejected,
    testInvalidTimestampExceptionHasBatchIndex."""
    config = LogConfig().overlay({f"message.timestamp.{bound}.max.ms": str(DAY_MS)})
    message = rf"more than message\.timestamp\.{bound}\.max\.ms=86400000"
    with pytest.raises(errors.InvalidTimestampError, match=message) as raised:
        prepare(batch(START_MS, START_MS + distance_ms, START_MS, compression_type=codec), config)
    assert [index for index, _ in raised.value.record_errors] == [1]


def test_timestamps_on_the_bounds_are_accepted_and_any_under_log_append_time() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    assert prepare(batch(START_MS - 1000, NO_TIMESTAMP, START_MS + 1000), config).max_timestamp == START_MS + 1000
    config = attrs.evolve(config, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert prepare(batch(1, START_MS * 2), config).records_count == 2


def test_log_append_time_declared_by_a_batch_is_refused_where_the_log_sets_it() -> None:
    """Elsewhere it becomes CreateTime."""
    declared = batch(START_MS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=START_MS)
    with pytest.raises(errors.InvalidTimestampError, match="declares LogAppendTime"):
        prepare(declared, APPEND_TIME)
    nothing = batch(START_MS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(errors.InvalidTimestampError, match="declares LogAppendTime"):
        prepare(nothing)
    declared = batch(START_MS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=START_MS + 5)
    ((header, data),) = prepare(declared).batches
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp for record in iter_records(data, header)] == [START_MS]
    assert header.max_timestamp == START_MS
    check_batch(memoryview(data), header)


@CODECS
def test_a_wrong_max_timestamp_is_corrected_together_with_the_crc(codec: CompressionType) -> None:
    true = batch(START_MS, START_MS + 7, START_MS + 3, compression_type=codec)
    ((header, data),) = prepare(patched(true, max_timestamp=START_MS + 1000)).batches
    assert bytes(data) == true
    check_batch(memoryview(data), header)


@CODECS
def test_a_batch_is_stored_bit_for_bit_behind_its_stamp(driven: DrivenLog, codec: CompressionType) -> None:
    """Kafka: LogValidatorTest.checkNonCompressed, testRelativeOffsetAssignmentCompressedV2,
    UnifiedLogTest.testAppendMessageWithNullPayload."""
    driven.append(batch(START_MS, value=None))
    (record,) = driven.records()
    assert (record.offset, record.key, record.value) == (0, None, None)
    sent = batch(
        START_MS - 1, START_MS + 1, START_MS, compression_type=codec, producer_id=1324, producer_epoch=10, base_sequence=984
    )
    result = driven.append(sent)
    assert result == AppendResult(1, 3, NO_TIMESTAMP, 0)
    header, data = stored(driven)[1]
    assert data[16:] == sent[16:]
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (1, 3, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1324, 10, 984)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.CREATE_TIME, START_MS + 1)
    assert (driven.log.active.max_timestamp, driven.log.active.offset_of_max_timestamp) == (START_MS + 1, 3)
    assert driven.log.log_end_offset == 4


@CODECS
def test_log_append_time_changes_type_and_max_timestamp_only(tmp_path: Path, codec: CompressionType) -> None:
    """Kafka: LogValidatorTest.checkLogAppendTimeNonCompressed."""
    driven = open_driven(tmp_path, config=APPEND_TIME)
    sent = batch(1234, 1234, 1234, compression_type=codec)
    result = driven.append(sent)
    assert result == AppendResult(0, 2, START_MS, 0)
    ((header, data),) = stored(driven)
    assert len(data) == len(sent)
    assert data[61:] == sent[61:]
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, START_MS)
    assert header.base_timestamp == 1234
    assert [record.timestamp for record in driven.records()] == [START_MS] * 3
    assert driven.log.active.offset_of_max_timestamp == 2


@pytest.mark.parametrize("source", list(CompressionType), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("target", list(CompressionType), ids=lambda codec: codec.name.lower())
def test_another_codec_than_the_topics_rebuilds_the_batch(source: CompressionType, target: CompressionType) -> None:
    """Kafka: LogValidatorTest.checkRecompression, testDifferentCodecCausesRecompression."""
    options = {"producer_id": 1324, "producer_epoch": 10, "base_sequence": 984, "is_transactional": True}
    records = [
        (START_MS - 1, b"a", b"x" * 50, (("header", b"value"), ("none", None))),
        (START_MS + 1, None, b"y" * 50, ()),
        (START_MS, b"c", None, ()),
    ]
    config = LogConfig(compression_type=target)
    sent = build_batch(records, compression_type=source, **options)
    ((header, data),) = prepare(sent, config).batches
    expected = (
        sent
        if source == target
        else build_batch(records, compression_type=target, compression_level=config.compression_level(target), **options)
    )
    assert bytes(data) == expected
    assert header.max_timestamp == START_MS + 1
    check_batch(memoryview(data), header)


def test_a_group_is_one_write_per_file(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(index_interval_bytes=1))
    plan = plan_append(driven.log, [driven.prepare(batch(START_MS + step)) for step in range(5)], sync=False)
    segment = driven.log.active
    assert [operation.file for operation in plan.operations if isinstance(operation, Write)] == [
        segment.log,
        segment.offset_index.file,
        segment.time_index.file,
    ]
    assert len(plan.operations) == 3
    assert plan.files == [segment.log, segment.offset_index.file, segment.time_index.file]
    assert [answer.base_offset for answer in plan.answers if isinstance(answer, AppendResult)] == [0, 1, 2, 3, 4]


def test_an_append_that_does_not_fit_asks_for_a_roll_and_is_not_taken(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testAppendInfoFirstOffset: offsets go on across the roll."""
    three = batch(START_MS, START_MS, START_MS)
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=2 * len(three)))
    plan = plan_append(driven.log, [driven.prepare(three) for _ in range(3)], sync=False)
    assert plan.taken == len(plan.answers) == 2
    assert str(plan.roll).startswith("size:")
    empty = plan_append(driven.log, [], sync=True)
    assert (empty.taken, empty.roll, empty.operations, empty.writes) == (0, None, [], False)
    assert [driven.append(three).base_offset for _ in range(3)] == [0, 3, 6]
    assert [segment.base_offset for segment in driven.log.segments] == [0, 6]


@pytest.mark.parametrize("sync_metadata", [True, False])
def test_the_first_synced_append_also_syncs_the_name_of_its_file(tmp_path: Path, sync_metadata: bool) -> None:
    """But where nothing outlives the process."""
    driven = open_driven(tmp_path, sync_metadata=sync_metadata)
    first = plan_append(driven.log, [driven.prepare(batch())], sync=True)
    file, name = Sync(driven.log.active.log), SyncDirectory(driven.log.directory)
    assert [each for each in first.operations if not isinstance(each, Write)] == ([file, name] if sync_metadata else [file])
    driven.write(first)
    second = plan_append(driven.log, [driven.prepare(batch())], sync=True)
    assert [each for each in second.operations if not isinstance(each, Write)] == [file]


def test_a_synced_append_takes_earlier_segments_and_their_indexes_with_it(driven: DrivenLog) -> None:
    """Recovery trusts indexes below the recovery point, so they are on the device before it moves past them."""
    driven.append(batch())
    earlier = driven.log.active
    driven.roll()
    plan = plan_append(driven.log, [driven.prepare(batch())], sync=True)
    synced = [operation.file for operation in plan.operations if isinstance(operation, Sync)]
    assert synced == [earlier.log, earlier.offset_index.file, earlier.time_index.file, driven.log.active.log]
    assert all(file in plan.files for file in synced)


def test_rolling_by_time_during_appends(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testTimeBasedLogRollDuringAppend."""
    clock = Clock()
    driven = open_driven(tmp_path, clock=clock, config=LogConfig(segment_ms=3600, message_timestamp_after_max_ms=10**9))

    def segments_after(timestamp: int) -> int:
        driven.append(batch(timestamp))
        return len(driven.log.segments)

    clock.advance(3601)
    assert segments_after(NO_TIMESTAMP) == 1  # the segment was empty
    for expected in (2, 3, 4):
        clock.advance(3601)
        assert segments_after(NO_TIMESTAMP) == expected
    # The segment's first batch has no timestamp: the clock counts, however far ahead a record is.
    assert segments_after(clock() + 3601) == 4
    clock.advance(3601)
    with pytest.raises(errors.InvalidRecordError):
        driven.append(b"")
    assert driven.append_group([]) == []
    assert len(driven.log.segments) == 4, "an empty append never rolls"
    assert segments_after(clock()) == 5
    # It has one now: only the time of records counts.
    clock.advance(3601)
    assert segments_after(clock() - 3601) == 5
    assert segments_after(clock()) == 6
    assert segments_after(clock()) == 6


def test_jitter_is_taken_off_segment_ms(tmp_path: Path) -> None:
    """Kafka: UnifiedLogTest.testTimeBasedLogRollJitter."""
    clock = Clock()
    driven = open_driven(tmp_path, clock=clock, config=LogConfig(segment_ms=3600, segment_jitter_ms=1200))
    jitter_ms = driven.log.active.roll_jitter_ms
    assert 0 <= jitter_ms < 1200
    driven.append(batch(NO_TIMESTAMP))
    clock.advance(2400)
    driven.append(batch(NO_TIMESTAMP))
    assert len(driven.log.segments) == 1
    clock.now = START_MS + 3600 - jitter_ms
    driven.append(batch(NO_TIMESTAMP))
    assert len(driven.log.segments) == 1
    clock.advance(1)
    driven.append(batch(NO_TIMESTAMP))
    assert len(driven.log.segments) == 2


def test_header_validation_trusts_the_header(tmp_path: Path) -> None:
    config = LogConfig(record_validation=RecordValidation.HEADER)
    wrong = patched(batch(START_MS), max_timestamp=START_MS + 5)
    assert prepare(wrong, config).max_timestamp == START_MS + 5
    with pytest.raises(errors.CorruptRecordError):
        prepare(wrong[:-1] + b"!", config)
    with pytest.raises(errors.InvalidTimestampError):
        prepare(patched(batch(START_MS), max_timestamp=START_MS + INT32_MAX), config)


def test_an_append_of_many_batches_gets_an_index_entry_for_each_interval(tmp_path: Path) -> None:
    """Kafka: LogSegment.append makes one entry at most; recovery makes them per batch, and so do we in both."""
    driven = open_driven(tmp_path / "t-0", config=LogConfig(index_interval_bytes=200))
    many = b"".join(batch(START_MS + number, value=b"x" * 60) for number in range(20))
    driven.append(many)
    size = len(many) // 20
    assert 100 < size < 200
    active = driven.log.active
    assert active.offset_index.entries == 19 // 2
    assert driven.run(active.offset_index.entry(0)) == (2, 2 * size)
    assert driven.run(active.time_index.entry(0)) == (START_MS + 2, 2)


def expecting(driven: DrivenLog, offset: int, records: bytes | None = None) -> PreparedAppend:
    return driven.prepare(batch() if records is None else records)._replace(expected_offset=offset)


def of_producer(sequence: int, *timestamps: int) -> bytes:
    return batch(*timestamps or (START_MS,), producer_id=7, producer_epoch=0, base_sequence=sequence)


def outcome(answer: AppendResult | errors.RequestError) -> int | str:
    if isinstance(answer, AppendResult):
        return answer.base_offset
    assert isinstance(answer, errors.ExpectedOffsetError)
    assert answer.code is errors.ErrorCode.OFFSET_OUT_OF_RANGE
    return f"ends at {answer.log_end_offset}"


def test_an_append_goes_where_the_log_ends_or_nowhere_and_one_that_is_refused_does_not_roll(tmp_path: Path) -> None:
    driven = open_driven(tmp_path, config=LogConfig(segment_bytes=len(batch())))
    driven.append(batch())
    (answer,) = driven.append_group([expecting(driven, 0)])
    assert isinstance(answer, errors.RequestError)
    assert answer.message.startswith("topic-0: the log ends at offset 1, expected_offset is 0. Nothing was appended")
    assert len(driven.log.segments) == 1
    assert [outcome(each) for each in driven.append_group([expecting(driven, 1)])] == [1]
    assert len(driven.log.segments) == 2


def test_what_comes_again_is_answered_as_the_first_time_though_the_log_has_gone_on(driven: DrivenLog) -> None:
    assert outcome(driven.append_group([expecting(driven, 0, of_producer(0))])[0]) == 0
    driven.append(batch())
    again = driven.append_group([expecting(driven, 0, of_producer(0)), expecting(driven, 1, of_producer(1))])
    assert [outcome(answer) for answer in again] == [0, "ends at 2"]
    assert outcome(driven.append_group([expecting(driven, 2, of_producer(1))])[0]) == 2
    assert driven.offsets() == [0, 1, 2]


@pytest.mark.parametrize("comes_between", [False, True])
def test_the_rest_of_an_append_cut_by_a_crash_follows_its_beginning_or_fails(driven: DrivenLog, comes_between: bool) -> None:
    driven.append(of_producer(0))
    if comes_between:
        driven.append(batch())
    whole = of_producer(0) + of_producer(1)
    (answer,) = driven.append_group([expecting(driven, 0, whole)])
    assert outcome(answer) == ("ends at 2" if comes_between else 0)
    assert driven.offsets() == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.booleans()), max_size=12))
def test_any_group_of_appends_is_a_sequence(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, bool]]
) -> None:
    driven = open_driven(tmp_path_factory.mktemp("expected"))
    end, expected = 0, list[Any]()
    appends = []
    for offset, count, is_conditional in drawn:
        records = batch(*[START_MS] * count)
        appends.append(expecting(driven, offset, records) if is_conditional else driven.prepare(records))
        if is_conditional and offset != end:
            expected.append(f"ends at {end}")
            continue
        expected.append(end)
        end += count
    assert [outcome(answer) for answer in driven.append_group(appends)] == expected
    assert driven.log.log_end_offset == end


HOUR_MS: Final = 3_600_000
WITH_PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
TRANSACTIONAL_FLAG: Final = 0x10
LINES_PER_STEP: Final = 40


def odd_sizes(count: int) -> bytes:
    """Of no two neighbours the same."""
    return build_batch([(START_MS, None, bytes(number % 9), ()) for number in range(count)])


def long(records: Bytes, config: LogConfig, limits: BatchLimits = UNLIMITED) -> PreparedAppend | None:
    try:
        return prepare_append(records, TOPIC_PARTITION, config, now_ms=START_MS, limits=limits)
    except RequestError:
        return None


def check(records: Bytes, config: LogConfig, limits: BatchLimits = UNLIMITED) -> bool:
    """Whether the short way accepts; then the long one has to, with the same result."""
    found = prepare_one(records, config, START_MS, limits)
    assert found is None or found == long(records, config, limits)
    return found is not None


def plain_batches() -> st.SearchStrategy[bytes]:
    """What producers send most of the time, in all codecs."""
    timestamp = st.integers(START_MS - 3000, START_MS)
    content = st.none() | st.binary(max_size=100) | st.integers(60, 300).map(bytes)
    records = st.lists(st.tuples(timestamp, content, content, headers()), min_size=1, max_size=15)
    producer = st.sampled_from([{}, WITH_PRODUCER, {**WITH_PRODUCER, "is_transactional": True}])
    codec = st.sampled_from([CompressionType.NONE, *CompressionType])
    return st.builds(lambda rows, how, codec: bytes(build_batch(rows, compression_type=codec, **how)), records, producer, codec)


def batches() -> st.SearchStrategy[bytes]:
    """Odd timestamps and large records too."""
    made = st.builds(
        lambda rows, codec: bytes(build_batch(rows, compression_type=codec)),
        record_lists(min_size=1, max_size=5),
        st.sampled_from(CompressionType),
    )
    return plain_batches() | made


def configs() -> st.SearchStrategy[LogConfig]:
    span = st.sampled_from([0, 1000, HOUR_MS, 2**63 - 1])
    return st.builds(
        LogConfig,
        compression_type=st.none() | st.sampled_from(CompressionType),
        message_timestamp_type=st.sampled_from(TimestampType),
        message_timestamp_before_max_ms=span,
        message_timestamp_after_max_ms=span,
        max_message_bytes=st.sampled_from([70, 200, KIB, 1_048_588]),
        record_validation=st.sampled_from(RecordValidation),
        cleanup_policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
    )


FEW: Final = st.sampled_from([1, 3, 100_000])
LIMITS: Final = st.just(UNLIMITED) | st.builds(BatchLimits, records=FEW, headers_per_record=FEW, batches=FEW)


@given(plain_batches(), st.sampled_from([bytes, bytearray, memoryview]))
def test_a_plain_batch_is_accepted_whatever_holds_it(records: bytes, holder: Any) -> None:
    assert check(holder(records), LogConfig())


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(compression_type=CompressionType.NONE),
        LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME),
        LogConfig(record_validation=RecordValidation.HEADER),
        LogConfig(cleanup_policy=("compact",)),
    ],
    ids=["default", "uncompressed", "append time", "header", "compacted"],
)
@pytest.mark.parametrize("count", [1, 100, MOST_RECORDS, MOST_RECORDS + 1, 1200])
def test_a_plain_batch_is_accepted_under_the_configurations_that_change_nothing_of_it(config: LogConfig, count: int) -> None:
    assert check(batch(*range(START_MS - count, START_MS), key=b"key"), config)


@pytest.mark.parametrize(
    "records",
    [
        batch(value=bytes(120 * KIB)),
        batch(*[START_MS] * 120, value=bytes(KIB)),
        batch(*[START_MS] * 1200, value=bytes(50), compression_type=CompressionType.LZ4),
        odd_sizes(MOST_RECORDS),
    ],
    ids=["a large record", "a full batch", "packed", "of all sizes"],
)
def test_a_batch_as_large_as_producers_make_them_is_accepted(records: bytes) -> None:
    assert check(records, LogConfig())


@pytest.mark.parametrize(
    "records",
    [
        batch(*[START_MS] * 1200, value=bytes(50)),
        odd_sizes(MOST_RECORDS),
        odd_sizes(3000),
        tiny_records(8000),
        tiny_records(1000, headers=15),
        build_batch([(START_MS, None, bytes(5 if number % 80 < 20 else number % 7), ()) for number in range(3000)]),
    ],
    ids=["alike", "few", "of all sizes", "tiny", "with headers", "some alike"],
)
def test_it_takes_no_more_lines_than_it_says_that_it_may(records: bytes) -> None:
    """A step is a record or a header that is read by itself, of less than LINES_PER_STEP lines."""
    lines = 0

    def trace(*_: object) -> Any:
        nonlocal lines
        lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        prepare_one(records, LogConfig(), START_MS, UNLIMITED)
    finally:
        sys.settrace(before)
    assert 0 < lines < LINES_PER_STEP * steps_of(records)


@pytest.mark.parametrize(
    ("records", "config"),
    [
        (b"", {}),
        (batch()[:60], {}),
        (batch()[:-1], {}),
        (batch() + b"\0", {}),
        (batch() + batch(), {}),
        (batch(value=bytes(129 * KIB)), {}),
        (odd_sizes(MOST_RECORDS + 1), {}),
        (batch(*[START_MS] * MOST_RECORDS, key=b"key") + batch()[:61], {}),
        (batch(-1), {}),
        (batch(compression_type=CompressionType.GZIP, value=bytes(200 * KIB)), {}),
        (batch(compression_type=CompressionType.GZIP), {"compression_type": CompressionType.NONE}),
        (batch(compression_type=CompressionType.GZIP), {"compression_type": CompressionType.LZ4}),
        (patched(batch(), attributes=CompressionType.LZ4), {}),
        (patched(batch(), attributes=5), {}),
        (patched(batch(), base_offset=1), {}),
        (patched(batch(), max_timestamp=START_MS + 1), {}),
        (patched(batch(), records_count=2, last_offset_delta=1), {}),
        (patched(batch(), records_count=2), {}),
        (patched(batch(), attributes=LOG_APPEND_TIME_FLAG), {}),
        (patched(batch(), attributes=0x40), {}),
        (patched(batch(), attributes=0x80), {}),
        (patched(batch(), attributes=TRANSACTIONAL_FLAG), {}),
        (with_producer(batch(), 7, 0, -1), {}),
        (batch(), {"max_message_bytes": len(batch()) - 1}),
        (batch(), {"compression_type": CompressionType.ZSTD}),
        (batch(), {"cleanup_policy": ("compact",)}),
        (batch(START_MS - 1001), {"message_timestamp_before_max_ms": 1000}),
        (batch(START_MS + 1001), {"message_timestamp_after_max_ms": 1000}),
    ],
)
def test_what_is_odd_is_left_to_the_long_way(records: Bytes, config: dict[str, Any]) -> None:
    assert not check(records, attrs.evolve(LogConfig(), **config))


def test_limits_hold() -> None:
    records = batch(*[START_MS] * 10)
    assert [check(records, LogConfig(), BatchLimits(records=most)) for most in (10, 9)] == [True, False]


@given(batches(), configs(), LIMITS)
def test_what_is_accepted_is_what_the_long_way_makes_of_it(records: bytes, config: LogConfig, limits: BatchLimits) -> None:
    check(records, config, limits)


@given(st.data(), batches(), configs(), st.booleans())
def test_damage_is_refused_as_on_the_long_way(data: st.DataObject, records: bytes, config: LogConfig, repaired: bool) -> None:
    broken = data.draw(damaged(records))
    check(patched(broken) if repaired and len(broken) > 61 else broken, config)


@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize(
    "records",
    [
        batch(value=b"v" * 70),
        build_batch([(START_MS, b"key", None, (("header", b"h"),)), (START_MS - 1, None, b"", ())], **WITH_PRODUCER),
        *(batch(START_MS, START_MS, value=b"v" * 30, compression_type=codec) for codec in CompressionType if codec),
    ],
    ids=["one record", "two records of a producer", "gzip", "snappy", "lz4", "zstd"],
)
def test_every_bit_counts(records: bytes, repaired: bool) -> None:
    """Behind the stamp no bit changes unseen where the CRC is left as it was."""
    for position, bit in product(range(len(records)), range(8)):
        broken = bytearray(records)
        broken[position] ^= 1 << bit
        accepted = check(patched(bytes(broken)) if repaired else broken, LogConfig())
        assert repaired or accepted is (12 <= position < 16), (position, bit)


def test_every_byte_of_a_header_with_a_true_crc() -> None:
    records = with_producer(batch(START_MS, START_MS), 7, 0, INT32_MAX)
    assert parse_header(records).records_count == 2
    for position in range(61):
        accepted = 0
        for byte in range(256):
            broken = bytearray(records)
            broken[position] = byte
            accepted += check(patched(bytes(broken)), LogConfig())
        assert accepted >= 1, position
