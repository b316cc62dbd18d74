from __future__ import annotations

import re
from typing import Final

import pytest
from triolog.server.embedded import BlockingBroker

from tests.kafka.tools import Tools, lines

TOPIC: Final = "orders"
RECORDS: Final = 60
CONSUMED: Final = "data.consumed.in.nMsg"


def test_the_console_producer_writes_what_is_typed_and_the_consumer_prints_it(tools: Tools, broker: BlockingBroker) -> None:
    broker.create_topic(TOPIC)
    typed = "h:1\tk1\tv1\nh:2\tk2\tv2\n"
    properties = ("parse.key=true", "parse.headers=true")
    tools.typed(
        typed, "console-producer", "--topic", TOPIC, *(word for each in properties for word in ("--reader-property", each))
    )
    assert [(each.key, each.value, each.headers) for each in broker.log(TOPIC).records()] == [
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
