"""Kafka's own clients and tools on a log that recovery took a damaged batch from, under both policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import triolog
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient

from tests.kafka.tools import Tools, lines
from tests.support.damaged_batches import damage_batch

TOPIC: Final = "orders"
THERE: Final = ["v0", "v1", "v2", "v6", "v7", "v8"]
BEFORE: Final = THERE[:3]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Offsets 0 to 8 in three batches, of which recovery took the middle one."""
    with triolog.blocking.open(tmp_path, for_tests=True) as running:
        running.create_topic(TOPIC)
        for first in (0, 3, 6):
            running.append(TOPIC, [b"v%d" % number for number in range(first, first + 3)])
    assert damage_batch(tmp_path, f"{TOPIC}-0", 1) == (3, 6)
    with triolog.blocking.open(
        tmp_path, for_tests=True, kafka=Address("127.0.0.1", 0), lenient=False, native="127.0.0.1:0"
    ) as running:
        yield running


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_consumer_of_java_goes_on_behind_the_range(tools: Tools, isolation: str) -> None:
    how = ("console-consumer", "--topic", TOPIC, "--isolation-level", isolation, "--max-messages", len(THERE))
    assert lines(tools(*how, "--from-beginning")) == THERE
    assert lines(tools(*how[:-1], 3, "--partition", 0, "--offset", 4)) == THERE[3:]


def test_it_throws_under_refuse_until_the_range_is_accepted(tools: Tools, broker: BlockingBroker) -> None:
    entity = ("--entity-type", "topics", "--entity-name", TOPIC)
    tools("configs", "--alter", *entity, "--add-config", "gap.policy=refuse")
    assert "gap.policy=refuse" in tools("configs", "--describe", *entity)
    with pytest.raises(AssertionError, match=r"gap\.policy"):
        tools("configs", "--alter", *entity, "--add-config", "gap.policy=perhaps")
    read = ("console-consumer", "--topic", TOPIC, "--from-beginning")
    stands = tools.call(*read, "--timeout-ms", 60_000)
    assert lines(stands.stdout)[:3] == BEFORE
    assert "corrupt message when fetching offset 3" in stands.stdout + stands.stderr
    with BlockingClient(broker.native) as client:
        assert BlockingAdmin(client).accept_gap(TopicPartition(TOPIC, 0), 3) == 6
    assert lines(tools(*read, "--max-messages", len(THERE))) == THERE


def test_offsets_and_groups_are_told_as_behind_compaction(tools: Tools) -> None:
    for time, offset in (("-2", 0), ("-1", 9)):
        assert lines(tools("get-offsets", "--topic", TOPIC, "--time", time)) == [f"{TOPIC}:0:{offset}"]
    tools("console-consumer", "--topic", TOPIC, "--group", "g", "--from-beginning", "--max-messages", len(THERE))
    told = tools("consumer-groups", "--describe", "--group", "g")
    assert any(line.split()[:6] == ["g", TOPIC, "0", "9", "9", "0"] for line in lines(told)), told
