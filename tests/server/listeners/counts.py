"""What a request of each hot API may cost the server: the table that `test_counts.py` holds it to.

`python -m tests.server.listeners.counts` prints what it is now, `--write` puts that into this file; names behind it are loads
to leave the others as they are. `--functions CONNECTIONS` prints instead which functions they call how often, `--path` through
which files they pass. It is done by CPython 3.11, in `tools/bench/counting`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from triolog.tools.bench.counting.requests import LOADS, count_files, count_functions, count_requests
from triolog.tools.bench.measuring.child import run_load

COUNTS: Final[dict[str, dict[int, tuple[float, float]]]] = {
    "Produce, 1 record": {1: (178, 1.00), 50: (90, 0.02)},
    "Fetch, 1 record": {1: (169, 1.00), 50: (113, 0.04)},
    "ListOffsets by time, 1 partition": {1: (160, 1.00), 50: (96, 0.02)},
    "ListOffsets by time, 100 partitions": {1: (4039, 1.00), 50: (4350, 0.10)},
    "Metadata": {1: (191, 1.00), 50: (127, 0.02)},
    "Heartbeat": {1: (170, 1.00), 50: (106, 0.02)},
    "OffsetCommit": {1: (382, 1.00), 50: (291, 0.02)},
    "native produce, 1 record": {1: (245, 1.00), 50: (157, 0.02)},
    "native fetch, 1 record": {1: (241, 1.00), 50: (187, 0.06)},
    "native offsets_for_times, 1 partition": {1: (222, 1.00), 50: (158, 0.02)},
}
"""Load -> connections, each with one request under way -> calls of functions and turns of the event loop, both a request."""

PRODUCE_FILES: Final = 22
PRODUCE_FOLDER_CHANGES: Final = 34
"""What a Kafka produce of one record may pass through at most."""

ABOVE: Final = 0.02
BELOW: Final = 0.05
"""How far a count may be from the table; what is better than that lowers the table."""
TURNS: Final = {1: 0.1, 50: 0.02}
"""The same for turns a request, beside the shares: by connections. With fifty it is one turn for all of them."""


def measured(*loads: str, connections: tuple[int, ...] = (1, 50)) -> dict[tuple[str, int], tuple[float, float]]:
    """By load and connections, calls and turns a request; all loads where none is named. In a process of its own, where
    nothing of a test run takes part."""
    rows: list[dict[str, Any]] = run_load(count_requests, only=loads, connections=connections)
    return {(row["load"], row["connections"]): (row["calls"], row["turns"]) for row in rows}


def differences(load: str, connections: int, counts: tuple[float, float]) -> Iterator[str]:
    """What is to be said of counts that are not those of the table."""
    names, slacks = ("calls", "turns"), (0.0, TURNS[connections])
    for name, now, kept, slack in zip(names, counts, COUNTS[load][connections], slacks, strict=True):
        said = f"{load}, connections: {connections}: {now:g} {name} a request, {kept:g} in the table"
        if now > kept * (1 + ABOVE) + slack:
            yield f"{said}: it may only go down"
        elif name == "calls" and now < kept * (1 - BELOW):  # how often the loop turns is less on a busy machine
            yield f"{said}: lower the table, `python -m tests.server.listeners.counts --write '{load}'`"


def table(kept: dict[str, dict[int, tuple[float, float]]]) -> str:
    """As this file has it."""
    lines = []
    for load in LOADS:
        cells = (f"{count}: ({calls:.0f}, {turns:.2f})" for count, (calls, turns) in kept[load].items())
        lines.append(f'    "{load}": {{{", ".join(cells)}}},\n')
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change this file")
    parser.add_argument("loads", nargs="*", choices=[[], *LOADS], metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--functions", type=int, choices=[1, 50], metavar="CONNECTIONS", help="print calls by function")
    parser.add_argument("--path", action="store_true", help="print the files that a request passes through")
    arguments = parser.parse_args()
    if arguments.path:
        for load in arguments.loads or LOADS:
            path = run_load(count_files, load=load)
            sys.stdout.write(f"{load}: {len(path['files'])} files, {path['folder_changes']} changes of folder\n")
            sys.stdout.writelines(f"    {name}\n" for name in path["files"])
        return
    if arguments.functions:
        for load in arguments.loads or LOADS:
            calls = run_load(count_functions, load=load, connections=arguments.functions)
            sys.stdout.writelines([f"\n{load}\n", *(f"{count:9.2f} {name}\n" for name, count in calls.items())])
        return
    kept = dict(COUNTS)
    for (load, connections), counts in measured(*arguments.loads).items():
        kept[load] = {**kept.get(load, {}), connections: counts}
    sys.stdout.write(table(kept))
    if arguments.write:
        path = Path(__file__)
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r"(?ms)^(COUNTS: .*?= \{\n).*?^\}", lambda found: f"{found[1]}{table(kept)}}}", text, count=1))


if __name__ == "__main__":
    main()
