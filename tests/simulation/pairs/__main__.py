"""Runs worlds of two servers: `python -m tests.simulation.pairs --first 7 --seeds 1 --history FILE`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..__main__ import HASH_SEED
from ..history import History
from ..verdict import judge
from .script import pair_of
from .world import simulate_pair

CONSOLE = Console(highlight=False, markup=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 when a world went wrong."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        command = [sys.executable, "-m", "tests.simulation.pairs", *arguments]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": HASH_SEED})
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.pairs", description="Simulated worlds of two servers.")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10, help="how many, beginning with --first")
    parser.add_argument("--history", type=Path, help="write what happened in the last one to a file")
    options = parser.parse_args(arguments)
    wrong = 0
    for seed in range(options.first, options.first + options.seeds):
        history = History()
        verdict = judge(pair_of(str(seed)), history, simulate_pair)
        wrong += not verdict.is_good
        if not verdict.is_good:
            CONSOLE.print(str(verdict))
        if options.history is not None:
            options.history.write_text("\n".join(history.lines()) + "\n")
        CONSOLE.print(f"seed {seed}: digest {verdict.digest}, {verdict.simulated_s:.0f} s in {verdict.took_s:.2f} s")
    CONSOLE.print(f"{options.seeds} worlds of two servers, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
