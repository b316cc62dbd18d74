"""The walk of a lookup as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import CorruptRecordError, OffsetOutOfRangeError
from triolog.server.storage.disk.diskops import Read
from triolog.server.storage.lookups import explain
from triolog.server.storage.lookups.explain import explain_offset, explain_timestamp, whole_log, with_segments

from tests.server.offline.test_verify import flip
from tests.server.storage.lookups.drawn_logs import log_of
from tests.support.logs import START_MS, DrivenLog, batch

SIZE = len(batch())


def by_time(driven: DrivenLog, timestamp: int, is_cached: Callable[[Read], bool] = bool) -> dict[str, Any]:
    return driven.run(explain_timestamp(driven.log.snapshot(), timestamp, is_cached))


def by_offset(driven: DrivenLog, offset: int, is_cached: Callable[[Read], bool] = bool) -> dict[str, Any]:
    return driven.run(explain_offset(driven.log.snapshot(), offset, is_cached))


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[DrivenLog]:
    """25 batches of one record, stamped START_MS + offset, ten to a segment, an index entry for every second one."""
    found = log_of(tmp_path, *range(25), segment_bytes=10 * SIZE, index_interval_bytes=SIZE)
    yield found
    found.log.drop_maps()


def test_a_lookup_by_offset_passes_over_a_damaged_magic_byte_as_a_fetch_does(driven: DrivenLog) -> None:
    """The batch at offset 14 is the one that the index leads to, and 15 lies behind it."""
    path = Path(driven.log.segments.values(10, 11)[0].log.path)
    flip(path, 4 * SIZE + 16, 0)
    assert by_offset(driven, 15)["answer"]["position"] == 5 * SIZE
    with pytest.raises(CorruptRecordError):
        by_offset(driven, 14)


def test_a_lookup_by_time_tells_segment_slots_and_positions(driven: DrivenLog) -> None:
    walk = by_time(driven, START_MS + 15)
    assert walk["asked"] == {"timestamp": START_MS + 15}
    assert (walk["segment_count"], walk["log_start_offset"], walk["high_watermark"]) == (3, 0, 25)
    assert walk["answer"] == {"offset": 15, "timestamp": START_MS + 15, "leader_epoch": 0}
    (step,) = walk["segments"]
    assert (step["segment"], step["number"], step["is_active"]) == (10, 1, False)
    assert (step["size_bytes"], step["max_timestamp"]) == (10 * SIZE, START_MS + 19)
    assert step["time_index"] == {"entries": 5, "slot": 1, "timestamp": START_MS + 14, "offset": 14}
    assert step["offset_index"] == {"entries": 4, "looked_up": 14, "slot": 1, "offset": 14, "position": 4 * SIZE}
    assert step["reads"] == [{"position": 4 * SIZE, "bytes": 6 * SIZE, "cached": True}]
    assert step["bytes_scanned"] == 6 * SIZE


def test_a_lookup_by_offset_tells_the_batch(driven: DrivenLog) -> None:
    walk = by_offset(driven, 23)
    assert walk["asked"] == {"offset": 23}
    (step,) = walk["segments"]
    assert (step["segment"], step["is_active"]) == (20, True)
    assert "time_index" not in step
    assert walk["answer"] == {
        "offset": 23,
        "position": 3 * SIZE,
        "batch_base_offset": 23,
        "batch_last_offset": 23,
        "batch_bytes": SIZE,
        "batch_max_timestamp": START_MS + 23,
    }


def test_what_is_not_cached_is_said_to_be_cold(driven: DrivenLog) -> None:
    (first,) = by_time(driven, START_MS + 15)["segments"]
    assert first["cached"] is False  # both indexes had to be mapped
    (again,) = by_time(driven, START_MS + 15)["segments"]
    assert again["cached"] is True
    (cold_step,) = by_time(driven, START_MS + 15, lambda read: False)["segments"]
    assert cold_step["cached"] is False
    assert [read["cached"] for read in cold_step["reads"]] == [False]


def test_a_lookup_without_index_steps_has_its_answer_alone(driven: DrivenLog) -> None:
    nothing = by_time(driven, START_MS + 99)
    assert (nothing["answer"], nothing["segments"]) == ({"offset": -1, "timestamp": -1, "leader_epoch": -1}, [])
    walk = by_offset(driven, 25)
    assert (walk["answer"], walk["segments"]) == ({"offset": -1}, [])
    with pytest.raises(OffsetOutOfRangeError):
        by_offset(driven, 26)
    for timestamp, offset in ((-1, 25), (-2, 0), (-3, 24)):
        walk = by_time(driven, timestamp)
        assert (walk["answer"]["offset"], walk["segments"]) == (offset, [])
        assert bool(walk["reads"]) is (timestamp == -3)


def test_all_segments_are_told_when_they_are_wanted_and_of_many_neighbours_together(
    driven: DrivenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_offset(driven, 15)  # maps the index
    explained = partial(explain_offset, offset=15, is_cached=bool)
    walk = driven.run(with_segments(driven.log.snapshot(), explained))
    assert walk["log_segments"] == [
        {
            "segment": base,
            "segments": 1,
            "size_bytes": count * SIZE,
            "least_timestamp": START_MS + base,
            "max_timestamp": START_MS + base + count - 1,
        }
        for base, count in ((0, 10), (10, 10), (20, 5))
    ]
    del walk["log_segments"]
    assert walk == by_offset(driven, 15)
    monkeypatch.setattr(explain, "MOST_STRETCHES", 2)
    told = [tuple(each.values()) for each in whole_log(driven.log.snapshot())]
    assert told == [(0, 2, 20 * SIZE, START_MS, START_MS + 19), (20, 1, 5 * SIZE, START_MS + 20, START_MS + 24)]
