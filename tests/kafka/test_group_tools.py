from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import triolog
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.kafka.tools import Row, Tools, lines, table

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 4
RECORDS: Final = 10
"""In each partition, a minute between two of them."""
PATIENCE_S: Final = 60.0
LAST_MS: Final = int(time.time()) * 1000 - 3_600_000
FIRST_MS: Final = LAST_MS - (RECORDS - 1) * 60_000
PROTOCOLS: Final = ("classic", "consumer")


@attrs.define(eq=False)
class Members:
    """Two members of one group that share the partitions and have committed offset 5 + partition of each."""

    consumers: dict[str, Consumer]
    """By client id."""

    @classmethod
    def joined(cls, broker: BlockingBroker, protocol: str) -> Members:
        more = {"group.protocol": protocol, **({"heartbeat.interval.ms": 100} if protocol == "classic" else {})}
        members = cls({name: _consumer(broker, name, more) for name in ("one", "two")})
        for each in members.consumers.values():
            each.subscribe([TOPIC])
        deadline = time.monotonic() + PATIENCE_S
        while [len(owned) for owned in members.assigned().values()] != [2, 2]:
            assert time.monotonic() < deadline, members.assigned()
            for each in members.consumers.values():
                each.poll(0.02)
        for name, owned in members.assigned().items():
            members.consumers[name].commit(
                offsets=[Position(TOPIC, number, 5 + number) for number in owned], asynchronous=False
            )
        return members

    def assigned(self) -> dict[str, set[int]]:
        return {name: {each.partition for each in consumer.assignment()} for name, consumer in self.consumers.items()}

    def leave(self) -> None:
        while self.consumers:
            self.consumers.popitem()[1].close()


def _consumer(broker: BlockingBroker, client_id: str, more: dict[str, Any]) -> Consumer:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": GROUP,
        "client.id": client_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    return Consumer({**settings, **more})


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    """Lenient: members join without delay."""
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics={TOPIC: PARTITIONS}) as broker:
        for number in range(PARTITIONS):
            broker.append(TOPIC, [(FIRST_MS + each * 60_000, None, b"v", ()) for each in range(RECORDS)], partition=number)
        yield broker


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def members(broker: BlockingBroker, protocol: str) -> Iterator[Members]:
    members = Members.joined(broker, protocol)
    yield members
    members.leave()


def test_a_group_with_members_is_described(tools: Tools, broker: BlockingBroker, members: Members, protocol: str) -> None:
    assert lines(tools("consumer-groups", "--list")) == [GROUP]
    listed = table(tools("consumer-groups", "--list", "--state", "--type"))
    assert listed == [{"group": GROUP, "type": protocol.capitalize(), "state": "Stable"}]
    assert table(tools("consumer-groups", "--list", "--state", "Empty")) == []
    owner = {number: name for name, owned in members.assigned().items() for number in owned}
    described = {int(row["partition"]): row for row in table(tools("consumer-groups", "--describe", "--group", GROUP))}
    assert sorted(described) == list(range(PARTITIONS))
    for number, row in described.items():
        assert (row["group"], row["topic"], row["client-id"], row["host"]) == (GROUP, TOPIC, owner[number], "/127.0.0.1")
        assert (row["current-offset"], row["log-end-offset"], row["lag"]) == (f"{5 + number}", "10", f"{5 - number}")
    ids = {row["client-id"]: row["consumer-id"] for row in described.values()}
    assert ids == {name: consumer.memberid() for name, consumer in members.consumers.items()}

    [state] = table(tools("consumer-groups", "--describe", "--group", GROUP, "--state"))
    assert state["coordinator(id)"] == f"{tools.address}(1)"
    assert state["assignment-strategy"] == {"classic": "range", "consumer": "uniform"}[protocol]
    assert (state["state"], state["#members"]) == ("Stable", "2")
    _check_members(tools, members, ids)


