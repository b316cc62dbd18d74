"""The life of a connection: its states, and the state that follows each event. Nothing else occurs (as `h11._state` has it).

| state | the connection |
|---|---|
| READING | receives, and takes up every request that is whole |
| HELD | receives nothing: a request, or what was received, has to wait for something that is not this connection's task |
| WORKING | receives nothing: its task waits for what a request needs before the next one |
| MUTED | receives nothing for a while: its client is above a quota |
| DRAINING | takes no more requests; those that were taken are answered, and the answers sent |
| LINGERING | has sent everything; the peer may read it before the connection is closed |
| CLOSED | is over |

*Invariants*: no state follows DRAINING in which requests are taken. Only READING receives. A mute that begins while the task
works counts from the end of the work on, so WORKING is left for HELD first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from ...loop.reactor import READING as READING

State = Literal["reading", "held", "working", "muted", "draining", "lingering", "closed"]
Event = Literal["hold", "resume", "work", "worked", "mute", "unmute", "stop", "linger", "close"]

HELD: Final = "held"
WORKING: Final = "working"
MUTED: Final = "muted"
DRAINING: Final = "draining"
LINGERING: Final = "lingering"
CLOSED: Final = "closed"

HOLD: Final = "hold"
"""The next request cannot be taken up yet, or nothing more may be received."""
RESUME: Final = "resume"
"""All requests are taken up, and more may be received."""
WORK: Final = "work"
"""A request has to wait for something; the task waits for it."""
WORKED: Final = "worked"
"""The task is done with that."""
MUTE: Final = "mute"
UNMUTE: Final = "unmute"
STOP: Final = "stop"
"""The peer sends no more, or the server wants no more of it."""
LINGER: Final = "linger"
"""Everything is sent, and the peer may not have read it yet."""
CLOSE: Final = "close"
"""The session's task ends, by itself or cancelled."""

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    READING: {HOLD: HELD, WORK: WORKING, MUTE: MUTED, STOP: DRAINING, CLOSE: CLOSED},
    HELD: {RESUME: READING, WORK: WORKING, MUTE: MUTED, STOP: DRAINING, CLOSE: CLOSED},
    WORKING: {WORKED: HELD, MUTE: WORKING, UNMUTE: WORKING, STOP: DRAINING, CLOSE: CLOSED},
    MUTED: {WORK: WORKING, MUTE: MUTED, UNMUTE: HELD, STOP: DRAINING, CLOSE: CLOSED},
    DRAINING: {
        WORK: DRAINING,
        WORKED: DRAINING,
        MUTE: DRAINING,
        UNMUTE: DRAINING,
        STOP: DRAINING,
        LINGER: LINGERING,
        CLOSE: CLOSED,
    },
    LINGERING: {STOP: LINGERING, CLOSE: CLOSED},
    CLOSED: {STOP: CLOSED},
}
"""State -> event -> the next state. An event that is not in a state's row is a bug."""
