"""What a member is given: new records in pieces, old ones as they were, poison alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from triolog.protocol.errors import RequestError
from triolog.server.sharing.state import values
from triolog.server.sharing.state.acquisition import Acquisition
from triolog.server.sharing.state.partition_state import SharePartitionState
from triolog.server.sharing.state.values import ShareConfig

OPTIMIZED, LIMITED = values.AcquireMode
TENS: Final = [values.OffsetRange(first, first + 9) for first in range(0, 50, 10)]
ACCEPT, RELEASE = 1, 2


def take(
    state: SharePartitionState,
    fetched: Sequence[values.OffsetRange] = TENS,
    *,
    max_records: int = 500,
    batch_size: int = 500,
    mode: values.AcquireMode = OPTIMIZED,
    member: str = "member",
    aborted: Sequence[values.OffsetRange] = (),
) -> list[values.AcquiredRecords]:
    offset = state.next_fetch_offset()
    read = [each for each in fetched if each.last >= offset]
    acquisition = Acquisition(state, member, mode, batch_size, 0)
    return acquisition.take(read, fetch_offset=offset, max_records=max_records, aborted=aborted)


def give_back(state: SharePartitionState, first: int, last: int, kind: int = RELEASE) -> None:
    state.commit(state.acknowledge("member", [values.Acknowledgement(first, last, [kind])], 0))


def test_new_records_come_in_whole_record_batches_and_in_pieces_of_the_wanted_size() -> None:
    assert take(SharePartitionState(0), max_records=25) == [(0, 29, 1)]
    assert take(SharePartitionState(7), max_records=1) == [(7, 9, 1)]
    state = SharePartitionState(0)
    assert take(state, batch_size=15) == [(0, 19, 1), (20, 39, 1), (40, 49, 1)]
    give_back(state, 0, 49)
    assert take(state, max_records=15) == [(0, 19, 2)], "again as they were acquired"
    state = SharePartitionState(0)
    assert take(state, max_records=25, mode=LIMITED) == [(0, 24, 1)], "no more than wanted; others get the rest"
    assert take(state, max_records=25, mode=LIMITED) == [(25, 29, 1), (30, 49, 1)]
    for mode in values.AcquireMode:
        assert take(SharePartitionState(50), mode=mode) == []
        for most in (0, -1):
            assert take(SharePartitionState(0), max_records=most, mode=mode) == []


def test_offsets_without_records_are_passed_over_and_given_up() -> None:
    state = SharePartitionState(0)
    assert take(state, [values.OffsetRange(5, 9), values.OffsetRange(20, 24)]) == [(5, 24, 1)]
    assert state.start_offset == 5
    state = SharePartitionState(0)
    take(state, batch_size=10, max_records=30)
    give_back(state, 0, 29)
    assert take(state, TENS[2:], max_records=1) == [(20, 29, 2)]
    assert state.start_offset == 20


def test_at_the_limit_of_locks_only_what_was_given_before_is_given() -> None:
    state = SharePartitionState(0, ShareConfig(partition_max_record_locks=20))
    assert take(state) == [(0, 19, 1)]
    assert not state.can_acquire()
    assert take(state) == []
    give_back(state, 0, 4)
    assert state.can_acquire()
    assert take(state) == [(0, 4, 2)]


def test_records_given_back_come_in_smaller_pieces_until_they_are_archived() -> None:
    state = SharePartitionState(0)
    sizes = []
    for _ in range(5):
        acquired = take(state, TENS[:1])
        sizes.append(acquired[0].last_offset - acquired[0].first_offset + 1)
        give_back(state, acquired[0].first_offset, acquired[-1].last_offset)
    assert sizes == [10, 10, 10, 5, 1]
    assert state.start_offset == 1


def test_what_is_refused_in_part_has_not_happened() -> None:
    state = SharePartitionState(0)
    take(state, max_records=10)
    with pytest.raises(RequestError):
        state.acknowledge("member", [values.Acknowledgement(0, 9, [ACCEPT]), values.Acknowledgement(20, 29, [ACCEPT])], 0)
    give_back(state, 0, 9)
    assert take(state, max_records=10) == [(0, 9, 2)]


def test_records_of_aborted_transactions_nobody_gets() -> None:
    state = SharePartitionState(0)
    assert take(state, TENS[:3], aborted=[TENS[0], TENS[2]]) == [(10, 19, 1)]
    assert state.start_offset == 10
    give_back(state, 10, 19, kind=1)
    assert state.start_offset == 30


def test_after_a_restart_offsets_that_are_not_stored_come_as_new() -> None:
    stored = [
        values.StateBatch(10, 14, values.RecordState.ACKNOWLEDGED, 1),
        values.StateBatch(20, 24, values.RecordState.AVAILABLE, 2),
    ]
    assert take(SharePartitionState.restored(5, stored)) == [(5, 9, 1), (15, 19, 1), (20, 24, 3), (25, 49, 1)]
    state = SharePartitionState.restored(0, [values.StateBatch(30, 34, values.RecordState.AVAILABLE, 1)])
    assert take(state, max_records=15) == [(0, 19, 1)], "up to the end of a record batch"
    assert take(state, max_records=12) == [(20, 29, 1), (30, 34, 2)]
