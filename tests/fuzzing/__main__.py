"""`python -m tests.fuzzing [TARGET...] --runs N`: let libFuzzer search, from where the last time has ended.

Below `build/fuzz/TARGET`: `corpus` has the inputs that reached something new, `found` those that broke an invariant, and
`runs.tsv` a line for each process: when it ended, its executions, its seconds of the processor, what it found. `--totals` adds
them up. `--minimise` puts the smallest inputs that reach the same into `tests/data/fuzz/TARGET.hex`, which the suite replays.
"""

from __future__ import annotations

import hashlib
import re
import resource
import subprocess
import sys
import time
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click
from triolog.protocol.limits import KIB

from tests.fuzzing import targets
from tests.fuzzing.target import Target

BUILD: Final = Path("build/fuzz")
RUNS_PER_PROCESS: Final = 500_000
"""What a process learns is kept by its inputs alone; a fresh one forgets what it has leaked."""
MOST_CORPUS_BYTES: Final = 64 * KIB
"""Of what is replayed, for each target."""
MOST_INPUTS: Final = 400
NEVER_S: Final = 10**6
"""libFuzzer's own limit of time counts while the process is stopped; `Watch` counts what it works."""
_EXECUTED: Final = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_WRITTEN: Final = re.compile(r"Test unit written to (\S+)")


@attrs.frozen
class Place:
    """Where the search for one target keeps what it has."""

    target: Target

    @property
    def folder(self) -> Path:
        return BUILD / self.target.name

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    @property
    def found(self) -> Path:
        return self.folder / "found"

    @property
    def ledger(self) -> Path:
        return self.folder / "runs.tsv"

    def prepare(self) -> None:
        """Create the folders, with the seeds and the inputs that the suite replays in them."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        self.found.mkdir(exist_ok=True)
        for data in (*self.target.seeds(), *targets.kept(self.target.name)):
            (self.corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)

    def search(self, runs: int) -> tuple[int, Path | None]:
        """(executions, the input that broke an invariant), of one process."""
        command = [
            *(sys.executable, "-m", "tests.fuzzing.search", self.target.name),
            *(f"-runs={runs}", f"-max_len={self.target.max_bytes}", f"-timeout={NEVER_S}", f"-report_slow_units={NEVER_S}"),
            *("-rss_limit_mb=2048", "-print_final_stats=1", "-reload=0", f"-artifact_prefix={self.found}/"),
            str(self.corpus),
        ]
        before = _worked_s()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        seconds = _worked_s() - before
        executed = _EXECUTED.search(done.stderr)
        if executed is None:
            raise click.ClickException(f"libFuzzer did not begin:\n{done.stderr[-3000:]}")
        count, written = int(executed[1]), _WRITTEN.search(done.stderr)
        broken = Path(written[1]) if written else None
        if broken is not None:
            broken.with_suffix(".txt").write_text(_story(done.stdout + done.stderr))
        with self.ledger.open("a") as ledger:
            ledger.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')}\t{count}\t{seconds:.0f}\t{broken.name if broken else '-'}\n")
        return count, broken

    def totals(self) -> tuple[int, int, int]:
        """(executions, seconds of the processor, broken invariants) of all processes so far."""
        rows = [line.split("\t") for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []
        return sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows), sum(row[3] != "-" for row in rows)

    def minimise(self) -> int:
        """Replace what the suite replays by the smallest inputs that reach what all reach; how many they are."""
        name = self.target.name
        found = [path.read_bytes() for path in self.corpus.iterdir()] if self.corpus.is_dir() else []
        chosen: list[bytes] = []
        size = 0
        for data in smallest(self.target, {*found, *targets.kept(name)}):
            size += len(data)
            if size > MOST_CORPUS_BYTES or len(chosen) == MOST_INPUTS:
                break
            chosen.append(data)
        targets.replace(name, chosen)
        return len(chosen)


def _worked_s() -> float:
    """What children that have ended took of the processor: other work on the machine does not count, nor being stopped."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _story(output: str) -> str:
    """From the exception on; all of it where libFuzzer says of none."""
    return output[max(0, output.find("=== Uncaught Python exception")) :]


@click.command()
@click.argument("names", nargs=-1, metavar="[TARGET...]")
@click.option("--runs", default=100_000, show_default=True, help="Executions, in all.")
@click.option("--keep-going", is_flag=True, help="Do not end with the first input that breaks an invariant.")
@click.option("--totals", is_flag=True, help="Say how many executions there have been.")
@click.option("--minimise", is_flag=True, help="Put the smallest inputs that reach everything into tests/data/fuzz.")
def main(names: Sequence[str], runs: int, keep_going: bool, totals: bool, minimise: bool) -> None:
    """Fuzz TARGET... (all of them by default), each for so many executions."""
    if unknown := set(names) - targets.TARGETS.keys():
        raise click.UsageError(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(targets.TARGETS)}")
    places = [Place(targets.TARGETS[name]) for name in names or targets.TARGETS]
    for place in places:
        if totals:
            count, seconds, broken = place.totals()
            click.echo(f"{place.target.name}: {count} executions in {seconds} s of the processor, {broken} broken invariants")
        elif minimise:
            click.echo(f"{place.target.name}: {place.minimise()} inputs are replayed")
        else:
            _search(place, runs, keep_going)


def _search(place: Place, runs: int, keep_going: bool) -> None:
    place.prepare()
    name, done = place.target.name, 0
    while done < runs:
        count, broken = place.search(min(runs - done, RUNS_PER_PROCESS))
        done += max(count, 1)
        click.echo(f"{name}: {done} of {runs} executions")
        if broken is not None:
            story = broken.with_suffix(".txt")
            click.echo(f"{name}: {broken} breaks an invariant: {story}", err=True)
            if not keep_going:
                raise click.ClickException(story.read_text()[:2000])


if __name__ == "__main__":
    main()


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
