"""The comparison of docs/benchmarks, small: a flipped bit after SIGKILL, in the same files for Apache Kafka and triolog."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.kafka.damage import BATCH_RECORDS, LAYOUTS, RECORDS, Layout, flips, salvage, write_log
from tests.support.counts import counts
from tests.support.kafka_jars import KafkaCalls

SEED: Final = 4


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.name for layout in LAYOUTS])
def test_a_flipped_bit_costs_triolog_one_batch_and_never_more_than_kafka(
    kafka: KafkaCalls, layout: Layout, tmp_path: Path
) -> None:
    directory = tmp_path / "log-0"
    recovery_point = write_log(directory, layout)
    for kept in flips(directory, recovery_point, counts(50), SEED, kafka, tmp_path):
        assert kept.triolog is not None, kept
        assert kept.repaired is not None, kept
        assert kept.repaired >= RECORDS - BATCH_RECORDS, kept
        assert kept.triolog >= (kept.kafka or 0), kept


def test_without_damage_both_have_everything(kafka: KafkaCalls, tmp_path: Path) -> None:
    directory = tmp_path / "log-0"
    recovery_point = write_log(directory, LAYOUTS[1])
    assert salvage(directory, recovery_point) == RECORDS
    assert kafka.salvage(directory, recovery_point=recovery_point) == RECORDS
