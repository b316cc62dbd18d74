"""The checkpoint of offsets that were taken out of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.types import EARLIEST_TIMESTAMP
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError, OffsetInGapError
from triolog.server.storage.log.gaps import (
    FILE_NAME,
    OffsetGap,
    decode_gaps,
    encode_gaps,
    gap_at,
    gaps_within,
    merge_gaps,
    next_gap,
    read_gaps,
    write_gaps,
)
from triolog.server.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from triolog.server.storage.lookups.fetch import fetch_batches

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

FS: Final = OsFileSystem()
GAPS: Final = (OffsetGap(5, 8, "a"), OffsetGap(10, 11, "-"))
SIZE: Final = len(batch())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_gaps(FS, str(tmp_path), GAPS)
    assert (tmp_path / FILE_NAME).read_text() == "0\n2\n5 8 a\n10 11 -\n"
    assert read_gaps(FS, str(tmp_path)) == GAPS == decode_gaps("", encode_gaps(GAPS))


def test_a_log_without_gaps_has_no_file(tmp_path: Path) -> None:
    write_gaps(FS, str(tmp_path), ())
    assert not (tmp_path / FILE_NAME).exists()
    assert read_gaps(FS, str(tmp_path)) == ()


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n2\n5 8 a\n",
        "0\n1\n5 8\n",
        "0\n1\n8 5 a\n",
        "0\n1\n5 x a\n",
        "0\n1\n-1 5 a\n",
        f"0\n1\n5 {2**63} a\n",
        "\xff",
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=FILE_NAME):
        read_gaps(FS, str(tmp_path))


def test_an_unreadable_checkpoint_is_kept_aside_when_the_log_is_opened(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("nonsense")
    assert open_driven(tmp_path).log.gaps == ()
    assert (tmp_path / f"{FILE_NAME}.corrupt").read_text() == "nonsense"


def test_gaps_are_found_by_offset() -> None:
    assert [gap_at(GAPS, offset) for offset in (4, 5, 7, 8, 9, 10, 11)] == [
        None, GAPS[0], GAPS[0], None, None, GAPS[1], None,
    ]  # fmt: skip
    assert [next_gap(GAPS, offset) for offset in (4, 5, 9, 10)] == [GAPS[0], GAPS[1], GAPS[1], None]


def test_gaps_that_share_offsets_do_so_once() -> None:
    assert merge_gaps([OffsetGap(10, 11, "-"), OffsetGap(6, 9, "b"), OffsetGap(5, 8, "a"), OffsetGap(5, 7, "c")]) == (
        OffsetGap(5, 7, "c"),
        OffsetGap(7, 8, "a"),
        OffsetGap(8, 9, "b"),
        OffsetGap(10, 11, "-"),
    )


def test_a_trimmed_log_has_the_gaps_between_its_ends() -> None:
    assert gaps_within(GAPS, 6, 10) == (OffsetGap(6, 8, "a"),)


# ---- reading and cutting a log with a gap ----------------------------------------------------------------------------


def gapped(directory: Path) -> DrivenLog:
    """Offsets 0 to 9 without 4 and 5, one to a batch."""
    driven = open_driven(directory)
    for offset in range(10):
        driven.append(batch(START_MS + offset))
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[4 * SIZE + 70] ^= 1
    data[5 * SIZE + 70] ^= 1
    path.write_bytes(data)
    return driven.reopen(was_clean=False)


def fetched(driven: DrivenLog, offset: int, *, skip_gaps: bool) -> list[int]:
    found = driven.run(fetch_batches(driven.log.snapshot(), offset, 1 << 20, min_one_batch=True, skip_gaps=skip_gaps))
    return [int.from_bytes(found.records[at : at + 8], "big") for at in range(0, len(found.records), SIZE)]


def test_a_read_ends_before_a_gap_and_the_next_one_meets_it(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    assert fetched(driven, 0, skip_gaps=False) == [0, 1, 2, 3]
    for offset in (4, 5):
        with pytest.raises(OffsetInGapError, match=r"offset \d was damaged on disk .* go on from 6"):
            fetched(driven, offset, skip_gaps=False)
    assert fetched(driven, 6, skip_gaps=False) == [6, 7, 8, 9]


def test_a_read_that_skips_gaps_goes_on_behind_them(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    assert fetched(driven, 0, skip_gaps=True) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert fetched(driven, 5, skip_gaps=True) == [6, 7, 8, 9]


def test_a_gap_costs_no_lookup_by_time(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    assert driven.offset_for(START_MS + 4)[:2] == (START_MS + 6, 6)
    assert driven.offset_for(EARLIEST_TIMESTAMP).offset == 0


def test_a_gap_behind_a_cut_is_forgotten(tmp_path: Path) -> None:
    driven = gapped(tmp_path)
    (gap,) = driven.log.gaps
    driven.run(truncate_to(driven.log, 5))
    assert driven.log.gaps == (gap._replace(end_offset=5),) == read_gaps(FS, str(tmp_path))
    driven.run(truncate_fully_and_start_at(driven.log, 3))
    assert driven.log.gaps == () == read_gaps(FS, str(tmp_path))
    for offset in range(3, 8):
        driven.append(batch(START_MS + offset))
    assert driven.offsets() == [3, 4, 5, 6, 7]
