"""An offset index of a segment that is not scanned, each of its bits flipped: no lookup by offset answers anything else for it.

Nothing of the log is damaged, so nothing is an error either; what is found without the index is said once.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.types import Isolation
from triolog.server.config import LogConfig
from triolog.server.storage.disk.paths import INDEX_SUFFIX, segment_file
from triolog.server.storage.log.prepare import prepare_marker

from tests.support.counts import counts
from tests.support.flipped_files import flipped
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

CONFIG: Final = LogConfig().overlay({"index.interval.bytes": "1", "segment.index.bytes": "240"})
FLIPS: Final = counts(1000, quick=60)


def filled(directory: Path) -> DrivenLog:
    """A closed segment with an index entry for each batch, aborted transactions among them, and another one."""
    driven = open_driven(directory, config=CONFIG)
    for number in range(5):
        driven.append(batch(START_MS + number, value=b"plain"))
        driven.append(
            batch(START_MS, value=b"aborted", producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
        )
        driven.append(batch(START_MS + number, value=b"between"))
        end = prepare_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=START_MS)
        driven.append_group([end])
    driven.roll()
    driven.append(batch(START_MS + 9))
    driven.close()
    return driven


def answers(driven: DrivenLog) -> tuple[object, ...]:
    """Every read by offset, small ones too, and those of committed records."""
    end = driven.log.log_end_offset
    offsets = range(end)
    return (
        [bytes(driven.read(offset, 1).records) for offset in offsets],
        [driven.read(offset, 300, isolation=Isolation.READ_COMMITTED).aborted for offset in offsets],
        [record.offset for record in driven.records(Isolation.READ_COMMITTED)],
    )


def test_no_flipped_bit_of_an_offset_index_changes_a_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = filled(tmp_path / "log")
    end = driven.log.log_end_offset
    path = tmp_path / "log" / segment_file(0, INDEX_SUFFIX)
    whole = path.read_bytes()
    offsets, _, committed = answers(driven.reopen(was_clean=True, recovery_point=end))
    bits = random.Random(1).sample(range(8 * len(whole)), min(FLIPS, 8 * len(whole)))
    for bit in bits:
        path.write_bytes(flipped(whole, bit))
        found, _, found_committed = answers(driven.reopen(was_clean=True, recovery_point=end))
        assert (found, found_committed) == (offsets, committed), f"bit {bit}"
    assert f"{path} is damaged" in caplog.text


def test_an_entry_that_leads_nowhere_is_said_once_and_read_around(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = filled(tmp_path / "log")
    end = driven.log.log_end_offset
    path = tmp_path / "log" / segment_file(0, INDEX_SUFFIX)
    content = bytearray(path.read_bytes())
    content[12] |= 0x80  # a position below zero, which the system refuses to read at
    path.write_bytes(content)
    again = driven.reopen(was_clean=True, recovery_point=end)
    assert again.offsets() == [offset for offset in range(end) if offset % 4 != 3]  # there the markers are
    assert [record.offset for record in again.records(Isolation.READ_COMMITTED)] == [*range(0, end, 2)]
    assert [again.offset_for(START_MS + number).offset for number in range(5)] == [0, 4, 8, 12, 16]
    assert caplog.text.count("is damaged: an entry leads to no batch") == 1
    assert "triolog reindex" in caplog.text
