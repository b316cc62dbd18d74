"""Finding one producer's records in a log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
from triolog.protocol.types import NO_OFFSET
from triolog.server.config import LogConfig
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.lookups.producer_batches import find_producer_records

from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SMALL: Final = LogConfig().overlay({"segment.bytes": "220", "index.interval.bytes": "1", "segment.index.bytes": "120"})


def mixed(directory: Path) -> DrivenLog:
    """Offsets 0, 1: nobody's; 2, 3: the producer's epoch 0; 4: nobody's; 5 to 8: its epoch 1, with one of another between."""
    driven = open_driven(directory, config=SMALL)
    driven.append(batch(START_MS, START_MS))
    driven.append(batch(START_MS, START_MS, producer_id=7, producer_epoch=0, base_sequence=0))
    driven.append(batch())
    driven.append(batch(START_MS, START_MS, producer_id=7, producer_epoch=1, base_sequence=0))
    driven.append(batch(producer_id=8, producer_epoch=1, base_sequence=0))
    driven.append(batch(producer_id=7, producer_epoch=1, base_sequence=2))
    return driven


def found(driven: DrivenLog, epoch: int, start_offset: int) -> tuple[int, int, int]:
    records = driven.run(find_producer_records(driven.log.snapshot(), 7, epoch, start_offset))
    driven.log.drop_maps()
    assert records.lost == ()
    return records[:3]


def test_records_are_counted_for_one_producer_and_epoch_across_segments(tmp_path: Path) -> None:
    driven = mixed(tmp_path)
    assert len(driven.log.segments) > 1
    assert found(driven, 0, 0) == (2, 2, 4)
    assert found(driven, 1, 0) == found(driven, 1, 5) == (3, 5, 9)


def test_what_lies_before_the_offset_does_not_count(tmp_path: Path) -> None:
    driven = mixed(tmp_path)
    assert found(driven, 0, 4) == (0, NO_OFFSET, NO_OFFSET)
    assert found(driven, 2, 0) == (0, NO_OFFSET, NO_OFFSET)
    assert found(driven, 1, 9) == (0, NO_OFFSET, NO_OFFSET)


def test_records_whose_first_batches_are_gone_are_counted_by_their_sequence(tmp_path: Path) -> None:
    assert found(mixed(tmp_path), 1, 7) == (3, 6, 9)


def test_sequences_that_are_missing_where_a_gap_lies_are_lost_and_others_were_compacted(tmp_path: Path) -> None:
    driven = mixed(tmp_path)
    snapshot = attrs.evolve(driven.log.snapshot(), log_end_offset=12)

    def lost(start_offset: int, *gaps: tuple[int, int], known_count: int = 0) -> tuple[range, ...]:
        damaged = attrs.evolve(snapshot, gaps=tuple(OffsetGap(*gap, "-") for gap in gaps))
        found = driven.run(find_producer_records(damaged, 7, 1, start_offset, known_count))
        assert found.records_count == max(3, known_count)
        return found.lost

    assert lost(7, known_count=5) == lost(7, (2, 5)) == lost(7, (9, 12)) == lost(5, (7, 8)) == ()
    assert lost(7, (7, 8)) == (range(2),)
    assert lost(7, (6, 8), (9, 12), known_count=5) == (range(2), range(3, 5))
    driven.log.drop_maps()
