"""The checkpoint of offsets that were taken out of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import InvalidRequestError
from triolog.protocol.limits import INT64_MAX
from triolog.server.config import GapPolicy, LogConfig
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError, OffsetInGapError
from triolog.server.storage.log.changes import accept_gap, reconfigure, truncate_fully_and_start_at, truncate_to
from triolog.server.storage.log.gaps import (
    FILE_NAME,
    UNKNOWN_MS,
    OffsetGap,
    accepted,
    decode_gaps,
    encode_gaps,
    gap_at,
    gaps_within,
    merge_gaps,
    next_gap,
    read_gaps,
    write_gaps,
)
from triolog.server.storage.lookups.fetch import fetch_batches, readable_bytes

from tests.server.offline.test_verify import flip
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

FS: Final = OsFileSystem()
GAPS: Final = (OffsetGap(5, 8, "a"), OffsetGap(10, 11, "-"))
SIZE: Final = len(batch())


@pytest.mark.parametrize(
    ("gaps", "text"),
    [
        (GAPS, "0\n2\n5 8 a\n10 11 -\n"),
        (
            (OffsetGap(5, 8, "a", 1_000, 2_000), OffsetGap(10, 11, "-", 1_500), OffsetGap(12, 13, "b")),
            "1\n3\n5 8 a 1000 2000\n10 11 - 1500 -\n12 13 b - -\n",
        ),
        ((), None),
    ],
    ids=["without times", "with times", "none"],
)
def test_what_is_written_is_read(tmp_path: Path, gaps: tuple[OffsetGap, ...], text: str | None) -> None:
    write_gaps(FS, str(tmp_path), gaps)
    assert ((tmp_path / FILE_NAME).read_text() if text else None) == text
    assert (tmp_path / FILE_NAME).exists() is bool(gaps)
    assert read_gaps(FS, str(tmp_path)) == gaps


MOMENTS: Final = st.just(UNKNOWN_MS) | st.integers(0, INT64_MAX)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.sampled_from("ab-"), MOMENTS, MOMENTS), max_size=6))
def test_any_gaps_are_read_as_they_were_written(drawn: list[tuple[int, int, str, int, int]]) -> None:
    gaps = merge_gaps(OffsetGap(start, start + size, *rest) for start, size, *rest in drawn)
    data = encode_gaps(gaps)
    assert decode_gaps("", data) == gaps
    assert encode_gaps(decode_gaps("", data)) == data


def test_a_gap_is_accepted_by_its_start_and_once() -> None:
    once = accepted(GAPS, 5, 70)
    assert once == (GAPS[0]._replace(accepted_ms=70), GAPS[1]) == accepted(once, 5, 80)
    for offset, why in ((6, "Offset 6 is in the gap from 5"), (9, "no gap starts at offset 9"), (0, "`triolog gaps list`")):
        with pytest.raises(InvalidRequestError, match=why):
            accepted(GAPS, offset, 70)


@pytest.mark.parametrize(
    "text",
    [
        "2\n0\n",
        "1\n1\n5 8 a\n",
        "1\n1\n5 8 a x -\n",
        "1\n1\n5 8 a - -1\n",
        "1\n1\n5 8 a - 9223372036854775808\n",
        "0\n2\n5 8 a\n",
        "0\n1\n5 8\n",
        "0\n1\n8 5 a\n",
        "0\n1\n5 x a\n",
        "0\n1\n-1 5 a\n",
        f"0\n1\n5 {2**63} a\n",
        "\xff",
    ],
)
def test_what_is_no_checkpoint_is_refused_and_kept_aside_when_the_log_is_opened(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=FILE_NAME):
        read_gaps(FS, str(tmp_path))
    assert open_driven(tmp_path).log.gaps == ()
    assert (tmp_path / f"{FILE_NAME}.corrupt").read_bytes() == text.encode("latin-1")


def test_gaps_are_found_by_offset() -> None:
    found = [gap_at(GAPS, offset) for offset in (4, 5, 7, 8, 9, 10, 11)]
    assert found == [None, GAPS[0], GAPS[0], None, None, GAPS[1], None]
    assert [next_gap(GAPS, offset) for offset in (4, 5, 9, 10)] == [GAPS[0], GAPS[1], GAPS[1], None]
    assert gaps_within(GAPS, 6, 10) == (OffsetGap(6, 8, "a"),), "those between the ends of a trimmed log"


@pytest.mark.parametrize(
    ("gaps", "merged"),
    [
        ([(10, 11, "-"), (6, 9, "b"), (5, 8, "a"), (5, 7, "c")], [(5, 7, "c"), (7, 8, "a"), (8, 9, "b"), (10, 11, "-")]),
        ([(5, 8, "a", 1, 2), (4, 9, "b", 3)], [(4, 9, "b", 3)]),
        ([(5, 8, "a", 1, 2), (5, 9, "b", 3)], [(5, 8, "a", 1, 2), (8, 9, "b", 3)]),
    ],
)
def test_gaps_that_share_offsets_do_so_once_and_those_around_an_accepted_one_are_open(
    gaps: list[Any], merged: list[Any]
) -> None:
    assert merge_gaps(OffsetGap(*gap) for gap in gaps) == tuple(OffsetGap(*gap) for gap in merged)


def gapped(directory: Path, **config: Any) -> DrivenLog:
    """Offsets 0 to 9 without 4 and 5, one to a batch."""
    driven = open_driven(directory, config=LogConfig(**config))
    for offset in range(10):
        driven.append(batch(START_MS + offset))
    path = directory / "00000000000000000000.log"
    for slot in (4, 5):
        flip(path, slot * SIZE + 70, 0)
    return driven.reopen(was_clean=False)


def fetched(driven: DrivenLog, offset: int, *, skip_gaps: bool | None) -> list[int]:
    found = driven.run(fetch_batches(driven.log.snapshot(), offset, 1 << 20, min_one_batch=True, skip_gaps=skip_gaps))
    return [int.from_bytes(found.records[at : at + 8], "big") for at in range(0, len(found.records), SIZE)]


def test_a_read_ends_before_a_gap_and_the_next_one_meets_it(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    assert fetched(driven, 0, skip_gaps=False) == [0, 1, 2, 3]
    for offset in (4, 5):
        with pytest.raises(OffsetInGapError, match=r"offset \d was lost to corruption.* 6"):
            fetched(driven, offset, skip_gaps=False)
    assert fetched(driven, 6, skip_gaps=False) == [6, 7, 8, 9]


def test_what_the_topic_says_holds_for_reads_that_say_nothing_until_the_gap_is_accepted(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    assert fetched(driven, 0, skip_gaps=None) == [0, 1, 2, 3, 6, 7, 8, 9]
    driven.run(reconfigure(driven.log, config=LogConfig(gap_policy=GapPolicy.REFUSE)))
    assert fetched(driven, 0, skip_gaps=None) == [0, 1, 2, 3]
    with pytest.raises(OffsetInGapError, match="`triolog gaps accept topic 0 4`") as caught:
        fetched(driven, 5, skip_gaps=None)
    assert (caught.value.offsets, caught.value.by_policy) == ((4, 6), True)
    assert fetched(driven, 0, skip_gaps=True) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert fetched(driven, 5, skip_gaps=True) == [6, 7, 8, 9]
    procedure = accept_gap(driven.log, start_offset=4)
    next(procedure)
    with pytest.raises(StopIteration) as answered:
        procedure.throw(OSError(28, "no space"))
    assert isinstance(answered.value.value, OSError)
    with pytest.raises(OffsetInGapError):
        fetched(driven, 4, skip_gaps=None)  # an acceptance that cannot be written is none


def test_what_is_accepted_is_passed_over_for_ever_unless_the_reader_says_otherwise(tmp_path: Path) -> None:
    driven = gapped(tmp_path, gap_policy=GapPolicy.REFUSE)
    for _ in range(2):  # the second time changes nothing
        gap = driven.run(accept_gap(driven.log, start_offset=4))
        assert isinstance(gap, OffsetGap)
        assert gap[:2] == (4, 6)
    assert fetched(driven, 0, skip_gaps=None) == [0, 1, 2, 3, 6, 7, 8, 9]
    with pytest.raises(OffsetInGapError):
        fetched(driven, 4, skip_gaps=False)
    for was_clean in (True, False):
        driven.close()
        driven = driven.reopen(was_clean=was_clean)
        assert fetched(driven, 4, skip_gaps=None) == [6, 7, 8, 9]
    assert driven.log.gaps == (gap,)


@pytest.mark.parametrize(
    ("offset", "max_bytes", "passed"),
    [(0, 4 * SIZE, False), (0, 5 * SIZE - 1, False), (0, 5 * SIZE, True), (3, 2 * SIZE, True), (4, 1, True), (5, 1, True),
     (6, 9 * SIZE, False)],
)  # fmt: skip
def test_a_read_says_which_gaps_it_has_passed_over(tmp_path: Path, offset: int, max_bytes: int, passed: bool) -> None:
    driven = gapped(tmp_path)
    found = driven.run(fetch_batches(driven.log.snapshot(), offset, max_bytes, min_one_batch=True))
    assert [gap[:2] for gap in found.passed] == ([(4, 6)] if passed else [])


def test_a_read_before_a_gap_that_compaction_has_emptied_meets_the_gap(tmp_path: Path) -> None:
    """Nothing is left between the offset and the gap: an empty answer would have the reader ask for ever."""
    driven = gapped(tmp_path, gap_policy=GapPolicy.REFUSE)
    snapshot = driven.log.snapshot()
    gap = snapshot.gaps[0]._replace(start_offset=5)  # as if 4 had been compacted away
    refusing = attrs.evolve(snapshot, gaps=(gap,), refused_gaps=(gap,))
    for procedure in (fetch_batches, readable_bytes):
        with pytest.raises(OffsetInGapError, match="offset 5 was lost to corruption"):
            driven.run(procedure(refusing, 4, 1 << 20, min_one_batch=True))
    assert driven.run(fetch_batches(refusing, 4, 1 << 20, min_one_batch=True, skip_gaps=True)).passed == (gap,)


def test_a_gap_behind_a_cut_is_forgotten(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    assert driven.offset_for(START_MS + 4)[:2] == (START_MS + 6, 6), "a gap costs no lookup by time"
    (gap,) = driven.log.gaps
    driven.run(truncate_to(driven.log, 5))
    assert driven.log.gaps == (gap._replace(end_offset=5),) == read_gaps(FS, str(tmp_path))
    driven.run(truncate_fully_and_start_at(driven.log, 3))
    assert driven.log.gaps == () == read_gaps(FS, str(tmp_path))
    for offset in range(3, 8):
        driven.append(batch(START_MS + offset))
    assert driven.offsets() == [3, 4, 5, 6, 7]
