"""SIGKILL of the server, the forwarder and the upstream in any order, and storms between forwarder and upstream.

A run is a seed. Records come all the time; something is killed every now and then and comes back, or the weather changes. At
the end a reader of committed records finds upstream what the server has: every record once, in order, byte for byte.

`TRIOLOG_TEST_FORWARD_RUNS=100` makes so many runs, `TRIOLOG_TEST_FORWARD_SEED=...` repeats one: all choices, though not the
moment.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Final

import pytest

from tests.support.forwarding_chain import Chain, chain, triolog_upstream

RUNS: Final = int(os.environ.get("TRIOLOG_TEST_FORWARD_RUNS") or 1)
KILLS: Final = 5
STORM_S: Final = 3
"""`tests.kafka.test_forward` has a minute of weather."""
SEED: Final = os.environ.get("TRIOLOG_TEST_FORWARD_SEED")
SEEDS: Final = [SEED] if SEED else [f"forward-{number}" for number in range(RUNS)]


def check(made: Chain) -> None:
    made.end_feeding()
    made.proxy.calm()
    made.drain()
    source, upstream = made.in_source(), made.in_upstream()
    assert sum(len(rows) for rows in source.values()) >= made.fed
    for partition, rows in source.items():
        assert upstream[partition] == rows, (
            f"partition {partition}: {len(upstream[partition])} upstream, {len(rows)} in the source"
        )


def kill_and_restart(made: Chain, kills: int) -> None:
    """Something is killed, perhaps together with something else, and comes back in any order."""
    ways = {
        "source": (made.kill_source, made.start_source),
        "forwarder": (made.kill_forwarder, made.start_forwarder),
        "upstream": (made.upstream.kill, made.upstream.start),
    }
    done = 0
    while done < kills:
        made.wait_fed(made.rng.randrange(20, 1500))
        victims = made.rng.sample(sorted(ways), made.rng.choice((1, 1, 1, 2, 3)))
        for name in victims:
            ways[name][0]()
        for name in made.rng.sample(victims, len(victims)):
            ways[name][1]()
        done += len(victims)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_upstream_once_whoever_is_killed(tmp_path: Path, seed: str) -> None:
    with chain(tmp_path, random.Random(seed), triolog_upstream) as made:
        kill_and_restart(made, KILLS)
        check(made)


def test_every_record_is_upstream_once_whatever_the_weather(tmp_path: Path) -> None:
    with chain(tmp_path, random.Random("weather"), triolog_upstream) as made:
        made.proxy.storm(made.rng, STORM_S)
        check(made)
        assert made.proxy.cuts
