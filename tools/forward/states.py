"""The states of a link, and every step from one to another. Nothing else decides what a link may do next."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class LinkState(enum.Enum):
    """The state of a link."""

    CONNECTING = "connecting"
    RUNNING = "running"
    DRAINING = "draining"
    """As running, whatever the windows say, until nothing is left."""
    PAUSED = "paused"
    WAITING = "waiting"
    """For a time window."""
    BACKING_OFF = "backing off"
    STOPPED = "stopped"
    """As it was asked to, or because nothing is left that it should send."""
    FAILED = "failed"
    """Somebody has to do something."""

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[self]


class LinkEvent(enum.Enum):
    """An event that changes the state of a link."""

    CONNECTED = "connected"
    LOST = "lost"
    TRY_AGAIN = "try again"
    RECONNECT = "reconnect"
    PAUSE = "pause"
    RESUME = "resume"
    WINDOW_CLOSES = "window closes"
    WINDOW_OPENS = "window opens"
    DRAIN = "drain"
    DRAINED = "drained"
    STOP = "stop"
    FAIL = "fail"


_ENDS: Final = {LinkEvent.STOP: LinkState.STOPPED, LinkEvent.FAIL: LinkState.FAILED}
_RESTS: Final = {
    LinkEvent.PAUSE: LinkState.PAUSED,
    LinkEvent.WINDOW_CLOSES: LinkState.WAITING,
    LinkEvent.LOST: LinkState.BACKING_OFF,
}
_SESSION: Final = {LinkEvent.RECONNECT: LinkState.CONNECTING, **_RESTS, **_ENDS}

TRANSITIONS: Final[Mapping[LinkState, Mapping[LinkEvent, LinkState]]] = {
    LinkState.CONNECTING: {
        LinkEvent.CONNECTED: LinkState.RUNNING,
        LinkEvent.DRAIN: LinkState.DRAINING,
        **_RESTS,
        **_ENDS,
    },
    LinkState.RUNNING: {LinkEvent.DRAIN: LinkState.DRAINING, **_SESSION},
    LinkState.DRAINING: {LinkEvent.DRAINED: LinkState.RUNNING, **_SESSION},
    LinkState.PAUSED: {LinkEvent.RESUME: LinkState.CONNECTING, **_ENDS},
    LinkState.WAITING: {LinkEvent.WINDOW_OPENS: LinkState.CONNECTING, **_ENDS},
    LinkState.BACKING_OFF: {LinkEvent.TRY_AGAIN: LinkState.CONNECTING, **_ENDS},
    LinkState.STOPPED: {},
    LinkState.FAILED: {},
}


def next_state(state: LinkState, event: LinkEvent) -> LinkState:
    """Return the state after an event. Raises AssertionError for an event that cannot happen in this state."""
    after = TRANSITIONS[state].get(event)
    assert after is not None, f"a link that is {state.value} cannot {event.value}"
    return after
