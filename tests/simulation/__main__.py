"""Runs worlds: `python -m tests.simulation --seeds 1000`, one for each seed, on every processor.

With `--short` they are short lives of which each has one end, and `--enumerate` ends a life at every change of the disk.
A world that fails is run once more, made as small as it stays wrong, and kept as a file that `--script FILE` runs again.
Everything is run with one PYTHONHASHSEED, so that a seed is the same world everywhere.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from tests.simulation.script import shrink

from .history import History
from .script import Script
from .short_lives import LEFT, LIVES, SHORT, changes_of, seed_of, world_of
from .verdict import Verdict, judge, judge_seed

HASH_SEED: Final = "0"
CONSOLE: Final = Console(highlight=False, markup=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 when a world went wrong."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *arguments], {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        )
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulated worlds, each from its seed.")
    parser.add_argument("--seeds", type=int, default=100, help="how many, beginning with --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="short lives")
    parser.add_argument("--enumerate", nargs="*", choices=tuple(LIVES), metavar="LIFE", help=f"each end of {', '.join(LIVES)}")
    parser.add_argument("--left", default=",".join(LEFT), help="what the ends leave [default: %(default)s]")
    parser.add_argument("--only", nargs="+", metavar="SEED", help="these seeds, with the digest of each")
    parser.add_argument("--seed", help="this one only")
    parser.add_argument("--script", type=Path, nargs="+", help="worlds from files")
    parser.add_argument("--history", type=Path, help="write what happened to a file")
    parser.add_argument("--keep", type=Path, default=Path("build/simulation"), help="where worlds that failed are kept")
    parser.add_argument("--until-wrong", action="store_true", help="end with the first world that is wrong, as it is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.seed is not None or options.script is not None:
        scripts = [Script.from_json(path.read_text()) for path in options.script or ()] or [world_of(options.seed)]
        return max(_one(script, options.history) for script in scripts)
    numbers = range(options.first, options.first + options.seeds)
    if options.only is not None:
        seeds = options.only
    elif options.enumerate is not None:
        seeds = _ends(options.enumerate or tuple(LIVES), numbers, options.left.split(","))
    else:
        seeds = [f"{SHORT if options.short else ''}{number}" for number in numbers]
    failed = _many(seeds, options.jobs, until_wrong=options.until_wrong, shows_digests=options.only is not None)
    if not options.until_wrong:
        for verdict in failed[:5]:
            _keep(verdict, options.keep)
    return 1 if failed else 0


def _one(script: Script, path: Path | None) -> int:
    history = History()
    verdict = judge(script, history)
    if path is not None:
        path.write_text("\n".join(history.lines()) + "\n")
    CONSOLE.print(str(verdict))
    CONSOLE.print(f"digest {verdict.digest}, {verdict.events} events, {verdict.simulated_s:.0f} s in {verdict.took_s:.2f} s")
    return 0 if verdict.is_good else 1


def _ends(names: Sequence[str], numbers: Sequence[int], left: Sequence[str]) -> list[str]:
    """The seeds of every end of these lives."""
    changes = {(name, number): changes_of(name, number) for number in numbers for name in names}
    CONSOLE.print("\n".join(f"{name} {number}: {count} changes of the disk" for (name, number), count in changes.items()))
    return [seed_of(*life, before, each) for life, count in changes.items() for before in range(count) for each in left]


def _many(seeds: Sequence[str], jobs: int, *, until_wrong: bool, shows_digests: bool) -> list[Verdict]:
    began_s, failed, kinds = time.perf_counter(), [], Counter[str]()
    simulated_s, worked_s, cycles = 0.0, 0.0, 0
    with Progress(console=CONSOLE) as progress:
        task = progress.add_task("worlds", total=len(seeds))
        for verdict in _verdicts(seeds, jobs):
            progress.advance(task)
            simulated_s, worked_s = simulated_s + verdict.simulated_s, worked_s + verdict.took_s
            cycles += verdict.write_cycles
            if shows_digests:
                progress.print(f"seed {verdict.seed}: digest {verdict.digest}, {verdict.events} events")
            if not verdict.is_good:
                failed.append(verdict)
                kinds.update(verdict.kinds)
                progress.print(str(verdict))
                if until_wrong:
                    break
    CONSOLE.print(f"{len(seeds)} worlds, {len(failed)} wrong {dict(kinds)}; {cycles} write cycles, which are allowed")
    CONSOLE.print(
        f"{simulated_s / worked_s:.0f} simulated seconds a second on a core, {time.perf_counter() - began_s:.0f} s in all"
    )
    return failed


def _verdicts(seeds: Sequence[str], jobs: int) -> Iterator[Verdict]:
    if jobs == 1:
        yield from map(judge_seed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(judge_seed, seeds, chunksize=1)


def _keep(verdict: Verdict, folder: Path) -> None:
    """Make it small and write it down."""
    script = world_of(verdict.seed)
    again = judge(script)
    if again.digest != verdict.digest:
        CONSOLE.print(f"seed {verdict.seed} is another world the second time")
        return
    small = shrink(script, lambda smaller: bool(judge(smaller).kinds & verdict.kinds))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{verdict.seed.replace(' ', '-')}.json"
    path.write_text(small.to_json())
    CONSOLE.print(f"seed {verdict.seed}, in {len(small.steps)} steps instead of {len(script.steps)}: --script {path}")
    CONSOLE.print("\n".join(f"  {step}" for step in small.steps))
    CONSOLE.print(str(judge(small)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
