"""kafka-verifiable-producer, -consumer and -share-consumer: each says in JSON what it has done, and that is what happened.

They say it to the end only when their process ends, so each is one.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.kafka.tools import lines
from tests.support.kafka_jars import JVM_OPTIONS

TOPIC: Final = "numbers"
COUNT: Final = 200
VALUES: Final = [str(number) for number in range(COUNT)]
TIMEOUT_S: Final = 120


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
        yield broker


class Told:
    """What a tool has said, by the names of its events."""

    def __init__(self, classes: str, broker: BlockingBroker, name: str, *arguments: object) -> None:
        words = ("--bootstrap-server", broker.kafka, "--topic", TOPIC, "--max-messages", COUNT, *arguments)
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        command = ["java", *JVM_OPTIONS, quiet, "-cp", classes, f"org.apache.kafka.tools.{name}", *map(str, words)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        self.events = [json.loads(line) for line in lines(run.stdout)]

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["name"] == name]

    def values(self, name: str) -> list[str]:
        return [event["value"] for event in self[name]]


def test_what_is_acknowledged_consumed_and_shared_is_all_there_is(kafka_class_path: str, broker: BlockingBroker) -> None:
    produced = Told(kafka_class_path, broker, "VerifiableProducer")
    assert produced.values("producer_send_success") == VALUES
    assert [each["acked"] for each in produced["tool_data"]] == [COUNT]
    assert broker.log(TOPIC).values(0) == [value.encode() for value in VALUES]

    consumed = Told(
        kafka_class_path, broker, "VerifiableConsumer", "--group-id", "readers", "--reset-policy", "earliest", "--verbose"
    )
    assert consumed.values("record_data") == VALUES
    assert sum(each["count"] for each in consumed["records_consumed"]) == COUNT
    commits = consumed["offsets_committed"]
    assert {each["success"] for each in commits} == {True}
    assert commits[-1]["offsets"] == [{"topic": TOPIC, "partition": 0, "offset": COUNT}]

    options = ("--group-id", "sharers", "--offset-reset-strategy", "earliest", "--acknowledgement-mode", "sync")
    shared = Told(kafka_class_path, broker, "VerifiableShareConsumer", *options, "--verbose")
    assert shared.values("record_data") == VALUES
    acknowledged = shared["offsets_acknowledged"]
    assert {each["success"] for each in acknowledged} == {True}
    offsets = [offset for each in acknowledged for partition in each["partitions"] for offset in partition["offsets"]]
    assert sorted(offsets) == list(range(COUNT))
