"""What a fuzz target is, and what no input may do to any of them.

A target is a function of bytes. It answers whether they were taken for good ones, and raises BrokenInvariantError for what no
input may do: an error other than the documented one, an answer that is written as something else than it was read from, two
ways to read that differ. `Watch` adds what is the same for all: time and memory out of proportion to the input.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import attrs

MOST_SECONDS: Final = 1.0
"""Of the processor, for an input of a few kilobytes under instrumentation: most take a ten-thousandth of it."""
HANGING_SECONDS: Final = 30
MOST_BYTES: Final = 24 * 1024 * 1024
MOST_BYTES_PER_BYTE: Final = 1024
"""What the process may grow by for one input: a fixed part, and this for each of its bytes."""
RSS_UNIT_BYTES: Final = 1024


class BrokenInvariantError(AssertionError):
    """An input that did what no input may do."""


@attrs.frozen(kw_only=True)
class Target:
    """Something that reads bytes from outside or from a disk."""

    name: str
    feed: Callable[[bytes], bool]
    """Whether the input was good. Raises BrokenInvariantError."""
    seeds: Callable[[], Iterable[bytes]]
    """Good inputs of every kind."""
    modules: tuple[str, ...]
    """Prefixes of the modules whose branches are what the search tries to reach."""
    max_bytes: int = 2048


@attrs.define(eq=False)
class Watch:
    """Feeds a target and looks at what it takes. Owner: the main thread of a process."""

    target: Target
    _is_armed: bool = False

    def feed(self, data: bytes) -> bool:
        """As `Target.feed`; also raises BrokenInvariantError for time and memory."""
        if not self._is_armed:
            signal.signal(signal.SIGVTALRM, self._hangs)
            self._is_armed = True
        most = MOST_BYTES + MOST_BYTES_PER_BYTE * len(data)
        peak = _peak_bytes()
        signal.setitimer(signal.ITIMER_VIRTUAL, HANGING_SECONDS)
        try:
            is_good, seconds = self._timed(data)
            if seconds > MOST_SECONDS:  # what is compiled for a message is compiled once
                is_good, seconds = self._timed(data)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        require(seconds <= MOST_SECONDS, f"{len(data)} bytes took {seconds:.1f} s, above {MOST_SECONDS}: {data.hex()}")
        grown = _peak_bytes() - peak
        require(grown <= most, f"{len(data)} bytes took {grown} bytes of memory, above {most}: {data.hex()}")
        return is_good

    def _timed(self, data: bytes) -> tuple[bool, float]:
        started = time.thread_time()
        return self.target.feed(data), time.thread_time() - started

    def _hangs(self, *_: object) -> NoReturn:
        raise BrokenInvariantError(f"{self.target.name} took {HANGING_SECONDS} s of the processor")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES


def require(condition: object, message: str) -> None:
    """BrokenInvariantError with the message unless the condition holds."""
    if not condition:
        raise BrokenInvariantError(message)


def check_repeatable(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], found: Any, data: bytes) -> None:
    """What was found in the data is written as bytes that are read as the same."""
    try:
        again = decode(encode(found))
    except Exception as exc:
        raise BrokenInvariantError(f"{found!r} cannot be written and read: {exc!r}: {data.hex()}") from exc
    require(found == again or repr(found) == repr(again), f"{found!r} is written and read as {again!r}: {data.hex()}")
