"""The short way of a lookup by time: what it answers is what the long way answers, and what it leaves to that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.limits import INT64_MAX
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, with_timestamp
from triolog.protocol.types import NO_TIMESTAMP, CompressionType, TimestampType
from triolog.server.config import LogConfig, RecordValidation
from triolog.server.storage.disk.diskops import FileHandle
from triolog.server.storage.disk.filesystem import read_at
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES, UNTOLD_HEADERS
from triolog.server.storage.log.log_snapshot import LogSnapshot
from triolog.server.storage.lookups.at_once import first_at_once
from triolog.server.storage.lookups.timestamps import NO_SUCH_RECORD
from triolog.server.storage.segments.segment_view import UNTOLD_RECORDS, TimestampAndOffset

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

TIMES = st.one_of(st.just(NO_TIMESTAMP), st.integers(0, 40))


@attrs.define(eq=False)
class Shown:
    """A log whose indexes are mapped, and the reads that lookups in it make."""

    driven: DrivenLog
    is_cached: bool = True
    reads: list[tuple[int, int]] = attrs.field(factory=list)

    def look_up(self, timestamp: int, snapshot: LogSnapshot | None = None) -> TimestampAndOffset | None:
        snapshot = self.driven.log.snapshot() if snapshot is None else snapshot
        for slot in range(len(snapshot)):
            view = snapshot.segment(slot)
            for index, entries in ((view.time_index, view.time_entries), (view.offset_index, view.offset_entries)):
                if entries:
                    self.driven.run(index.mapped(entries))
        return first_at_once(snapshot, timestamp, self.cached_bytes)

    def cached_bytes(self, file: FileHandle, position: int, size: int) -> bytes | None:
        self.reads.append((position, size))
        return read_at(self.driven.fs, file.path, position, size) if self.is_cached else None


def shown(directory: Path, *batches: bytes, **config: Any) -> Shown:
    driven = open_driven(directory, config=LogConfig(**config))
    for each in batches:
        driven.append(each)
    return Shown(driven)


def test_a_small_batch_is_found_in_one_read(tmp_path: Path) -> None:
    log = shown(tmp_path, *(batch(START_MS + number, START_MS + number) for number in range(300)), index_interval_bytes=1000)
    assert log.look_up(START_MS + 250) == (START_MS + 250, 500, 0)
    [(position, size)] = log.reads
    assert position > 0
    assert size <= FIRST_READ_BYTES


def test_what_lies_behind_all_records_is_answered_without_a_read(tmp_path: Path) -> None:
    log = shown(tmp_path, batch(START_MS))
    assert log.look_up(START_MS + 1) is log.look_up(INT64_MAX) is NO_SUCH_RECORD
    assert log.reads == []


def test_a_record_above_the_high_watermark_is_none(tmp_path: Path) -> None:
    """Also where the high watermark lies within a batch."""
    log = shown(tmp_path, batch(START_MS, START_MS + 1))
    snapshot = attrs.evolve(log.driven.log.snapshot(), high_watermark=1)
    assert log.look_up(START_MS, snapshot) == (START_MS, 0, 0)
    assert log.look_up(START_MS + 1, snapshot) is NO_SUCH_RECORD


def test_what_is_not_cached_or_not_mapped_is_left_to_the_long_way(tmp_path: Path) -> None:
    log = shown(tmp_path, *(batch(START_MS + number) for number in range(50)), index_interval_bytes=100)
    assert first_at_once(log.driven.log.snapshot(), START_MS + 40, log.cached_bytes) is None
    assert log.reads == []
    log.is_cached = False
    assert log.look_up(START_MS + 40) is None
    assert len(log.reads) == 1


@pytest.mark.parametrize(
    "late",
    [
        batch(START_MS + 1, compression_type=CompressionType.GZIP),
        batch(START_MS + 1, value=bytes(FIRST_READ_BYTES)),
        batch(*[START_MS] * UNTOLD_RECORDS, START_MS + 1, value=b""),
        batch(START_MS) * UNTOLD_HEADERS + batch(START_MS + 1),
        bytes(with_timestamp(batch(START_MS), TimestampType.CREATE_TIME, START_MS + 1)),
        bytes(with_timestamp(batch(START_MS), TimestampType.LOG_APPEND_TIME, START_MS + 1)),
    ],
    ids=["compressed", "large", "many records", "many batches", "a header that promises more", "append time"],
)
def test_a_batch_that_takes_longer_is_left_to_the_long_way(tmp_path: Path, late: bytes) -> None:
    log = shown(tmp_path, batch(START_MS), late, record_validation=RecordValidation.HEADER)
    assert log.look_up(START_MS) == (START_MS, 0, 0)
    assert log.look_up(START_MS + 1) is None


def test_what_readers_have_to_check_is_left_to_the_long_way(tmp_path: Path) -> None:
    assert shown(tmp_path, batch(START_MS), fetch_check_crcs=True).look_up(START_MS) is None


def test_the_next_segment_is_left_to_the_long_way(tmp_path: Path) -> None:
    """All matches of the first segment lie below the log start offset."""
    log = shown(tmp_path, batch(START_MS + 9))
    log.driven.roll()
    log.driven.append(batch(START_MS + 9))
    snapshot = attrs.evolve(log.driven.log.snapshot(), log_start_offset=1)
    assert log.look_up(START_MS + 9, snapshot) is None


@pytest.mark.parametrize("length", [0x17, 0x04, 0x02, 0xFF], ids=["negative", "too short", "without a time", "long"])
def test_a_record_that_contradicts_its_length_is_left_to_the_long_way(tmp_path: Path, length: int) -> None:
    log = shown(tmp_path, batch(START_MS, START_MS + 1))
    path = Path(log.driven.log.active.log.path)
    stored = bytearray(path.read_bytes())
    assert log.look_up(START_MS + 1) == (START_MS + 1, 1, 0)
    stored[RECORD_BATCH_OVERHEAD] = length
    path.write_bytes(stored)
    assert log.look_up(START_MS + 1) is None


@pytest.mark.parametrize("value", [b"", bytes(100), bytes(FIRST_READ_BYTES // 4)])
@pytest.mark.parametrize("step", [1, 63, 64, 8191])
def test_records_with_lengths_and_times_of_one_and_two_bytes_are_read(tmp_path: Path, value: bytes, step: int) -> None:
    times = (START_MS, START_MS - step, START_MS + step)
    log = shown(tmp_path, *(batch(time, value=value) for time in times), batch(*times, value=value[:100]))
    for offset, timestamp in ((0, START_MS), (2, START_MS + 1), (2, START_MS + step)):
        assert log.look_up(timestamp) == (times[offset], offset, 0)
    behind = attrs.evolve(log.driven.log.snapshot(), log_start_offset=3)
    assert log.look_up(START_MS, behind) == (START_MS, 3, 0)
    assert log.look_up(START_MS + 1, behind) == (START_MS + step, 5, 0)


@given(
    appends=st.lists(st.tuples(st.lists(TIMES, min_size=1, max_size=4), st.booleans()), max_size=25),
    interval=st.integers(0, 300),
    log_start=st.floats(0, 1),
    readable=st.floats(0, 1),
)
def test_every_answer_is_that_of_the_long_way(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[list[int], bool]],
    interval: int,
    log_start: float,
    readable: float,
) -> None:
    """At any log start offset and any high watermark between two appends. It leaves no question open whose answer lies in the
    first segment that reaches the time, unless a batch there may have lost its match to the log start offset."""
    config = LogConfig(index_interval_bytes=interval, segment_index_bytes=60)
    driven = open_driven(tmp_path_factory.mktemp("at_once"), config=config)
    ends = [(0, 0, 0)]
    for times, rolls in appends:
        driven.append(batch(*times))
        if rolls:
            driven.roll()
        ends.append((driven.log.log_end_offset, driven.log.active.base_offset, driven.log.active.size))
    start = int(log_start * driven.log.log_end_offset)
    log = Shown(driven.reopen(was_clean=False, log_start_offset=start))
    high_watermark = ends[int(readable * (len(ends) - 1))]
    if high_watermark[0] >= start:
        log.driven.log.set_high_watermark(*high_watermark)
    snapshot = log.driven.log.snapshot()
    for timestamp in range(43):
        found, expected = log.look_up(timestamp), log.driven.offset_for(timestamp)
        assert found is None or found == expected, f"asked for {timestamp}"
        slot = snapshot.slot_reaching(timestamp)
        lies_in_first = slot < len(snapshot) and expected.offset >= 0 and snapshot.slot_of(expected.offset) == slot
        assert found is not None or start or not lies_in_first, f"asked for {timestamp}"
