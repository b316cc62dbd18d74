"""The same requests to triolog and to Apache Kafka 4.3.1: their answers are equal, field by field.

Scripts are drawn by a seed; see `differential` for what they ask, what is not compared and which differences are meant.
`TRIOLOG_TEST_DIFFERENTIAL_SEEDS=20` runs as many scripts of 2,000 requests, from `TRIOLOG_TEST_DIFFERENTIAL_SEED` on.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.kafka.differential.sides import both, both_sharing
from tests.kafka.differential.lookups import Lookups
from tests.kafka.differential.script import QUOTAS, WEIGHTS, Difference, Script
from tests.kafka.differential.sharing.script import SharingScript
from tests.support.counts import counts, session_seed
from tests.support.kafka_jars import KafkaCalls

ASKED_FOR: Final = int(os.environ.get("TRIOLOG_TEST_DIFFERENTIAL_SEEDS", 0))
FIRST_SEED: Final = int(os.environ.get("TRIOLOG_TEST_DIFFERENTIAL_SEED") or 7 + session_seed())
SCRIPTS: Final = ASKED_FOR or (2 if counts(10) == 10 else 1)
REQUESTS: Final = 2000 if ASKED_FOR else counts(2000)
BATCHES: Final = max(60, counts(240))
LOOKUPS: Final = counts(10_000)


def fail(difference: Difference) -> NoReturn:
    again = f"TRIOLOG_TEST_DIFFERENTIAL_SEED={difference.seed} TRIOLOG_TEST_DIFFERENTIAL_SEEDS=1 repeats it"
    pytest.fail(f"{difference}\n{again}", pytrace=False)


@pytest.mark.timeout(300 + 120 * SCRIPTS)
def test_both_brokers_answer_alike(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    """Scripts, each of which leaves the brokers as empty as it has found them; a script about client quotas,
    which stay; and lookups by time in random logs."""
    with both(tmp_path, kafka_class_path, kafka) as sides:
        seeds = range(FIRST_SEED, FIRST_SEED + SCRIPTS)
        for seed, weights in [*((seed, WEIGHTS) for seed in seeds), (FIRST_SEED, QUOTAS)]:
            script = Script.of(seed, *sides, weights)
            for difference in script.run(REQUESTS):
                fail(difference)
            if weights is WEIGHTS:
                script.clear()
        lookups = Lookups.of(FIRST_SEED, *sides)
        lookups.write(BATCHES)
        assert list(lookups.ask(LOOKUPS)) == []


@pytest.mark.timeout(600 * max(ASKED_FOR, 1))
def test_both_brokers_share_alike(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    """Share groups: several members, real locks that end, acknowledgements right and wrong."""
    for seed in range(FIRST_SEED, FIRST_SEED + max(ASKED_FOR, 1)):
        both_sides = both_sharing(tmp_path / str(seed), kafka_class_path, kafka)
        with both_sides as sides, closing(SharingScript.of(seed, *sides)) as script:
            for difference in script.run(REQUESTS):
                fail(difference)
