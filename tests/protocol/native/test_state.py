from __future__ import annotations

import pytest
from triolog.protocol.native.state import TRANSITIONS, State, Step, next_state


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_step_is_possible_somewhere_and_every_state_is_reached() -> None:
    assert {step for row in TRANSITIONS.values() for step in row} == set(Step)
    assert {state for row in TRANSITIONS.values() for state in row.values()} == set(State)


@pytest.mark.parametrize("state", [state for state in State if state is not State.ERROR])
def test_failure_is_possible_in_every_other_state(state: State) -> None:
    assert next_state(state, Step.FAILURE) is State.ERROR
