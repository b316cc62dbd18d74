"""Messages of magic 0 and 1 are those that kafka-python writes; fetched bytes that a test has not chosen stay as they are."""

from __future__ import annotations

import warnings
from typing import Final

import pytest
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Record
from triolog.server.fake.kafka.old_formats import in_old_formats, old_message

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

TIME_MS: Final = 1_700_000_000_000
BATCH: Final = build_batch([(TIME_MS, b"k", b"v", ()), (TIME_MS + 1, None, b"w", ())], base_offset=7)
RECORDS: Final = [Record(7, TIME_MS, b"k", b"v", ()), Record(8, TIME_MS + 1, None, b"w", ())]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value" * 1000])
def test_a_message_has_the_bytes_of_kafka_python(magic: int, key: bytes | None, value: bytes | None) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 2**20)
    builder.append(2**40, TIME_MS, key, value)
    assert old_message(Record(2**40, TIME_MS, key, value, ()), magic) == bytes(builder.build())


def test_a_chosen_batch_is_replaced_and_others_stay() -> None:
    other = build_batch([(TIME_MS, None, b"x", ())], base_offset=9)
    assert in_old_formats(BATCH + other, {7: 1}) == b"".join(old_message(each, 1) for each in RECORDS) + other


def test_bytes_without_a_chosen_batch_are_the_same_object() -> None:
    cut = BATCH + BATCH[:30]
    assert in_old_formats(cut, {8: 1}) is cut


def test_a_batch_that_was_cut_off_is_left_out_behind_a_replaced_one() -> None:
    whole = b"".join(old_message(each, 0) for each in RECORDS)
    for size in range(len(BATCH)):
        assert in_old_formats(BATCH + BATCH[:size], {7: 0}) == whole
    assert [header.base_offset for header, _ in iter_batches(BATCH)] == [7]
