"""The counters of connections: plain integers, added up where the event happens and read on request.

A request costs two clock reads and a handful of additions, which `test_counters.py` bounds. Each API of a protocol has an
entry, with one count for each error that it has returned: sets that no client can enlarge.

A peer, or a lack of descriptors, could repeat a log line many times a second. Each is logged once a minute, or a few times
(`Seldom`). An unhandled exception ends the connection and nothing else. It is counted with its protocol and logged with its
traceback, each place in the code once a minute (`report_bug`).

`Meter` measures the processor time of a request, without the time that it waits.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Generator, Hashable, Iterable
from time import perf_counter
from types import coroutine
from typing import Any, Final, TypeVar

import attrs
import trio

from ...broker import Durations

LOGGER: Final = logging.getLogger(__name__)
AGAIN_S: Final = 60.0
LINES: Final = 10
"""Warnings of one kind within that time."""
MAX_LINE_CHARS: Final = 1000
MAX_NAME_CHARS: Final = 100
"""Peers choose their names, and the reason stands behind them in a line."""
STALLED: Final = "stalled"
"""A frame stood still while others waited for memory."""
NEWCOMER: Final = "newcomer"
"""The oldest one that had not shown who it is made room for another."""
OUT_OF_MEMORY: Final = "out_of_memory"
BROKEN_PROTOCOL: Final = "broken_protocol"
FAILED: Final = "failed"
"""Two more kinds of ends that are said a few times a minute: the bytes made no sense, or a request has no other answer."""


def cut(text: str, chars: int = MAX_NAME_CHARS) -> str:
    """Return the beginning of a text that a peer chose, for a log line."""
    return text if len(text) <= chars else f"{text[:chars]}..."


@attrs.define
class _Said:
    at_s: float
    times: int = 1
    left_out: int = 0


@attrs.define(eq=False, repr=False)
class Seldom:
    """The times of rare log lines. The code chooses the keys, so they are few."""

    _said: dict[Hashable, _Said] = attrs.field(factory=dict)

    def left_out(self, key: Hashable, now_s: float, most: int = 1) -> int | None:
        """Return the number of omitted lines since the last one. Returns None to omit this one too, after `most` lines in the
        period."""
        said = self._said.get(key)
        if said is not None and now_s < said.at_s + AGAIN_S:
            if said.times < most:
                said.times += 1
                return 0
            said.left_out += 1
            return None
        self._said[key] = _Said(now_s)
        return 0 if said is None else said.left_out

    def warn(self, logger: logging.Logger, key: Hashable, line: str) -> None:
        """A few times a minute; the other times it is there for who debugs."""
        line = cut(line, MAX_LINE_CHARS)
        left_out = self.left_out(key, trio.current_time(), LINES)
        if left_out is None:
            logger.debug("%s", line)
        else:
            logger.warning("%s%s", line, f" ({left_out} similar errors not logged)" if left_out else "")


@attrs.define(eq=False, repr=False)
class ApiCounters:
    """The counters of one API's requests."""

    durations: Durations = attrs.field(factory=Durations)
    """From when a request was taken up until its answer was ready to be sent; long polls wait in between."""
    errors: dict[int, int] = attrs.field(factory=dict)
    """Answers with an error of this code in it, by code. An answer with two different ones counts for both."""

    def note_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes of a response, each of which is there once."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


@attrs.define(eq=False, repr=False)
class ProtocolCounters:
    """The counters of one protocol's connections on all listeners. Owner: `Admission`; listeners and sessions count."""

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
    apis: dict[str, ApiCounters] = attrs.field(factory=lambda: defaultdict(ApiCounters))
    """Those of an API that the server has, by its name."""

    def end(self, why: str) -> None:
        """Count one connection that the server ends."""
        self.ended[why] = self.ended.get(why, 0) + 1


def report_bug(counters: ProtocolCounters, what: str, error: BaseException) -> None:
    """Count and log what `what` ended with. Raises nothing: there may be no memory left to say it."""
    counters.bugs += 1
    with contextlib.suppress(Exception):
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]  # the groups of nurseries say nothing
        left_out = counters.said.left_out(_place(error), trio.current_time())
        if left_out is not None:
            again = f" ({left_out} more like it were not said)" if left_out else ""
            LOGGER.error("unhandled exception: %s%s", what, again, exc_info=error)


def _place(error: BaseException) -> tuple[str, str, int]:
    """(class, file, line) where it was raised; of a group the first one's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    file, line = "", 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        file, line = frame.f_code.co_filename, number
    return type(error).__name__, file, line


T = TypeVar("T")


@attrs.define(eq=False, repr=False)
class Meter:
    """Owner: a request. Only one thing runs for it at a time."""

    _spent_s: float = 0.0
    _since_s: float | None = None
    """When it began to run; None: it does not."""

    def go(self) -> None:
        """It runs from now on."""
        self._since_s = perf_counter()

    def pause(self) -> None:
        """It does not, for a while."""
        self._spent_s, self._since_s = self.spent_s, None

    @property
    def spent_s(self) -> float:
        """Return the running time so far, in seconds."""
        running_s = 0.0 if self._since_s is None else perf_counter() - self._since_s
        return self._spent_s + running_s

    async def run(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Of its time only the stretches count in which its task runs."""
        return await _metered(work.__await__(), self)


@coroutine
def _metered(steps: Generator[Any, Any, T], meter: Meter) -> Generator[Any, Any, T]:
    """The scheduler sees what `steps` yields, and `steps` what the scheduler sends or throws."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        meter.go()
        try:
            asked = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as exc:
            returned: T = exc.value
            return returned
        finally:
            meter.pause()
        answer = error = None
        try:
            answer = yield asked
        except BaseException as exc:
            error = exc
