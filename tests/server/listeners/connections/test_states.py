"""The life of a connection is the table of `connections/states`, and a session has no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

import pytest
import trio
from triolog.server.listeners.connections.session import Session
from triolog.server.listeners.connections.states import (
    CLOSED,
    DRAINING,
    HELD,
    HOLD,
    LINGERING,
    MUTE,
    READING,
    RESUME,
    STOP,
    TRANSITIONS,
    UNMUTE,
    WORK,
    Event,
    State,
)
from triolog.server.listeners.native.session import NativeSession

from tests.server.listeners.native.test_session import session_of

STATES: Final = get_args(State)
EVENTS: Final = get_args(Event)


def unmute(session: Session[Any]) -> None:
    session.muted_until = trio.current_time()
    session._unmute()


CALLS: Final[list[tuple[Event, Callable[[Session[Any]], None]]]] = [
    (WORK, lambda session: session.work_on(trio.sleep_forever)),
    (MUTE, lambda session: session.mute(1.0)),
    (UNMUTE, unmute),
    (STOP, lambda session: session.stop_reading()),
    (STOP, lambda session: session.end_reading()),
    (STOP, lambda session: session.end_with(ValueError("planted"))),
]


def reachable(start: State) -> set[State]:
    found, new = set[State](), {start}
    while new:
        found |= new
        new = {after for state in new for after in TRANSITIONS[state].values()} - found
    return found


def test_every_state_is_reached_and_every_event_leads_from_one_to_another() -> None:
    assert reachable(READING) == TRANSITIONS.keys() == set(STATES)
    assert {event for row in TRANSITIONS.values() for event in row} == set(EVENTS)


def test_what_has_stopped_takes_no_more_requests() -> None:
    assert reachable(DRAINING) == {DRAINING, LINGERING, CLOSED}
    assert reachable(LINGERING) == {LINGERING, CLOSED}
    assert reachable(CLOSED) == {CLOSED}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("event", "call"), CALLS)
async def test_a_session_follows_the_table_and_refuses_other_events(
    state: State, event: Event, call: Callable[[Session[Any]], None]
) -> None:
    async with session_of() as served:
        session = served.session
        session.state = state
        if event in TRANSITIONS[state]:
            call(session)
            assert session.state == TRANSITIONS[state][event]
        else:
            with pytest.raises(KeyError):
                call(session)
            assert session.state == state


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("may_receive", [True, False])
async def test_only_a_session_that_takes_requests_is_held_and_resumes(
    state: State, may_receive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeSession, "may_receive", lambda _: may_receive)
    async with session_of() as served:
        session = served.session
        session.state = state
        session._go_on()
        event = {(HELD, True): RESUME, (READING, False): HOLD}.get((state, may_receive))
        assert session.state == (state if event is None else TRANSITIONS[state][event])
        assert session.share.is_receiving == (session.state == READING)
