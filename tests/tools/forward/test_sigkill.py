"""SIGKILL of the server, the forwarder and the upstream in any order, and storms between forwarder and upstream.

A run is a seed: a topic and a link of its own, on a chain that lives on. Records come all the time; something is killed every
now and then and comes back. At the end of the run a reader of committed records finds upstream what the server has: every
record once, in order, byte for byte.

`TRIOLOG_TEST_FORWARD_RUNS=1000` makes so many runs, `TRIOLOG_TEST_FORWARD_SEED=...` repeats one: all choices, though not the
moment.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.counts import counts, session_seed
from tests.support.forwarding_chain import Chain, Run, chain, triolog_upstream

pytestmark = pytest.mark.merge  # a producer, a server, a forwarder and an upstream are processes

RUNS: Final = int(os.environ.get("TRIOLOG_TEST_FORWARD_RUNS") or counts(100))
KILLS: Final = (1, 1, 1, 2)
"""How often something is killed in a run; each time one process, two or three."""
COMPARED: Final = 10
"""Runs on one chain, which are compared together."""
VICTIMS: Final = ("source", "forwarder", "upstream")
STORM_S: Final = 3
SEED: Final = os.environ.get("TRIOLOG_TEST_FORWARD_SEED")
SEEDS: Final = [SEED] if SEED else [str(number + session_seed()) for number in range(RUNS)]


def settle(run: Run) -> None:
    """Everything that was fed is upstream, says the link."""
    run.end_feeding()
    run.chain.proxy.calm()
    run.drain()


def check(made: Chain, runs: list[Run]) -> None:
    upstream = made.in_upstream([run.topic for run in runs])
    for run in runs:
        source = run.in_source()
        assert sum(len(rows) for rows in source.values()) >= run.fed
        for number, rows in source.items():
            found = upstream[run.topic, number]
            assert found == rows, f"seed {run.name}, partition {number}: {len(found)} upstream, {len(rows)} in the source"


def kill_and_restart(run: Run, surely: Sequence[str], perhaps: Sequence[str]) -> None:
    """Something is killed, perhaps together with something else, and comes back in any order."""
    made, rng = run.chain, run.rng
    ways = {
        "source": (made.kill_source, lambda: made.start_source(rng.choice(("os", "fsync")))),
        "forwarder": (run.kill_forwarder, run.start_forwarder),
        "upstream": (made.upstream.kill, made.upstream.start),
    }
    if rng.random() < 0.5:  # or while it begins
        run.wait_forwarded()
    run.wait_fed(rng.randrange(1, 300))
    others = rng.sample(perhaps, min(len(perhaps), rng.choice((1, 1, 1, 2, 3)) - len(surely)))
    chosen = [*surely, *others]
    for name in chosen:
        ways[name][0]()
    for name in rng.sample(chosen, len(chosen)):
        ways[name][1]()


def kill_in_runs(made: Chain, seeds: Sequence[str], surely: Sequence[str] = (), perhaps: Sequence[str] = VICTIMS) -> None:
    """What was upstream at the end of a run is looked at when others have been killed upon it."""
    runs = []
    for seed in seeds:
        with made.run(seed) as run:
            for _ in range(1 if surely else run.rng.choice(KILLS)):
                kill_and_restart(run, surely, perhaps)
            settle(run)
            runs.append(run)
    check(made, runs)


@pytest.mark.parametrize("first", range(0, len(SEEDS), COMPARED))
def test_every_record_is_upstream_once_whoever_is_killed(tmp_path: Path, first: int) -> None:
    with chain(tmp_path, triolog_upstream) as made:
        kill_in_runs(made, SEEDS[first : first + COMPARED])


def weather(made: Chain, seconds: float) -> None:
    with made.run("weather") as run:
        made.proxy.storm(random.Random("weather"), seconds)
        settle(run)
        assert made.proxy.cuts
    check(made, [run])


def test_every_record_is_upstream_once_whatever_the_weather(tmp_path: Path) -> None:
    with chain(tmp_path, triolog_upstream) as made:
        weather(made, STORM_S)
