"""Worlds of two servers: a mirror has what its source has, and a promotion loses no more than the lag and no trace of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.planted_faults.importing import HASH_SEED
from tests.support.counts import by_tier, seeds

from .pairs.script import pair_of
from .script import Script

pytestmark = pytest.mark.merge  # a world takes 3 s

LONG_SEEDS: Final = 60
MERGE_SEEDS: Final = (42,)
ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("first", by_tier(commit=MERGE_SEEDS, merge=MERGE_SEEDS, long=tuple(seeds(LONG_SEEDS))))
def test_a_mirror_and_its_promotion_keep_every_promise(first: int) -> None:
    """`python -m tests.simulation.pairs --first N --seeds 1 --history FILE` repeats one."""
    command = [sys.executable, "-m", "tests.simulation.pairs", "--first", str(first), "--seeds", "1"]
    environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}  # without it the process would import everything twice
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_world_of_the_merge_tier_has_every_step_and_every_end_of_a_source() -> None:
    steps = [step for seed in MERGE_SEEDS for step in pair_of(str(seed)).steps if step.who == "operator"]
    assert {step.what for step in steps} > {"restart", "kill", "power", "flap", "end_mirror", "deafen", "promote"}
    promotions = [step.args for step in steps if step.what == "promote"]
    assert {each["ends"] for each in promotions} == {"power", "calm"}
    assert any(each["after"] for each in promotions), "no power cut during a promotion"
    assert any(each["demote_after"] for each in promotions)


def test_a_script_of_two_servers_is_the_same_behind_its_file() -> None:
    script = pair_of("1")
    assert Script.from_json(script.to_json()) == script
