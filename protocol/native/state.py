"""The native protocol's conversation as a table: which steps exist, and where each leads. Nothing else lives here.

Client and server walk the same table, because both see the same steps; who made a forbidden one decides whose error it
is.

    AWAIT_HELLO   nothing may cross but a hello
    ANSWER_HELLO  a hello awaits its answer; a refused one (a version that does not exist) may be tried again
    READY         requests and answers in any order
    CLOSED        the peer has finished sending; what it asked for may still be answered
    ERROR         the protocol was broken; nothing follows the last error frame
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Role(enum.Enum):
    """An end of the connection."""

    CLIENT = enum.auto()
    SERVER = enum.auto()


class State(enum.Enum):
    """The state of a connection, which decides the steps that may follow."""

    __hash__ = object.__hash__  # Enum's hashes the name in Python: 2 us per request for the table's two lookups

    AWAIT_HELLO = enum.auto()
    ANSWER_HELLO = enum.auto()
    READY = enum.auto()
    CLOSED = enum.auto()
    ERROR = enum.auto()


class Step(enum.Enum):
    """An event on a connection."""

    __hash__ = object.__hash__

    HELLO = "a hello"
    HELLO_ACCEPTED = "the response to a hello"
    HELLO_REFUSED = "the refusal of a hello"
    REQUEST = "a request"
    ANSWER = "a response"
    FAILURE = "an error that ends the connection"
    END = "the end of the stream"


TRANSITIONS: Final[Mapping[State, Mapping[Step, State]]] = {
    State.AWAIT_HELLO: {
        Step.HELLO: State.ANSWER_HELLO,
        Step.FAILURE: State.ERROR,
        Step.END: State.CLOSED,
    },
    State.ANSWER_HELLO: {
        Step.HELLO_ACCEPTED: State.READY,
        Step.HELLO_REFUSED: State.AWAIT_HELLO,
        Step.FAILURE: State.ERROR,
        Step.END: State.CLOSED,
    },
    State.READY: {
        Step.REQUEST: State.READY,
        Step.ANSWER: State.READY,
        Step.FAILURE: State.ERROR,
        Step.END: State.CLOSED,
    },
    State.CLOSED: {
        Step.HELLO_ACCEPTED: State.CLOSED,
        Step.HELLO_REFUSED: State.CLOSED,
        Step.ANSWER: State.CLOSED,
        Step.FAILURE: State.ERROR,
    },
    State.ERROR: {},
}


def next_state(state: State, step: Step) -> State | None:
    """Return the state after `step` in `state`; None when the step is not allowed there."""
    return TRANSITIONS[state].get(step)
