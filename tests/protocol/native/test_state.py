from __future__ import annotations

import pytest
from triolog.protocol.native.state import TRANSITIONS, State, Step, next_state


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_step_is_possible_somewhere_and_every_state_is_reached() -> None:
    assert {step for row in TRANSITIONS.values() for step in row} == set(Step)
    assert {state for row in TRANSITIONS.values() for state in row.values()} == set(State)


def test_conversation_begins_with_hello_only() -> None:
    assert set(TRANSITIONS[State.AWAIT_HELLO]) == {Step.HELLO, Step.FAILURE, Step.END}


def test_nothing_follows_an_error() -> None:
    assert TRANSITIONS[State.ERROR] == {}


@pytest.mark.parametrize("state", [state for state in State if state is not State.ERROR])
def test_failure_is_possible_in_every_other_state(state: State) -> None:
    assert next_state(state, Step.FAILURE) is State.ERROR


def test_answers_may_follow_the_end_of_requests() -> None:
    closed = next_state(State.READY, Step.END)
    assert closed is not None
    assert next_state(closed, Step.ANSWER) is closed
    assert next_state(closed, Step.REQUEST) is None
