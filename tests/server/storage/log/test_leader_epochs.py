"""Which leader epoch started where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.leader_epochs import EpochEntry, LeaderEpochs, decode_leader_epochs

ENTRIES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=8)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


def test_where_an_epoch_ends() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested."""
    found = epochs((2, 13), (4, 17))
    ends = {-1: (-1, -1), 1: (1, 13), 2: (2, 17), 3: (2, 17), 4: (4, 20), 5: (-1, -1)}
    assert {epoch: found.end_offset_for(epoch, 20) for epoch in ends} == ends
    assert epochs((0, 10), (2, 13)).end_offset_for(1, 20) == (0, 13)
    assert epochs().end_offset_for(0, 20) == (-1, -1)


@pytest.mark.parametrize(
    ("before", "change", "arguments", "after"),
    [
        ([(2, 9)], LeaderEpochs.assign, (2, 10), None),
        ([(1, 5), (2, 6)], LeaderEpochs.assign, (1, 7), [(1, 7)]),
        ([(5, 11), (6, 12), (7, 13)], LeaderEpochs.assign, (7, 12), [(5, 11), (7, 12)]),
        ([(2, 6), (3, 8), (4, 11)], LeaderEpochs.truncate_from_end, (8,), [(2, 6)]),
        ([(2, 6)], LeaderEpochs.truncate_from_end, (-1,), None),
        ([(2, 6)], LeaderEpochs.truncate_from_end, (7,), None),
        ([(0, 0), (1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (5,), [(0, 5), (1, 7), (2, 10)]),
        ([(0, 5), (1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (7,), [(1, 7), (2, 10)]),
        ([(1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (7,), None),
        ([(1, 7), (2, 10)], LeaderEpochs.truncate_from_start, (3,), None),
        ([(0, 0), (2, 6), (5, 9)], LeaderEpochs.go_on_from, (12,), None),
        ([(0, 0), (2, 6), (5, 9)], LeaderEpochs.go_on_from, (9,), None),
        ([(0, 0), (2, 6), (5, 9)], LeaderEpochs.go_on_from, (8,), [(0, 0), (2, 6), (5, 8)]),
        ([(0, 0), (2, 6), (5, 8)], LeaderEpochs.go_on_from, (0,), [(5, 0)]),
        ([], LeaderEpochs.go_on_from, (4,), [(0, 4)]),
        ([(0, 0)], LeaderEpochs.clear, (), []),
        ([], LeaderEpochs.clear, (), None),
    ],
)
def test_which_epochs_a_change_leaves(
    before: list[tuple[int, int]], change: Any, arguments: tuple[int, ...], after: list[tuple[int, int]] | None
) -> None:
    """None: nothing has changed, and it says so. Kafka:
    LeaderEpochFileCacheTest.shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned,
    LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingEpochs,
    LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset,
    LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries,
    LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest."""
    found = epochs(*before)
    assert change(found, *arguments) is (after is not None)
    assert found.entries == tuple(before if after is None else after)


@given(ENTRIES, st.integers(0, 60))
def test_going_on_never_lowers_the_epoch_and_forgets_what_lies_behind(entries: list[tuple[int, int]], end_offset: int) -> None:
    found = epochs(*entries)
    before = found.entries
    changed = found.go_on_from(end_offset)
    assert found.latest_epoch == (before[-1].epoch if before else 0)
    assert all(entry.start_offset <= end_offset for entry in found.entries)
    assert [entry for entry in before if entry.start_offset < end_offset] == [
        entry for entry in found.entries if entry.start_offset < end_offset
    ]
    assert changed is (found.entries != before)


@given(ENTRIES, st.integers(0, 70))
def test_every_cache_ascends_and_answers_by_scan(entries: list[tuple[int, int]], offset: int) -> None:
    found = epochs(*entries).entries
    assert [entry.epoch for entry in found] == sorted({entry.epoch for entry in found})
    assert [entry.start_offset for entry in found] == sorted({entry.start_offset for entry in found})
    expected = [entry.epoch for entry in found if entry.start_offset <= offset]
    assert LeaderEpochs(list(found)).epoch_for_offset(offset) == (expected[-1] if expected else None)


@given(ENTRIES)
def test_the_file_reads_back(entries: list[tuple[int, int]]) -> None:
    found = epochs(*entries)
    assert decode_leader_epochs("file", found.encode()).entries == found.entries


def test_the_file_has_a_line_for_each_epoch_and_others_are_not_understood() -> None:
    assert epochs((0, 0), (2, 1200)).encode() == b"0\n2\n0 0\n2 1200\n"
    for entry in ("0", "-1 0", "0 -1", f"{2**31} 0", f"0 {2**63}"):
        with pytest.raises(CheckpointError, match=r"^file: (the line .* fields|entry 1 .*31 bits|'.*' is not a whole number)"):
            decode_leader_epochs("file", f"0\n2\n0 0\n{entry}\n".encode())
    for negative in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="neither can be negative"):
            epochs(negative)
