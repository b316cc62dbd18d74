"""Which of the planted faults the simulated worlds find: `python -m tests.simulation.planted [NAME...]`.

`found/NAME.json` is a small world that finds the fault NAME. Without `--seeds` each of them is run with its fault. With
`--seeds 2000` so many seeds of short lives are run with each fault until one goes wrong, and then as many long worlds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from tests.planted_faults.importing import run_planted
from tests.planted_faults.planting import read_faults

FOUND: Final = Path(__file__).parent / "found"
WORLDS: Final = {path.stem: path for path in sorted(FOUND.glob("*.json"))}
CONSOLE: Final = Console(highlight=False, markup=False, soft_wrap=True)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--seeds", type=int, help="Search so many seeds. [default: run the worlds that are kept]")
def main(names: Sequence[str], seeds: int | None) -> None:
    """Run worlds with each of the faults NAME..., by default those of which a world is kept."""
    known = read_faults() if seeds else WORLDS
    if unknown := set(names) - known.keys():
        raise click.UsageError(f"no world is kept or no fault is known by the name {', '.join(sorted(unknown))}")
    verdicts = {name: search(name, seeds) if seeds else wrong_with(name) for name in names or WORLDS}
    for name, said in verdicts.items():
        CONSOLE.print(f"{name}: {said or 'not found'}")
    CONSOLE.print(f"{sum(map(bool, verdicts.values()))} of {len(verdicts)} found")
    if not all(verdicts.values()):
        raise SystemExit(1)


def wrong_with(name: str) -> str:
    """What is wrong in the world that is kept for a fault, with the fault; empty for nothing."""
    return _said(name, ["--script", str(WORLDS[name])])


def wrong_without() -> str:
    """What is wrong in one of the worlds that are kept, without a fault."""
    return _said("", ["--script", *map(str, WORLDS.values())])


def search(name: str, seeds: int) -> str:
    """What the first world that goes wrong says, or nothing."""
    until = ["--seeds", str(seeds), "--jobs", "1", "--until-wrong"]
    return _said(name, ["--short", *until]) or _said(name, until)


def _said(name: str, arguments: Sequence[str]) -> str:
    run = run_planted(name, "tests.simulation", arguments)
    said = [found[0] for found in re.finditer(r"^seed (.+): .*(?:\n  .*)?", run.stdout, re.MULTILINE)]
    if run.returncode not in (0, 1) or not (said or run.returncode == 0):
        raise click.ClickException(f"{name}: the worlds ended with {run.returncode}\n{run.stdout}{run.stderr}")
    return said[-1] if run.returncode else ""


if __name__ == "__main__":
    main()
