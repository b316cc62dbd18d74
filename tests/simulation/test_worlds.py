"""Simulated worlds keep every promise, a seed is one world, and a world that goes wrong is found and made small."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
import trio
from triolog.server.partitions.disk import Disk
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.planted_faults.importing import HASH_SEED
from tests.simulation.script import shrink
from tests.support.counts import LONG, is_at_least, seeds, session_seed

from .device.disk import SimulatedDisk
from .device.moments import MOMENTS
from .history import Cut, History
from .planted import WORLDS, search, wrong_with, wrong_without
from .script import Script, Step, script_of
from .seeded import run_seeded
from .short_lives import LIVES, MOMENTS_OF, world_of
from .verdict import judge

pytestmark = pytest.mark.merge  # ten worlds take 10 s

LONG_SEEDS: Final = 500
MERGE_SEEDS: Final = (1, 2, 8, 11, 19, 21, 28, 31, 45, 128, 171, 218)
"""Together they have every kind of step and every setting that LONG_SEEDS have."""
SHORT_SEEDS: Final = 288
"""Of short lives. `make simulate SEEDS=20000` runs more, `ARGS=--short` of these."""
PER_TEST: Final = 10
SHORT_PER_TEST: Final = 144
OLDEST: Final = (
    "topics-file-unchecked",
    "end-of-a-clean-stop",
    "end-before-the-log-start",
    "lost-in-the-middle-of-a-commit",
    "newest-batch-on-the-device",
)
ROOT: Final = Path(__file__).resolve().parents[2]
SEED: Final = "2"
"""Where clients are told of errors that name files."""


def simulation(*arguments: str, timeout_s: float = 240) -> str:
    """What the command says, in a process whose sets are ordered as everywhere: a seed is the same world here and by hand."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}  # without it the process would import everything twice
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def long_worlds() -> list[tuple[int, ...]]:
    """The seeds of each test."""
    if not is_at_least(LONG):
        return [MERGE_SEEDS[:6], MERGE_SEEDS[6:]]
    return [tuple(range(first, first + PER_TEST)) for first in range(session_seed(), session_seed() + LONG_SEEDS, PER_TEST)]


@pytest.fixture(scope="module")
def said_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[int, ...]], str]:
    """What the command says of these worlds, one after the other in one process. Two tests read it."""

    @functools.cache
    def said(seeds: tuple[int, ...]) -> str:
        return simulation("--only", *map(str, seeds), "--jobs", "1", "--keep", str(tmp_path_factory.mktemp("worlds")))

    return said


@pytest.mark.parametrize("seeds", long_worlds(), ids=lambda seeds: f"from-{seeds[0]}")
def test_every_promise_is_kept(seeds: tuple[int, ...], said_of: Callable[[tuple[int, ...]], str]) -> None:
    assert f"{len(seeds)} worlds, 0 wrong" in said_of(seeds)


@pytest.mark.parametrize("first", seeds(10 * SHORT_SEEDS, merge=SHORT_SEEDS, commit=SHORT_SEEDS)[::SHORT_PER_TEST])
def test_every_promise_is_kept_in_short_lives(first: int, tmp_path: Path) -> None:
    ranges = ["--short", "--first", str(first), "--seeds", str(SHORT_PER_TEST), "--jobs", "1"]
    assert f"{SHORT_PER_TEST} worlds, 0 wrong" in simulation(*ranges, "--keep", str(tmp_path))


@pytest.mark.parametrize("name", OLDEST)
def test_one_of_the_oldest_bugs_is_found(name: str) -> None:
    """`python -m tests.simulation.planted` runs all worlds that are kept."""
    assert wrong_with(name)


def test_worlds_that_are_kept_are_good_without_a_fault() -> None:
    assert not wrong_without()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(WORLDS))
def test_every_planted_fault_of_which_a_world_is_kept_is_found(name: str) -> None:
    assert wrong_with(name)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", OLDEST)
def test_one_of_the_oldest_bugs_is_found_within_2000_seeds(name: str) -> None:
    """The table of docs/testing.md."""
    assert search(name, 2000)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", tuple(LIVES))
def test_every_promise_is_kept_wherever_a_life_ends(name: str, tmp_path: Path) -> None:
    """In front of each change of the disk."""
    number = str(session_seed())
    said = simulation("--enumerate", name, "--first", number, "--seeds", "1", "--keep", str(tmp_path), timeout_s=1200)
    assert ", 0 wrong" in said


def test_a_cut_is_in_front_of_the_operation_that_the_seed_names() -> None:
    def end(before: int) -> Cut:
        history = History()
        verdict = judge(world_of(f"stages 0 cut {before} sure"), history)
        assert verdict.is_good, verdict
        [cut] = [event for event in history.events if isinstance(event, Cut)]
        return cut

    ends = [end(before) for before in (30, 31, 10**6)]
    assert [each.changes for each in ends[:2]] == [30, 31]
    assert [bool(each.operation) for each in ends] == [True, True, False]


def test_short_lives_end_near_every_moment() -> None:
    assert {moment for moments in MOMENTS_OF.values() for moment in moments} == set(MOMENTS)
    whens = {step.args.get("when") for number in range(200) for step in world_of(f"short {number}").steps}
    assert whens >= set(MOMENTS)


def kinds(seed: int) -> set[tuple[str, ...]]:
    """The durability, settings of topics and kinds of steps in a world."""
    script = script_of(str(seed))
    found: set[tuple[str, ...]] = {(script.durability, str(script.directories), str(script.rots))}
    found |= {(step.who.split()[0], step.what) for step in script.steps}
    return found | {(name, *setting) for name, topic in script.topics.items() for setting in topic["config"].items()}


def test_the_worlds_of_the_merge_tier_have_every_kind_of_step_and_every_setting() -> None:
    of_seeds = {seed: kinds(seed) for seed in range(LONG_SEEDS)}
    left, chosen = set().union(*of_seeds.values()), list[int]()
    missing = left - set().union(*(of_seeds[seed] for seed in MERGE_SEEDS))
    while missing and left:
        chosen.append(max(of_seeds, key=lambda seed: len(of_seeds[seed] & left)))
        left -= of_seeds[chosen[-1]]
    assert not missing, f"MERGE_SEEDS = {sorted(chosen)} have all of them"


def test_a_seed_is_one_world(tmp_path: Path, said_of: Callable[[tuple[int, ...]], str]) -> None:
    """Also in another process, and after another world."""
    alone = simulation("--seed", SEED, "--history", str(tmp_path / "history"))
    after_another = said_of(MERGE_SEEDS[:6])
    one = re.search(r"^digest \w+, \d+ events", alone, re.MULTILINE)
    other = re.search(rf"^seed {SEED}: (digest \w+, \d+ events)", after_another, re.MULTILINE)
    assert one is not None
    assert other is not None
    assert one[0] == other[1]
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
