"""What the log says of a share-partition: snapshots, updates, and how they are laid over each other."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.coordinator.share_group_records import ShareSnapshotValue, ShareStateBatch, ShareUpdateValue
from triolog.protocol.errors import InvalidRecordError
from triolog.server.sharing.state import stored_state
from triolog.server.sharing.state.values import RecordState, StateBatch

INITIAL = stored_state.applied(None, stored_state.plan_initial(None, state_epoch=3, start_offset=0, now_ms=7))
STATES = st.sampled_from([each for each in RecordState if each is not RecordState.ACQUIRED])
BATCHES = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    *(st.integers(0, 30), st.integers(0, 8), STATES, st.integers(0, 3)),
)


def by_offset(batches: tuple[StateBatch, ...] | list[StateBatch]) -> dict[int, tuple[RecordState, int]]:
    return {each: (state, count) for first, last, state, count in batches for each in range(first, last + 1)}


@given(st.lists(BATCHES), st.lists(BATCHES), st.integers(-1, 30))
def test_the_newest_word_on_an_offset_counts(old: list[StateBatch], new: list[StateBatch], start: int) -> None:
    batches = stored_state.overlaid(stored_state.overlaid((), old, -1), new, start)
    assert by_offset(batches) == {each: word for each, word in by_offset([*old, *new]).items() if each >= start}
    assert len(by_offset(batches)) == sum(each.last_offset - each.first_offset + 1 for each in batches)
    assert list(batches) == sorted(batches)


def test_after_many_updates_comes_a_snapshot_that_says_the_same() -> None:
    stored, first, batch = INITIAL, StateBatch(8, 8, RecordState.ARCHIVED, 2), StateBatch(4, 5, RecordState.ACKNOWLEDGED, 1)
    for number in range(stored_state.UPDATES_PER_SNAPSHOT + 1):
        said = [batch] if number else [first]
        value = stored_state.plan_write(
            stored, start_offset=2, delivery_complete_count=3, batches=said, leader_epoch=0, now_ms=9
        )
        assert isinstance(value, ShareSnapshotValue) == (number == stored_state.UPDATES_PER_SNAPSHOT)
        before, stored = stored, stored_state.applied(stored, value)
    assert stored == attrs.evolve(before, snapshot_epoch=1, updates=0, written_ms=9)
    assert (stored.state_epoch, stored.start_offset, stored.batches) == (3, 2, (batch, first))


def test_a_snapshot_of_the_same_changes_nothing_but_its_epoch() -> None:
    update = stored_state.plan_write(INITIAL, start_offset=1, delivery_complete_count=0, batches=[], leader_epoch=0, now_ms=9)
    stored = stored_state.applied(INITIAL, update)
    again = stored_state.applied(stored, stored_state.plan_snapshot(stored, now_ms=10))
    assert again == attrs.evolve(stored, snapshot_epoch=1, updates=0, written_ms=10)
    anew = stored_state.applied(INITIAL, stored_state.plan_initial(INITIAL, state_epoch=4, start_offset=9, now_ms=11))
    assert (anew.snapshot_epoch, anew.state_epoch, anew.start_offset, anew.batches) == (1, 4, 9, ())


@pytest.mark.parametrize(("start_offset", "done"), [(-1, -1), (0, 0), (9, 0)])
def test_how_many_are_done_with_is_known_where_the_start_is(start_offset: int, done: int) -> None:
    value = stored_state.plan_initial(None, state_epoch=0, start_offset=start_offset, now_ms=0)
    assert value.delivery_complete_count == done


@pytest.mark.parametrize(("state", "last", "count"), [(1, 1, 1), (3, 1, 1), (0, -1, 1), (0, 1, -1)])
def test_states_that_are_none_are_refused(state: int, last: int, count: int) -> None:
    batch = ShareStateBatch(first_offset=0, last_offset=last, delivery_state=state, delivery_count=count)
    with pytest.raises(InvalidRecordError, match="of a share-partition are in state"):
        stored_state.applied(INITIAL, ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=0, state_batches=[batch]))


def test_an_update_needs_a_snapshot_and_keeps_the_start_that_it_does_not_name() -> None:
    update = ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=-1, state_batches=[])
    assert stored_state.applied(attrs.evolve(INITIAL, start_offset=5), update).start_offset == 5
    with pytest.raises(InvalidRecordError, match="without a snapshot"):
        stored_state.applied(None, update)
