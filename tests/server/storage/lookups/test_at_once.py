"""The short ways of a lookup by time and of a fetch: they answer what the long ways answer, and leave the rest to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.limits import INT64_MAX, KIB
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, with_timestamp
from triolog.protocol.types import CompressionType, Isolation, TimestampType
from triolog.server.config import LogConfig, RecordValidation
from triolog.server.storage.disk.diskops import FileHandle
from triolog.server.storage.disk.filesystem import read_at
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES, UNTOLD_HEADERS
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.log.log import LogSnapshot
from triolog.server.storage.lookups.explain import explain_offset
from triolog.server.storage.lookups.fetch import READ_WITH_ANSWER_BYTES, FetchedRecords, fetch_cached
from triolog.server.storage.lookups.timestamps import NO_SUCH_RECORD, first_cached
from triolog.server.storage.segments.segment_view import UNTOLD_RECORDS, TimestampAndOffset

from tests.server.storage.lookups.drawn_logs import DrawnLog, drawn_logs
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

COMMITTED = Isolation.READ_COMMITTED
SIZE = len(batch())


@attrs.define(eq=False)
class Shown:
    """A log whose indexes are mapped, and the reads that lookups in it and fetches from it make."""

    driven: DrivenLog
    is_cached: bool = True
    reads: list[tuple[int, int]] = attrs.field(factory=list)

    def mapped(self, snapshot: LogSnapshot | None = None) -> LogSnapshot:
        snapshot = self.driven.log.snapshot() if snapshot is None else snapshot
        for slot in range(len(snapshot)):
            view = snapshot.segment(slot)
            for index, entries in ((view.time_index, view.time_entries), (view.offset_index, view.offset_entries)):
                if entries:
                    self.driven.run(index.mapped(entries))
        return snapshot

    def look_up(self, timestamp: int, snapshot: LogSnapshot | None = None) -> TimestampAndOffset | None:
        return first_cached(self.mapped(snapshot), timestamp, self.cached_bytes)

    def fetch(
        self, offset: int, max_bytes: int, snapshot: LogSnapshot | None = None, *, min_one_batch: bool = True, **options: Any
    ) -> FetchedRecords | None:
        return fetch_cached(self.mapped(snapshot), offset, max_bytes, self.cached_bytes, min_one_batch=min_one_batch, **options)

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
    snapshot = log.driven.log.snapshot()
    assert first_cached(snapshot, START_MS + 40, log.cached_bytes) is None
    assert fetch_cached(snapshot, 40, KIB, log.cached_bytes, min_one_batch=True) is None
    assert log.reads == []
    log.is_cached = False
    assert log.look_up(START_MS + 40) is log.fetch(40, KIB) is None
    assert len(log.reads) == 2


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


def test_the_next_segment_and_what_readers_have_to_check_are_left_to_the_long_way(tmp_path: Path) -> None:
    """All matches of the first segment lie below the log start offset."""
    log = shown(tmp_path / "log", batch(START_MS + 9))
    log.driven.roll()
    log.driven.append(batch(START_MS + 9))
    snapshot = attrs.evolve(log.driven.log.snapshot(), log_start_offset=1)
    assert log.look_up(START_MS + 9, snapshot) is None
    assert shown(tmp_path / "checked", batch(START_MS), fetch_check_crcs=True).look_up(START_MS) is None


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


def test_what_is_small_comes_in_one_read_with_the_way_to_it(tmp_path: Path) -> None:
    log = shown(tmp_path, *[batch()] * 100, index_interval_bytes=10 * SIZE)
    assert log.fetch(55, SIZE) == log.driven.read(55, SIZE)
    [(position, _)] = log.reads
    assert 0 < position <= 55 * SIZE


def test_what_is_large_is_read_by_itself(tmp_path: Path) -> None:
    """The index leads to the batch before the one that begins with the offset."""
    driven = open_driven(tmp_path)
    for _ in range(30):
        driven.append(batch(START_MS, START_MS, value=bytes(FIRST_READ_BYTES)))
    log = Shown(driven)
    assert log.fetch(14, READ_WITH_ANSWER_BYTES) == driven.read(14, READ_WITH_ANSWER_BYTES)
    assert [size for _, size in log.reads] == [FIRST_READ_BYTES, FIRST_READ_BYTES, READ_WITH_ANSWER_BYTES]


def test_at_the_end_nothing_is_read(tmp_path: Path) -> None:
    log = shown(tmp_path, *[batch()] * 3)
    for isolation, aborted in ((Isolation.READ_UNCOMMITTED, None), (COMMITTED, ())):
        assert log.fetch(3, KIB, isolation=isolation) == FetchedRecords(b"", 3, 0, 3, aborted=aborted)
    assert log.reads == []


@pytest.mark.parametrize(
    "changes",
    [
        {"check_crcs": True},
        {"gaps": (OffsetGap(4, 5, "file"),)},
        {"log_start_offset": 3},
        {"last_stable_offset": 4},
    ],
    ids=["checked", "with gaps", "below the start", "undecided"],
)
def test_what_needs_another_look_is_left_to_the_long_way(tmp_path: Path, changes: dict[str, Any]) -> None:
    log = shown(tmp_path, *[batch()] * 9)
    snapshot = log.driven.log.snapshot()
    assert log.fetch(2, KIB, snapshot, isolation=COMMITTED) is not None
    assert log.fetch(2, KIB, attrs.evolve(snapshot, **changes), isolation=COMMITTED) is None
    aborted = attrs.evolve(snapshot, active=snapshot.active._replace(transaction_entries=1))
    assert log.fetch(0, KIB, aborted) is not None
    assert log.fetch(0, KIB, aborted, isolation=COMMITTED) is None


def test_an_index_that_leads_too_far_is_left_to_the_long_way(tmp_path: Path) -> None:
    """Which looks the segment through from its start then."""
    log = shown(tmp_path, *[batch()] * 20, index_interval_bytes=SIZE)
    index = Path(log.driven.log.active.offset_index.path)
    entry = index.read_bytes()[:8]
    log.driven.close()
    (index.parent / DERIVED_FILE).unlink()  # as where Kafka wrote the index
    index.write_bytes(entry[:4] + (9 * SIZE).to_bytes(4, "big") + index.read_bytes()[8:])
    again = Shown(log.driven.reopen(was_clean=True))
    (offset, _) = again.driven.run(again.driven.log.active.offset_index.entry(0))
    assert again.fetch(offset, KIB) is None
    assert again.driven.read(offset, KIB) == log.driven.read(offset, KIB)


def test_a_batch_that_reaches_over_the_end_or_is_none_is_left_to_the_long_way(tmp_path: Path) -> None:
    """Which refuses it: half a batch would be asked for again and again."""
    log = shown(tmp_path, *[batch()] * 3)
    path = Path(log.driven.log.active.log.path)
    stored = bytearray(path.read_bytes())
    stored[SIZE + 9] ^= 1  # the length of the second batch
    path.write_bytes(stored)
    assert log.fetch(0, KIB) is not None
    assert log.fetch(1, KIB) is None
    with pytest.raises(CorruptRecordError, match="all there are"):
        log.driven.read(1, KIB)
    path.write_bytes(bytes(path.stat().st_size))
    assert log.fetch(1, KIB) is None
    log.driven.log.drop_maps()


@given(
    drawn=drawn_logs(sizes=st.integers(0, 3000), intervals=st.integers(0, 5000)),
    max_bytes=st.one_of(st.integers(0, 300), st.integers(300, 2 * READ_WITH_ANSWER_BYTES)),
    min_one_batch=st.booleans(),
    isolation=st.sampled_from(Isolation),
)
def test_every_fetch_is_that_of_the_long_way(
    tmp_path_factory: pytest.TempPathFactory, drawn: DrawnLog, max_bytes: int, min_one_batch: bool, isolation: Isolation
) -> None:
    """Which leaves no fetch of a byte or more open; and the walk that explains it ends at the same batch."""
    log = Shown(drawn.opened(tmp_path_factory.mktemp("at_once")))
    for offset in range(log.driven.log.log_start_offset, log.driven.log.high_watermark + 1):
        found = log.fetch(offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        expected = log.driven.read(offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        assert found == expected or (found is None and not max_bytes), f"from {offset}"
        walk = log.driven.run(explain_offset(log.driven.log.snapshot(), offset, lambda read: True))
        assert (walk["answer"]["offset"] == -1) is (len(log.driven.read(offset).records) == 0)
