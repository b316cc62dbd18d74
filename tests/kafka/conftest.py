"""Apache Kafka's classes for the tests of this folder, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka_jars import KafkaCalls, KafkaUnavailableError, class_path, unavailable


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    try:
        return class_path()
    except KafkaUnavailableError as exc:
        unavailable(str(exc))


@pytest.fixture(scope="session")
def kafka(kafka_class_path: str) -> Iterator[KafkaCalls]:
    with KafkaCalls.start(kafka_class_path) as calls:
        yield calls