def _check_members(tools: Tools, members: Members, ids: dict[str, str]) -> None:
    rows = table(tools("consumer-groups", "--describe", "--group", GROUP, "--members", "--verbose"))
    assert {row["client-id"]: row["consumer-id"] for row in rows} == ids
    for row in rows:
        owned = ",".join(map(str, sorted(members.assigned()[row["client-id"]])))
        assert (row["#partitions"], row["current-assignment"]) == ("2", f"{TOPIC}:{owned}")
        assert row.get("target-assignment", "-") in ("-", f"{TOPIC}:{owned}")


def of_all(offset: int) -> list[int]:
    return [offset] * PARTITIONS


def test_offsets_are_reset(tools: Tools, broker: BlockingBroker, tmp_path: Path) -> None:
    broker.groups.commit(GROUP, {TopicPartition(TOPIC, number): 5 for number in range(PARTITIONS)})
    at = datetime.fromtimestamp((FIRST_MS + 3 * 60_000 - 1) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.999")
    for option, expected in [
        (("--to-current",), 5),
        (("--shift-by", "-2"), 3),
        (("--shift-by", "100"), 10),
        (("--to-earliest",), 0),
        (("--shift-by", "-1"), 0),
        (("--to-datetime", at), 3),
        (("--to-latest",), 10),
        (("--to-offset", 7), 7),
        (("--by-duration", "PT30M"), 10),
        (("--by-duration", "PT9H"), 0),
    ]:
        told = _reset(tools, *option, "--execute")
        assert offsets(told, "new-offset") == of_all(expected), option
        assert list(broker.groups.committed(GROUP).values()) == of_all(expected), option

    assert offsets(_reset(tools, "--to-latest", "--dry-run"), "new-offset") == of_all(10)
    plan = tmp_path / "plan.csv"
    plan.write_text(tools("consumer-groups", *RESET, f"{TOPIC}:1,3", "--to-offset", 4, "--dry-run", "--export"))
    assert sorted(lines(plan.read_text())) == [f"{TOPIC},1,4", f"{TOPIC},3,4"]
    assert list(broker.groups.committed(GROUP).values()) == of_all(0)
    tools("consumer-groups", *RESET[:-1], "--from-file", plan, "--execute")
    assert broker.groups.committed(GROUP) == {
        TopicPartition(TOPIC, number): (0, 4, 0, 4)[number] for number in range(PARTITIONS)
    }


RESET: Final = ("--group", GROUP, "--reset-offsets", "--topic")


def _reset(tools: Tools, *arguments: object) -> list[Row]:
    return table(tools("consumer-groups", *RESET, TOPIC, *arguments))


def offsets(rows: list[Row], heading: str) -> list[int]:
    return [int(row[heading]) for row in sorted(rows, key=lambda row: int(row["partition"]))]


def test_offsets_and_groups_are_deleted(tools: Tools, broker: BlockingBroker) -> None:
    for group in (GROUP, "other"):
        broker.groups.commit(group, {TopicPartition(TOPIC, number): 5 for number in range(PARTITIONS)})
    told = table(tools("consumer-groups", "--delete-offsets", "--group", GROUP, "--topic", f"{TOPIC}:1,2"), "TOPIC")
    assert [(row["partition"], row["status"]) for row in told] == [("1", "Successful"), ("2", "Successful")]
    assert [each.partition for each in broker.groups.committed(GROUP)] == [0, 3]
    described = table(tools("consumer-groups", "--describe", "--group", GROUP, "--offsets"))
    assert offsets(described, "current-offset") == offsets(described, "lag") == [5, 5]
    assert {row["consumer-id"] for row in described} == {"-"}

    assert f"('{GROUP}') was successful" in tools("consumer-groups", "--delete", "--group", GROUP)
    assert lines(tools("consumer-groups", "--list")) == ["other"]
    gone = tools.call("consumer-groups", "--delete", "--group", GROUP)
    assert "GroupIdNotFoundException" in gone.stdout + gone.stderr
    gone = tools.call("consumer-groups", "--describe", "--group", GROUP)
    assert f"Group {GROUP} not found" in gone.stdout + gone.stderr
    assert "('other') was successful" in tools("consumer-groups", "--delete", "--all-groups")
    assert lines(tools("consumer-groups", "--list")) == []
