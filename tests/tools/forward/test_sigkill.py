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
from pathlib import Path
from typing import Final

import pytest

from tests.support.counts import counts
from tests.support.forwarding_chain import Chain, Run, chain, triolog_upstream

RUNS: Final = int(os.environ.get("TRIOLOG_TEST_FORWARD_RUNS") or counts(100))
MOST_KILLS: Final = 3
"""Of one run, of which each may hit several."""
STORM_S: Final = 3
SEED: Final = os.environ.get("TRIOLOG_TEST_FORWARD_SEED")
SEEDS: Final = [SEED] if SEED else [str(number) for number in range(RUNS)]


def check(run: Run) -> None:
    run.end_feeding()
    run.chain.proxy.calm()
    run.drain()
    source, upstream = run.in_source(), run.in_upstream()
    assert sum(len(rows) for rows in source.values()) >= run.fed
    for partition, rows in source.items():
        assert upstream[partition] == rows, (
            f"partition {partition}: {len(upstream[partition])} upstream, {len(rows)} in the source"
        )


def kill_and_restart(run: Run, victims: tuple[str, ...] = ("source", "forwarder", "upstream")) -> None:
    """Something is killed, perhaps together with something else, and comes back in any order."""
    made, rng = run.chain, run.rng
    ways = {
        "source": (made.kill_source, lambda: made.start_source(rng.choice(("os", "fsync")))),
        "forwarder": (run.kill_forwarder, run.start_forwarder),
        "upstream": (made.upstream.kill, made.upstream.start),
    }
    if rng.random() < 0.7:  # or while it begins
        run.wait_forwarded()
    run.wait_fed(rng.randrange(1, 500))
    chosen = rng.sample(victims, min(len(victims), rng.choice((1, 1, 1, 2, 3))))
    for name in chosen:
        ways[name][0]()
    for name in rng.sample(chosen, len(chosen)):
        ways[name][1]()


@pytest.mark.timeout(900)
def test_every_record_is_upstream_once_whoever_is_killed(tmp_path: Path) -> None:
    with chain(tmp_path, triolog_upstream) as made:
        for seed in SEEDS:
            with made.run(seed) as run:
                for _ in range(run.rng.randrange(1, MOST_KILLS + 1)):
                    kill_and_restart(run)
                check(run)


def weather(made: Chain, seconds: float) -> None:
    with made.run("weather") as run:
        made.proxy.storm(random.Random("weather"), seconds)
        check(run)
        assert made.proxy.cuts


def test_every_record_is_upstream_once_whatever_the_weather(tmp_path: Path) -> None:
    with chain(tmp_path, triolog_upstream) as made:
        weather(made, STORM_S)
