"""A directory that Apache Kafka 4.3.1 wrote is served as that broker served it: transactions of version 2, offsets by topic id,
and a share group that goes on where it was. See `tests/kafka/write_golden.py`."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import triolog
from triolog.server.config.broker_config import Address

from tests.support import golden_questions
from tests.support.golden import KAFKA_4_3
from tests.support.kafka_wire import KafkaWire

EXPECTED: Final[dict[str, Any]] = json.loads((KAFKA_4_3 / "expected.json").read_text())


def test_everything_is_answered_as_kafka_answered_it(tmp_path: Path) -> None:
    """When it had just been written: nothing has expired."""
    copy = Path(shutil.copytree(KAFKA_4_3 / "clean", tmp_path / "clean", copy_function=shutil.copyfile))
    for path in (copy, *copy.iterdir()):
        if path.is_dir():
            path.chmod(0o755)
    with (
        triolog.blocking.open(
            copy,
            kafka=Address("127.0.0.1", 0),
            for_tests=True,
            lenient=False,
            config={"retention.ms": "-1"},
            now_ms=lambda: EXPECTED["written_ms"],
        ) as broker,
        closing(KafkaWire.connect(broker.kafka)) as wire,
    ):
        answers = golden_questions.answers(wire)
    for question, expected in EXPECTED["answers"].items():
        assert answers[question] == expected, question
