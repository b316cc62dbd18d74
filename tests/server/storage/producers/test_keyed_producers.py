"""Producer ids of idempotency keys: a log remembers the latest ones, and other producers are not forgotten for them."""

from __future__ import annotations

import pytest
from triolog.protocol.records.batch import parse_header
from triolog.protocol.records.builder import build_batch
from triolog.server.storage.producers.producer_state import FIRST_KEYED_ID, ProducerState

MOST = 3
OTHER = 7


def append(state: ProducerState, producer_id: int, sequence: int = 0) -> None:
    batch = build_batch([(0, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    cursor = state.cursor()
    cursor.add(parse_header(batch), state.end_offset)
    state.commit(cursor, state.end_offset + 1, MOST)


def known(state: ProducerState) -> list[int]:
    return sorted(each - FIRST_KEYED_ID if each >= FIRST_KEYED_ID else each for each in state.entries)


def test_the_oldest_keys_go_and_other_producers_stay() -> None:
    state = ProducerState()
    append(state, OTHER)
    for key in (10, 11, 12, 13, 14):
        append(state, FIRST_KEYED_ID + key)
    assert known(state) == [OTHER, 12, 13, 14]


def test_a_key_that_is_appended_to_is_young_again() -> None:
    state = ProducerState()
    for key in (10, 11, 12):
        append(state, FIRST_KEYED_ID + key)
    append(state, FIRST_KEYED_ID + 10, 1)
    append(state, FIRST_KEYED_ID + 13)
    assert known(state) == [10, 12, 13]


@pytest.mark.parametrize("expires", [False, True])
def test_keys_of_a_snapshot_and_expired_ones_are_counted(expires: bool) -> None:
    before = ProducerState()
    for key in (10, 11, 12):
        append(before, FIRST_KEYED_ID + key)
    state = ProducerState(before.end_offset, dict(before.entries))
    if expires:
        assert state.expire(10, 10) == MOST
    append(state, FIRST_KEYED_ID + 13)
    assert known(state) == ([13] if expires else [11, 12, 13])
