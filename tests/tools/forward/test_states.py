from __future__ import annotations

import pytest
from triolog.tools.forward.progress import TRANSITIONS, LinkEvent, LinkState, next_state


def test_every_state_has_its_row_and_is_reached_from_the_first_one() -> None:
    assert set(TRANSITIONS) == set(LinkState)
    reached = {LinkState.CONNECTING}
    while more := {after for each in reached for after in TRANSITIONS[each].values()} - reached:
        reached |= more
    assert reached == set(LinkState)


def test_a_link_can_be_stopped_and_can_fail_whatever_it_does_and_then_does_nothing_more() -> None:
    assert [state for state in LinkState if state.is_final] == [LinkState.STOPPED, LinkState.FAILED]
    for state in LinkState:
        if not state.is_final:
            assert next_state(state, LinkEvent.STOP) is LinkState.STOPPED, state
            assert next_state(state, LinkEvent.FAIL) is LinkState.FAILED, state


def test_a_link_that_rests_goes_on_by_connecting_anew_and_a_step_that_does_not_exist_is_a_bug() -> None:
    assert next_state(LinkState.PAUSED, LinkEvent.RESUME) is LinkState.CONNECTING
    assert next_state(LinkState.WAITING, LinkEvent.WINDOW_OPENS) is LinkState.CONNECTING
    assert next_state(LinkState.BACKING_OFF, LinkEvent.TRY_AGAIN) is LinkState.CONNECTING
    with pytest.raises(AssertionError, match="a link that is paused cannot drained"):
        next_state(LinkState.PAUSED, LinkEvent.DRAINED)
