"""What connections count of themselves: plain integers, added up where it happens and looked at when somebody asks.

A request costs two readings of the clock and a handful of additions, which `test_counters.py` bounds. There is a place for
each API of a protocol, and in it one for each error that it has answered: sets that no client can enlarge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from ...broker import Durations
from .seldom import Seldom

STALLED: Final = "stalled"
"""A frame stood still while others waited for memory."""
NEWCOMER: Final = "newcomer"
"""The oldest one that had not shown who it is made room for another."""
OUT_OF_MEMORY: Final = "out_of_memory"
BROKEN_PROTOCOL: Final = "broken_protocol"
FAILED: Final = "failed"
"""Two more kinds of ends that are said a few times a minute: the bytes made no sense, or a request has no other answer."""


@attrs.define(eq=False, repr=False)
class ApiCounters:
    """What became of the requests of one API."""

    durations: Durations = attrs.field(factory=Durations)
    """From when a request was taken up until its answer was ready to be sent; long polls wait in between."""
    errors: dict[int, int] = attrs.field(factory=dict)
    """Answers with an error of this code in it, by code. An answer with two different ones counts for both."""

    def answered(self, seconds: float, errors: Iterable[int] = ()) -> None:
        """One more answer, and the codes of the errors in it."""
        self.durations.add(seconds)
        for code in errors:
            self.errors[code] = self.errors.get(code, 0) + 1


@attrs.define(eq=False, repr=False)
class ProtocolCounters:
    """What the connections of all listeners of one protocol have done. Owner: `Admission`; listeners and sessions count."""

    protocol: str
    connections: int = 0
    """Open now."""
    accepted: int = 0
    """Since the start."""
    received_bytes: int = 0
    sent_bytes: int = 0
    refused: int = 0
    """Connections that were ended because their peer broke the protocol."""
    ended: dict[str, int] = attrs.field(factory=dict)
    """Connections that were ended for what they cost others, by why: see `docs/operations/limits.md`."""
    bugs: int = 0
    """Requests, and connections, that ended with an error that nobody expected."""
    said: Seldom = attrs.field(factory=Seldom)
    """Of those, of connections that were ended, and of what goes wrong with accepting."""
    apis: dict[str, ApiCounters] = attrs.field(factory=dict)

    def end(self, why: str) -> None:
        """One more connection is ended."""
        self.ended[why] = self.ended.get(why, 0) + 1

    def api(self, name: str) -> ApiCounters:
        """The counters of an API that the server has."""
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiCounters()
        return found
