"""The same requests about share groups to triolog and to Apache Kafka 4.3.1: their answers are equal, field by field.

Several members, real locks that end, acknowledgements right and wrong: `differential.sharing` has what is asked.
`TRIOLOG_TEST_DIFFERENTIAL_SEEDS=20` runs as many scripts of 2,000 requests, from `TRIOLOG_TEST_DIFFERENTIAL_SEED` on.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.kafka.differential.brokers import both_sharing
from tests.kafka.differential.sharing.script import SharingScript
from tests.kafka.test_differential import ASKED_FOR, REQUESTS
from tests.support.kafka_jars import KafkaCalls

SCRIPTS = ASKED_FOR or 1
FIRST_SEED = int(os.environ.get("TRIOLOG_TEST_DIFFERENTIAL_SEED", 7))


@pytest.mark.timeout(600 * SCRIPTS)
def test_both_brokers_share_alike(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SCRIPTS):
        folder = tmp_path / str(seed)
        with both_sharing(folder, kafka_class_path, kafka) as sides, closing(SharingScript.of(seed, *sides)) as script:
            for difference in script.run(REQUESTS):
                again = f"TRIOLOG_TEST_DIFFERENTIAL_SEED={seed} TRIOLOG_TEST_DIFFERENTIAL_SEEDS=1 repeats it"
                pytest.fail(f"{difference}\n{again}", pytrace=False)
