"""Fewer steps of a script that still fails: halves are taken out, then quarters, and so on down to single steps."""

from __future__ import annotations

from collections.abc import Callable

from .script import Script


def shrink(script: Script, fails: Callable[[Script], bool], *, tries: int = 400) -> Script:
    """A script that fails, and of whose steps none can be left out, as far as `tries` runs tell."""
    size = max(1, len(script.steps) // 2)
    while size and tries > 0:
        at = 0
        while at < len(script.steps) and tries > 0:
            smaller = script.with_steps(script.steps[:at] + script.steps[at + size :])
            tries -= 1
            if fails(smaller):
                script = smaller
            else:
                at += size
        size = size // 2 if size > 1 else 0
    return script
