"""A turn of the event loop: what fits it, counted in steps, and what is put off to its end: done once, in order, and whatever
it causes is done in the same turn."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from triolog.server.loop.turns import STEPS_PER_TURN, Gathering, Turns


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


@attrs.define(eq=False)
class Work:
    name: str
    done: list[str]
    causes: Callable[[], None] = lambda: None

    def end_turn(self) -> None:
        self.done.append(self.name)
        self.causes()


def test_writes_come_before_sends_each_once_and_in_the_order_they_were_asked_for() -> None:
    done: list[str] = []
    gathering = Gathering()
    first, second, peer = (Work(name, done) for name in ("first", "second", "peer"))
    with gathering:
        with gathering:
            gathering.add_sender(peer)
            for who in (first, second, first):
                gathering.add_writer(who)
        assert (done, gathering.is_open) == ([], True), "a turn in a turn ends with the outermost"
    assert done == ["first", "second", "peer"]


def test_what_the_end_of_a_turn_causes_is_done_before_it_is_over() -> None:
    done: list[str] = []
    gathering = Gathering()
    log = Work("log", done)
    peer = Work("peer", done, lambda: gathering.add_writer(log) if done.count("peer") == 1 else None)
    log.causes = lambda: gathering.add_sender(peer)
    with gathering:
        gathering.add_sender(peer)
    assert done == ["peer", "log", "peer"]
    assert not gathering.is_open


def test_an_error_at_the_end_of_a_turn_is_raised_and_the_next_turn_does_what_was_left() -> None:
    done: list[str] = []
    gathering = Gathering()

    def fail() -> None:
        raise ZeroDivisionError

    def turn() -> None:
        with gathering:
            gathering.add_writer(Work("broken", done, fail))
            gathering.add_writer(Work("other", done))

    with pytest.raises(ZeroDivisionError):
        turn()
    assert not gathering.is_open
    with gathering:
        pass
    assert done == ["broken", "other"]
