"""The short way of a fetch: what it answers is what the long way answers, and what it leaves to that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.limits import KIB
from triolog.protocol.types import Isolation
from triolog.server.config import LogConfig
from triolog.server.storage.disk.diskops import FileHandle
from triolog.server.storage.disk.filesystem import read_at
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.log.log_snapshot import LogSnapshot
from triolog.server.storage.lookups.fetch import FetchedRecords
from triolog.server.storage.lookups.fetch_at_once import READ_WITH_ANSWER_BYTES, fetch_at_once

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

COMMITTED = Isolation.READ_COMMITTED
SIZE = len(batch())


@attrs.define(eq=False)
class Shown:
    """A log whose offset indexes are mapped, and the reads that fetches from it make."""

    driven: DrivenLog
    is_cached: bool = True
    reads: list[tuple[int, int]] = attrs.field(factory=list)

    def fetch(
        self, offset: int, max_bytes: int, snapshot: LogSnapshot | None = None, *, min_one_batch: bool = True, **options: Any
    ) -> FetchedRecords | None:
        snapshot = self.driven.log.snapshot() if snapshot is None else snapshot
        for slot in range(len(snapshot)):
            view = snapshot.segment(slot)
            if view.offset_entries:
                self.driven.run(view.offset_index.mapped(view.offset_entries))
        return fetch_at_once(snapshot, offset, max_bytes, self.cached_bytes, min_one_batch=min_one_batch, **options)

    def cached_bytes(self, file: FileHandle, position: int, size: int) -> bytes | None:
        self.reads.append((position, size))
        data = read_at(self.driven.fs, file.path, position, size)
        return data if self.is_cached and len(data) == size else None


def shown(directory: Path, count: int, **config: Any) -> Shown:
    """A log of equal batches of one record."""
    driven = open_driven(directory, config=LogConfig(**config))
    for _ in range(count):
        driven.append(batch())
    return Shown(driven)


def test_what_is_small_comes_in_one_read_with_the_way_to_it(tmp_path: Path) -> None:
    log = shown(tmp_path, 100, index_interval_bytes=10 * SIZE)
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
    log = shown(tmp_path, 3)
    for isolation, aborted in ((Isolation.READ_UNCOMMITTED, None), (COMMITTED, ())):
        assert log.fetch(3, KIB, isolation=isolation) == FetchedRecords(b"", 3, 0, 3, aborted=aborted)
    assert log.reads == []


def test_what_is_not_cached_or_not_mapped_is_left_to_the_long_way(tmp_path: Path) -> None:
    log = shown(tmp_path, 50, index_interval_bytes=100)
    assert fetch_at_once(log.driven.log.snapshot(), 40, KIB, log.cached_bytes, min_one_batch=True) is None
    assert log.reads == []
    log.is_cached = False
    assert log.fetch(40, KIB) is None
    assert len(log.reads) == 1


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
    log = shown(tmp_path, 9)
    snapshot = log.driven.log.snapshot()
    assert log.fetch(2, KIB, snapshot, isolation=COMMITTED) is not None
    assert log.fetch(2, KIB, attrs.evolve(snapshot, **changes), isolation=COMMITTED) is None


def test_aborted_transactions_are_left_to_the_long_way(tmp_path: Path) -> None:
    log = shown(tmp_path, 3)
    snapshot = log.driven.log.snapshot()
    with_entries = attrs.evolve(snapshot, active=snapshot.active._replace(transaction_entries=1))
    assert log.fetch(0, KIB, with_entries) is not None
    assert log.fetch(0, KIB, with_entries, isolation=COMMITTED) is None


def test_an_index_that_leads_too_far_is_left_to_the_long_way(tmp_path: Path) -> None:
    """Which looks the segment through from its start then."""
    log = shown(tmp_path, 20, index_interval_bytes=SIZE)
    index = Path(log.driven.log.active.offset_index.path)
    entry = index.read_bytes()[:8]
    log.driven.close()
    index.write_bytes(entry[:4] + (9 * SIZE).to_bytes(4, "big") + index.read_bytes()[8:])
    again = Shown(log.driven.reopen(was_clean=True))
    (offset, _) = again.driven.run(again.driven.log.active.offset_index.entry(0))
    assert again.fetch(offset, KIB) is None
    assert again.driven.read(offset, KIB) == log.driven.read(offset, KIB)


def test_what_is_no_batch_is_left_to_the_long_way(tmp_path: Path) -> None:
    log = shown(tmp_path, 3)
    path = Path(log.driven.log.active.log.path)
    path.write_bytes(bytes(path.stat().st_size))
    assert log.fetch(1, KIB) is None


def test_a_batch_that_is_said_to_reach_over_the_end_is_left_to_the_long_way(tmp_path: Path) -> None:
    """Which refuses it: half a batch would be asked for again and again."""
    log = shown(tmp_path, 3)
    path = Path(log.driven.log.active.log.path)
    stored = bytearray(path.read_bytes())
    stored[SIZE + 9] ^= 1  # the length of the second batch
    path.write_bytes(stored)
    assert log.fetch(0, KIB) is not None
    assert log.fetch(1, KIB) is None
    with pytest.raises(CorruptRecordError, match="all there are"):
        log.driven.read(1, KIB)
    log.driven.log.drop_maps()


@given(
    appends=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3000), st.booleans()), max_size=20),
    interval=st.integers(0, 5000),
    log_start=st.floats(0, 1),
    readable=st.floats(0, 1),
    max_bytes=st.one_of(st.integers(0, 300), st.integers(300, 2 * READ_WITH_ANSWER_BYTES)),
    min_one_batch=st.booleans(),
    isolation=st.sampled_from(Isolation),
)
def test_every_answer_is_that_of_the_long_way(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[int, int, bool]],
    interval: int,
    log_start: float,
    readable: float,
    max_bytes: int,
    min_one_batch: bool,
    isolation: Isolation,
) -> None:
    """At any log start offset and any high watermark between two appends. It leaves no fetch of a byte or more open."""
    config = LogConfig(index_interval_bytes=interval, segment_index_bytes=60)
    driven = open_driven(tmp_path_factory.mktemp("at_once"), config=config)
    ends = [(0, 0, 0)]
    for count, size, rolls in appends:
        driven.append(batch(*[START_MS] * count, value=bytes(size)))
        if rolls:
            driven.roll()
        ends.append((driven.log.log_end_offset, driven.log.active.base_offset, driven.log.active.size))
    start = int(log_start * driven.log.log_end_offset)
    log = Shown(driven.reopen(was_clean=False, log_start_offset=start))
    high_watermark = ends[int(readable * (len(ends) - 1))]
    if high_watermark[0] >= start:
        log.driven.log.set_high_watermark(*high_watermark)
    for offset in range(start, log.driven.log.high_watermark + 1):
        found = log.fetch(offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        expected = log.driven.read(offset, max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        assert found == expected or (found is None and not max_bytes), f"from {offset}"
