"""Counters of the work in a server's thread.

| count | meaning |
|---|---|
| calls | functions that it enters, of Python and of C: the events `call` and `c_call` of `sys.setprofile` |
| turns | passes of the scheduler's loop: how often trio checks for ready tasks |

A coroutine that resumes is entered again, as is each coroutine that it awaits. CPython 3.11 counts as the tables do. Later
versions have other instructions, so their counts are compared with nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs
import trio

COUNTED_ON: Final = (3, 11)
"""The interpreter whose counts are kept."""


BENCH: Final = Path(__file__).parents[1]
PACKAGE: Final = BENCH.parents[1]


@attrs.frozen
class Counts:
    """Of a request, on average."""

    calls: float
    turns: float


class Calls:
    """Meter of calls, of the thread that it is switched on in."""

    def __init__(self) -> None:
        self.count = 0

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in {"call", "c_call"}:
            self.count += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)


class Functions(Calls):
    """The same by function, those of C by who calls them, to see where calls come from."""

    def __init__(self) -> None:
        super().__init__()
        self.by_function: Counter[str] = Counter()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in {"call", "c_call"}:
            return
        code = frame.f_code
        name = f"{code.co_qualname} ({'/'.join(Path(code.co_filename).parts[-2:])})"
        self.by_function[name if event == "call" else f"{argument.__qualname__} in {name}"] += 1


class Files(Calls):
    """The files of our functions, in the order in which they are called. Generated functions have none."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.suffix == ".py" and path.is_relative_to(PACKAGE) and not path.is_relative_to(BENCH):
            self.names.append(str(path.relative_to(PACKAGE)))


class Turns(trio.abc.Instrument):
    """Meter of passes of the loop. Trio calls functions for it: it never runs beside the other one."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
