"""Which leader epoch started where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.leader_epochs import EpochEntry, LeaderEpochs, decode_leader_epochs

ENTRIES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=8)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


def test_a_start_offset_once_assigned_stays() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned."""
    found = epochs((2, 9))
    assert not found.assign(2, 10)
    assert found.entries == ((2, 9),)
    assert found.end_offset_for(2, 11) == (2, 11)


def test_epochs_increase_with_their_offsets() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldEnforceMonotonicallyIncreasingEpochs."""
    found = epochs((1, 5), (2, 6))
    assert found.assign(1, 7)
    assert found.entries == ((1, 7),)


def test_an_earlier_start_of_the_same_epoch_drops_what_it_contradicts() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldTruncateIfMatchingEpochButEarlierStartingOffset."""
    found = epochs((5, 11), (6, 12), (7, 13))
    assert found.assign(7, 12)
    assert found.entries == ((5, 11), (7, 12))
    assert found.end_offset_for(5, 20) == found.end_offset_for(6, 20) == (5, 12)


def test_an_unknown_epoch_ends_where_the_next_higher_one_starts() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested."""
    found = epochs((0, 10), (2, 13), (4, 17))
    assert found.end_offset_for(1, 20) == (0, 13)
    assert found.end_offset_for(3, 20) == (2, 17)


def test_what_cannot_be_said_of_an_epoch() -> None:
    found = epochs((2, 13), (4, 17))
    assert found.end_offset_for(-1, 20) == found.end_offset_for(5, 20) == (-1, -1)
    assert found.end_offset_for(4, 20) == (4, 20)
    assert found.end_offset_for(1, 20) == (1, 13)
    assert epochs().end_offset_for(0, 20) == (-1, -1)


def test_truncation_from_the_end_drops_what_starts_there() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries."""
    found = epochs((2, 6), (3, 8), (4, 11))
    assert found.truncate_from_end(8)
    assert found.entries == ((2, 6),)
    assert not found.truncate_from_end(-1)
    assert not found.truncate_from_end(7)


def test_truncation_from_the_start_moves_the_epoch_it_falls_into() -> None:
    """Kafka: LeaderEpochFileCacheTest.shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest."""
    found = epochs((0, 0), (1, 7), (2, 10))
    assert found.truncate_from_start(5)
    assert found.entries == ((0, 5), (1, 7), (2, 10))
    assert found.truncate_from_start(7)
    assert found.entries == ((1, 7), (2, 10))
    assert not found.truncate_from_start(7)
    assert not found.truncate_from_start(3)


def test_a_log_that_was_cut_goes_on_in_its_latest_epoch() -> None:
    found = epochs((0, 0), (2, 6), (5, 9))
    assert not found.go_on_from(12)
    assert not found.go_on_from(9)
    assert found.go_on_from(8)
    assert found.entries == ((0, 0), (2, 6), (5, 8))
    assert found.go_on_from(0)
    assert found.entries == ((5, 0),)
    nothing = epochs()
    assert nothing.go_on_from(4)
    assert nothing.entries == ((0, 4),)


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


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="neither can be negative"):
        epochs(entry)


@given(ENTRIES)
def test_the_file_reads_back(entries: list[tuple[int, int]]) -> None:
    found = epochs(*entries)
    assert decode_leader_epochs("file", found.encode()).entries == found.entries


def test_the_file_has_a_line_for_each_epoch() -> None:
    assert epochs((0, 0), (2, 1200)).encode() == b"0\n2\n0 0\n2 1200\n"
    with pytest.raises(CheckpointError, match="some-file"):
        decode_leader_epochs("some-file", b"0\n1\n0\n")


def test_clearing_says_whether_there_was_something() -> None:
    found = epochs((0, 0))
    assert found.clear()
    assert not found.clear()
    assert found.latest_epoch is None


@pytest.mark.parametrize("entry", ["-1 0", "0 -1", f"{2**31} 0", f"0 {2**63}"])
def test_a_file_with_a_number_that_cannot_be_is_not_understood(entry: str) -> None:
    with pytest.raises(CheckpointError, match=r"^file: (entry 1 says epoch 2147483648 .*31 bits|'.*' is not a whole number)"):
        decode_leader_epochs("file", f"0\n2\n0 0\n{entry}\n".encode())
