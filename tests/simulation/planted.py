"""Which of the planted faults the simulated worlds find: `python -m tests.simulation.planted [NAME...] --seeds 100`.

Each is planted in a copy of the tree, in which worlds are run until one goes wrong.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from tests.planted_faults.__main__ import FAULTS
from tests.planted_faults.planting import Copy

CONSOLE = Console(highlight=False, markup=False, soft_wrap=True)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--seeds", default=100, show_default=True, help="How many worlds are tried.")
def main(names: Sequence[str], seeds: int) -> None:
    """Run worlds with each of the faults NAME..., all of them by default."""
    if unknown := set(names) - FAULTS.keys():
        raise click.UsageError(f"there is no fault {', '.join(sorted(unknown))}")
    found = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy.make(Path(folder))
        for name in names or FAULTS:
            began_s = time.monotonic()
            with copy.planted(FAULTS[name]):
                run = copy.run_module("tests.simulation", ["--seeds", str(seeds), "--jobs", "1", "--until-wrong"])
            said = re.search(r"^seed (\d+): .*(?:\n  .*)?", run.stdout, re.MULTILINE)
            if run.returncode not in (0, 1) or (run.returncode and not said):
                raise click.ClickException(f"{name}: the worlds ended with {run.returncode}\n{run.stdout}{run.stderr}")
            found += said is not None
            CONSOLE.print(f"{name} ({time.monotonic() - began_s:.0f} s): {said[0] if said else 'not found'}")
    CONSOLE.print(f"{found} of {len(names or FAULTS)} found within {seeds} worlds")


if __name__ == "__main__":
    main()
