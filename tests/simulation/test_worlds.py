"""Simulated worlds keep every promise, a seed is one world, and a world that goes wrong is found and made small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
import trio
from triolog.server.partitions.disk import Disk
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.simulation.script import shrink
from tests.support.counts import counts, session_seed

from .device.disk import SimulatedDisk
from .script import Script, Step, script_of
from .seeded import run_seeded
from .verdict import judge

pytestmark = pytest.mark.merge  # ten worlds take 10 s

LONG_SEEDS: Final = 500
MERGE_SEEDS: Final = 30
SEEDS: Final = counts(LONG_SEEDS, merge=MERGE_SEEDS, commit=10)
"""`make simulate SEEDS=20000` runs more."""
PER_TEST: Final = 10
ROOT: Final = Path(__file__).resolve().parents[2]
SEED: Final = "2"
"""Where clients are told of errors that name files."""


def simulation(*arguments: str) -> str:
    """What the command says, in a process whose sets are ordered as everywhere: a seed is the same world here and by hand."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize("first", range(session_seed(), session_seed() + SEEDS, PER_TEST))
def test_every_promise_is_kept(first: int, tmp_path: Path) -> None:
    said = simulation("--first", str(first), "--seeds", str(PER_TEST), "--jobs", "1", "--keep", str(tmp_path))
    assert f"{PER_TEST} worlds, 0 wrong" in said


def kinds(seeds: range) -> set[tuple[str, ...]]:
    """The durabilities, settings of topics and kinds of steps in the worlds of these seeds."""
    scripts = [script_of(str(seed)) for seed in seeds]
    found: set[tuple[str, ...]] = {(script.durability, str(script.directories), str(script.rots)) for script in scripts}
    found |= {(step.who.split()[0], step.what) for script in scripts for step in script.steps}
    topics = [topic for script in scripts for topic in script.topics.items()]
    return found | {(name, *setting) for name, topic in topics for setting in topic["config"].items()}


def test_the_worlds_of_the_merge_tier_have_every_kind_of_step_and_every_setting() -> None:
    assert kinds(range(LONG_SEEDS)) - kinds(range(MERGE_SEEDS)) == set()


def test_a_seed_is_one_world(tmp_path: Path) -> None:
    """Also in another process, and after another world: with `--history` it is simulated twice."""
    said = [simulation("--seed", SEED), simulation("--seed", SEED, "--history", str(tmp_path / "history"))]
    [one], [other] = (re.findall(r"digest \w+, \d+ events", each) for each in said)
    assert one == other
    assert len((tmp_path / "history").read_text().splitlines()) > len(script_of(SEED).steps)


def test_what_is_written_on_the_spot_is_decided_in_the_time_of_the_world() -> None:
    """From a server's start on: a busy machine would be another world."""

    async def main() -> bool:
        return Disk(OsFileSystem()).at_once.clock is trio.current_time

    assert run_seeded("s", main, lambda: 0.0, open_listeners=trio.open_tcp_listeners)


def test_a_script_is_the_same_behind_its_file() -> None:
    script = script_of(SEED)
    assert Script.from_json(script.to_json()) == script


def test_a_disk_that_forgets_what_was_synced_is_found_out() -> None:
    """By what is lost. In most other worlds the server cannot start on what the power cut has left, and they have no end."""
    sends = [Step(second * 1000, "kafka 0", "send", {"topic": "plain", "partition": 0, "count": 5}) for second in range(10)]
    cuts = [Step(5500, "operator", "power", {"for_ms": 0, "after": 0})]
    world = Script("liar 5", "fsync", {"plain": {"partitions": 1, "config": {}}}, (*sends, *cuts))
    assert (verdict := judge(world)).is_good, verdict
    with patch.object(SimulatedDisk, "sync", lambda self, fd: None):
        assert "lost" in judge(world).kinds


@pytest.mark.parametrize("needed", [{3}, {0, 9}, {2, 3, 7}, set(range(10))], ids=str)
def test_a_failure_is_made_small(needed: set[int]) -> None:
    steps = tuple(Step(number, "somebody", "something") for number in range(10))
    script = Script("seed", "fsync", {}, steps)
    small = shrink(script, lambda tried: needed <= {step.at_ms for step in tried.steps})
    assert {step.at_ms for step in small.steps} == needed
