"""Deadlines by key: the next one first, moved as often as anybody likes, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.groups.timers import Timers

KEYS = "abc"
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 50)),
    ),
    max_size=60,
)


@given(steps)
def test_what_comes_due_is_what_a_dictionary_says(sequence: list[tuple[str, str, int]]) -> None:
    timers, model = Timers[str](), dict[str, int]()
    for step, key, time_ms in sequence:
        if step == "set":
            timers.set(key, time_ms)
            model[key] = time_ms
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            popped = timers.pop_due(time_ms)
            if popped is None:
                assert all(deadline > time_ms for deadline in model.values())
            else:
                assert model[popped] == min(model.values()) <= time_ms
                del model[popped]
        assert not model or (timers.earliest is not None and timers.earliest <= min(model.values()))
        assert timers.next_deadline() == timers.earliest == min(model.values(), default=None)
        assert {key: timers.deadline(key) for key in KEYS if timers.deadline(key) is not None} == model
        assert len(timers) == len(model)


@pytest.mark.parametrize("times", [range(1, 10_000), range(10_000, 0, -1)], ids=["away", "nearer"])
def test_a_deadline_that_moves_takes_bounded_memory(times: range) -> None:
    timers = Timers[str]()
    for time_ms in times:
        timers.set("a", time_ms)
        assert timers.queue_length <= (1 if times.step == 1 else 2 + 64)
    assert timers.pop_due(times[-1] - 1) is None
    assert timers.pop_due(times[-1]) == "a"
    assert timers.pop_due(100_000) is None
    assert timers.queue_length == 0


def test_of_two_deadlines_at_one_moment_the_one_that_was_set_first_comes_first() -> None:
    timers = Timers[str]()
    for key in "cab":
        timers.set(key, 5)
    assert [timers.pop_due(5) for _ in range(4)] == ["c", "a", "b", None]
