"""What Kafka wrote goes through `triolog export-kafka` into a freshly formatted Kafka, and is answered as it was then."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.offline.export_kafka import STAGED_SUFFIX

from tests.kafka.served import ISOLATIONS, Answers, served
from tests.kafka.written_directory import migrate
from tests.support.golden import GOLDEN
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls

EXPECTED: Final[dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
ENDED_SINCE: Final = TopicPartition("txn", 0)
"""A transaction (offsets 195 to 198) was open when Kafka was asked; a marker aborted it before the clean stop."""
READABLE_SINCE: Final = range(199, 204)
"""Committed records behind it."""
PARTITIONS: Final = [
    TopicPartition(topic, int(number)) for topic, answers in EXPECTED.items() for number in answers["partitions"]
]

# A broker starts three times. The commit tier looks at what an export leaves (test_export_kafka.py), and reads the same
# directory itself (server/storage/test_golden.py).


def as_plain(record: list[Any]) -> tuple[Any, ...]:
    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    offset, _, timestamp, key, value, headers = record
    return offset, timestamp, data(key), data(value), tuple((name, data(text)) for name, text in headers)


@pytest.fixture(scope="module")
def answers(kafka: KafkaCalls, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    folder = tmp_path_factory.mktemp("golden")
    source = Path(shutil.copytree(GOLDEN / "clean", folder / "clean"))
    questions = {
        partition: sorted({asked for level in ISOLATIONS for asked, *_ in _expected(partition)[level]["offsets_for_times"]})
        for partition in PARTITIONS
    }
    with KafkaBroker(folder / "broker", kafka_class_path, kafka) as broker:
        migrate(source, broker)
        broker.start()
        yield served(broker.address, questions)
        broker.stop()


def _expected(partition: TopicPartition) -> dict[str, Any]:
    found: dict[str, Any] = EXPECTED[partition.topic]["partitions"][str(partition.partition)]
    return found


def test_kafka_serves_what_it_served_before(answers: Answers) -> None:
    for partition, isolation in product(PARTITIONS, ISOLATIONS):
        if partition != ENDED_SINCE:
            served, expected = answers[partition, isolation], _expected(partition)
            assert expected["not_in_read_committed"] == []
            assert list(served.records) == [as_plain(record) for record in expected["records"]], partition
            ends = [expected[isolation][name][0] for name in ("earliest", "latest", "max_timestamp")]
            assert [served.earliest, served.latest, served.max_timestamp_offset] == ends, (partition, isolation)


def test_kafka_serves_transactions_as_it_did_before(answers: Answers) -> None:
    """What was hidden behind the open transaction is readable by now, the open transaction itself is aborted."""
    expected = _expected(ENDED_SINCE)
    uncommitted, committed = answers[ENDED_SINCE, "read_uncommitted"], answers[ENDED_SINCE, "read_committed"]
    assert list(uncommitted.records) == [as_plain(record) for record in expected["records"]]
    aborted = set(expected["not_in_read_committed"]) - set(READABLE_SINCE)
    assert list(committed.records) == [as_plain(record) for record in expected["records"] if record[0] not in aborted]
    marker = expected["read_uncommitted"]["latest"][0]
    assert (uncommitted.latest, committed.latest) == (marker + 1, marker + 1)


def test_kafka_finds_times_as_it_did_before(answers: Answers) -> None:
    for partition, isolation in product(PARTITIONS, ISOLATIONS):
        expected = {asked: offset for asked, offset, _ in _expected(partition)[isolation]["offsets_for_times"]}
        found = {asked: answers[partition, isolation].lookups[asked] for asked in expected}
        assert found == expected, (partition, isolation)


def test_kafka_does_not_start_before_an_export_is_whole(kafka: KafkaCalls, kafka_class_path: str, tmp_path: Path) -> None:
    """Staged partitions keep it from serving a part of the data, or from deleting it."""
    with KafkaBroker(tmp_path, kafka_class_path, kafka) as broker:
        broker.format()
        staged = broker.log_directory / f"flights-0{STAGED_SUFFIX}"
        staged.mkdir()
        with pytest.raises(AssertionError, match="is not in the form of topic-partition"):
            broker.start()
        assert staged.is_dir()
