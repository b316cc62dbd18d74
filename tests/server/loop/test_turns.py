"""What fits a turn of the event loop, counted in steps."""

from __future__ import annotations

from triolog.server.loop.turns import STEPS_PER_TURN, Turns


def test_the_step_that_fills_a_turn_is_the_last_and_the_next_turn_is_empty() -> None:
    turns = Turns()
    assert [turns.spend(STEPS_PER_TURN // 3) for _ in range(6)] == [False, False, True] * 2


def test_what_does_not_fit_is_not_done_and_whoever_spends_next_is_the_last() -> None:
    turns = Turns()
    assert turns.fit(STEPS_PER_TURN - 1)
    assert not turns.fit(1)
    assert not turns.fit(1)
    assert turns.spend(1)
    assert turns.fit(STEPS_PER_TURN - 1)


def test_a_turn_that_begins_has_room() -> None:
    turns = Turns()
    assert not turns.fit(STEPS_PER_TURN), "it never does"
    turns.begin()
    assert not turns.spend(1)
    assert turns.fit(STEPS_PER_TURN - 2)
