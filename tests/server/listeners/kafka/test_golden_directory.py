"""A directory that Apache Kafka 4.3.1 wrote is served as that broker served it: transactions of version 2, offsets by topic id,
and a share group that goes on where it was. See `tests/kafka/write_golden.py`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.server.settings.broker_config import Address

from tests.support import golden_questions
from tests.support.golden import KAFKA_4_3
from tests.support.kafka_wire import KafkaWire

EXPECTED: Final[dict[str, Any]] = json.loads((KAFKA_4_3 / "expected.json").read_text())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(KAFKA_4_3 / "clean", tmp_path / "clean", copy_function=shutil.copyfile))
    for path in (copy, *copy.iterdir()):
        if path.is_dir():
            path.chmod(0o755)
    return copy


@pytest.fixture
def answers(directory: Path) -> Iterator[dict[str, Any]]:
    """When it had just been written: nothing has expired."""
    listening = Address("127.0.0.1", 0)
    with BlockingBroker(
        directory,
        native=None,
        kafka=listening,
        for_tests=True,
        lenient=False,
        config={"retention.ms": "-1"},
        now_ms=lambda: EXPECTED["written_ms"],
    ) as broker:
        with closing(KafkaWire.connect(broker.kafka)) as wire:
            yield golden_questions.ask(wire)


def test_everything_is_answered_as_kafka_answered_it(answers: dict[str, Any]) -> None:
    for question, expected in EXPECTED["answers"].items():
        assert answers[question] == expected, question
