"""What an input reaches of a target, line after line: by that the inputs are chosen that the suite replays."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from tests.fuzzing.target import Target

COMPILED = "<"
"""What codecs compile has no module; its file's name begins like this."""

Step = tuple[types.CodeType, int, int]
"""A line of a function, and the one before it."""


def reached(target: Target, data: bytes) -> set[Step]:
    """Every step that the target's modules make for an input."""
    steps: set[Step] = set()
    watched: dict[types.CodeType, bool] = {}

    def is_watched(frame: types.FrameType) -> bool:
        module = frame.f_globals.get("__name__", "")
        return module.startswith(target.modules) or frame.f_code.co_filename.startswith(f"{COMPILED}reader")

    def enter(frame: types.FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in watched:
            watched[code] = is_watched(frame)
        if not watched[code]:
            return None
        before = 0

        def line(frame: types.FrameType, event: str, _: Any) -> Any:
            nonlocal before
            steps.add((code, before, frame.f_lineno))
            before = frame.f_lineno
            return line

        return line

    sys.settrace(enter)
    try:
        target.feed(data)
    finally:
        sys.settrace(None)
    return steps


def smallest(target: Target, inputs: Iterable[bytes]) -> Iterator[bytes]:
    """Of the inputs, from the smallest one on, each that reaches what none before it does."""
    known: set[Step] = set()
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        steps = reached(target, data)
        if not steps <= known:
            known |= steps
            yield data
