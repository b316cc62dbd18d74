"""Calls and turns of a small request. No timing: the same figures on every machine."""

from __future__ import annotations

import sys
from typing import Final

from ..counting.meters import COUNTED_ON
from ..counting.requests import ROUNDS, count_requests
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult

LOADS: Final = ("Produce, 1 record", "Fetch, 1 record", "ListOffsets by time, 1 partition", "native produce, 1 record")
NOTES: Final = (
    "calls: functions of Python and of C that the server's thread enters; turns: passes of trio's loop",
    "many connections: one request each under way, all there before the server looks",
    "tests/server/listeners/counts.py has the figures that a request may not exceed, of more APIs",
)


def request_counts(bench: Bench) -> RowResult:
    """Of requests of one record, which are the ones that overhead makes slow."""
    bench.say("counting")
    counted = {(row["load"], row["connections"]): row for row in run_load(count_requests, only=LOADS)}
    lines = []
    for load in LOADS:
        for connections in ROUNDS:
            lines.append(Line(f"{load}, connections: {connections}, calls", "", [counted[load, connections]["calls"]]))
        lines.append(Line(f"{load}, connections: 1, turns", "", [counted[load, 1]["turns"]]))
    notes = list(NOTES)
    if sys.version_info[:2] != COUNTED_ON:
        notes.append("counted by another interpreter than CPython {}.{}: not to be compared".format(*COUNTED_ON))
    return RowResult("calls and turns of the event loop a request", lines, notes)
