from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Final

import pytest
from triolog.server.embedded import BlockingBroker

from tests.kafka.tools import Tools, lines
from tests.support.kafka_jars import JVM_OPTIONS

TOPIC: Final = "orders"
RECORDS: Final = 60
COUNT: Final = 200
VALUES: Final = [str(number) for number in range(COUNT)]
TIMEOUT_S: Final = 120
CONSUMED: Final = "data.consumed.in.nMsg"


def test_the_console_producer_writes_what_is_typed_and_the_consumer_prints_it(tools: Tools, broker: BlockingBroker) -> None:
    broker.create_topic(TOPIC)
    typed = "h:1\tk1\tv1\nh:2\tk2\tv2\n"
    properties = ("parse.key=true", "parse.headers=true")
    tools.typed(
        typed, "console-producer", "--topic", TOPIC, *(word for each in properties for word in ("--reader-property", each))
    )
    assert [(each.key, each.value, each.headers) for each in broker.log(TOPIC).fetch()] == [
        (b"k1", b"v1", (("h", b"1"),)),
        (b"k2", b"v2", (("h", b"2"),)),
    ]
    shown = [word for name in ("offset", "key", "headers") for word in ("--formatter-property", f"print.{name}=true")]
    told = tools("console-consumer", "--topic", TOPIC, "--from-beginning", "--max-messages", 2, *shown)
    assert lines(told) == ["Offset:0\th:1\tk1\tv1", "Offset:1\th:2\tk2\tv2"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_console_consumer_of_a_group_goes_on_where_it_was(tools: Tools, broker: BlockingBroker, protocol: str) -> None:
    broker.create_topic(TOPIC)
    broker.append(TOPIC, [b"a", b"b", b"c"])
    for expected in (["a"], ["b", "c"]):
        told = tools(
            *("console-consumer", "--topic", TOPIC, "--group", "shell", "--from-beginning"),
            *("--command-property", f"group.protocol={protocol}", "--max-messages", len(expected)),
        )
        assert lines(told) == expected
    assert list(broker.groups.committed("shell").values()) == [3]


@pytest.mark.parametrize("transactional", [False, True])
def test_the_performance_tests_count_what_is_there(tools: Tools, broker: BlockingBroker, transactional: bool) -> None:
    broker.create_topic(TOPIC)
    transaction = ("--transactional-id", "perf", "--transaction-duration-ms", 1) if transactional else ()
    told = tools.plain(
        *("producer-perf-test", "--topic", TOPIC, "--num-records", RECORDS, "--record-size", 100, "--throughput", 2000),
        *("--producer-props", f"bootstrap.servers={tools.address}", *transaction),
    )
    [sent] = re.findall(r"^(\d+) records sent, ", told, re.MULTILINE)
    stored = broker.log(TOPIC).values()
    assert (int(sent), len(stored)) == (RECORDS, RECORDS)
    assert {len(value or b"") for value in stored} == {100}

    headings, row = lines(tools("consumer-perf-test", "--topic", TOPIC, "--messages", RECORDS))[-2:]
    consumed = dict(zip(headings.split(", "), row.split(", "), strict=True))
    assert int(consumed[CONSUMED]) == RECORDS


class Told:
    """What kafka-verifiable-producer, -consumer or -share-consumer has said in JSON, by the names of its events.

    They say it to the end only when their process ends, so each is one."""

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
    broker.create_topic(TOPIC)
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
