from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
import trio
import triolog
from confluent_kafka import ShareConsumer
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.kafka.tools import Tools, lines, table
from tests.support.kafka_stream import connected
from tests.support.kafka_wire import ask
from tests.support.streams_members import MEMBER, heartbeat, internal, part, topology

TOPIC: Final = "orders"
GROUP: Final = "baristas"
CHANGELOG: Final = f"{GROUP}-store-changelog"
PATIENCE_S: Final = 60.0
EARLIEST: Final = ("--alter", "--add-config", "share.auto.offset.reset=earliest")


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=[TOPIC]) as broker:
        broker.append(TOPIC, [b"a", b"b", b"c"])
        yield broker


def member(broker: BlockingBroker) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP, "log_level": 0})
    consumer.subscribe([TOPIC])
    return consumer


def test_a_share_group_is_listed_described_and_deleted(tools: Tools, broker: BlockingBroker) -> None:
    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *EARLIEST)
    with closing(member(broker)) as consumer:
        assert len(consumer.poll(PATIENCE_S)) == 3
        consumer.commit_sync(PATIENCE_S)
        assert lines(tools("share-groups", "--list")) == [GROUP]
        [state] = table(tools("share-groups", "--describe", "--group", GROUP, "--state"))
        assert (state["state"], state["#members"]) == ("Stable", "1")
        [row] = table(tools("share-groups", "--describe", "--group", GROUP, "--members"))
        assert (row["group"], row["host"], row["assignment"]) == (GROUP, "/127.0.0.1", f"{TOPIC}:0")
    [row] = table(tools("share-groups", "--describe", "--group", GROUP))
    assert (row["topic"], row["partition"]) == (TOPIC, "0")
    tools("share-groups", "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    with closing(member(broker)) as consumer:
        assert len(consumer.poll(PATIENCE_S)) == 3
    tools("share-groups", "--delete", "--group", GROUP)
    assert lines(tools("share-groups", "--list")) == []


def test_the_console_reads_what_the_group_was_reset_to(tools: Tools, broker: BlockingBroker) -> None:
    def read(count: int) -> list[str]:
        return lines(tools("console-share-consumer", "--topic", TOPIC, "--group", GROUP, "--max-messages", count))

    def reset(*to: str) -> None:
        [row] = table(tools("share-groups", "--reset-offsets", "--group", GROUP, "--topic", TOPIC, *to, "--execute"))
        assert (row["topic"], row["partition"]) == (TOPIC, "0")

    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *EARLIEST)
    assert read(3) == ["a", "b", "c"]
    broker.append(TOPIC, [b"d"])
    assert read(1) == ["d"]
    reset("--to-earliest")
    assert read(4) == ["a", "b", "c", "d"]
    reset("--to-latest")
    broker.append(TOPIC, [b"e"])
    assert read(1) == ["e"]


def test_what_the_console_releases_comes_again_and_what_it_rejects_is_done(tools: Tools, broker: BlockingBroker) -> None:
    tools("configs", "--entity-type", "groups", "--entity-name", GROUP, *EARLIEST)
    options = ("--topic", TOPIC, "--group", GROUP, "--max-messages", 3)
    assert lines(tools("console-share-consumer", *options, "--release")) == ["a", "b", "c"]
    [row] = table(tools("share-groups", "--describe", "--group", GROUP))
    assert row["lag"] == "3"
    assert lines(tools("console-share-consumer", *options, "--reject")) == ["a", "b", "c"]
    [row] = table(tools("share-groups", "--describe", "--group", GROUP))
    assert row["lag"] == "0"


def answers(broker: BlockingBroker, *requests: tuple[Any, int]) -> list[Any]:
    """What is answered to these requests of these versions, one after the other."""

    async def send() -> list[Any]:
        async with connected(broker.kafka) as client:
            return [await client.call(body, version) for body, version in requests]

    return trio.run(send)


def beat(broker: BlockingBroker, *epochs: int) -> list[Any]:
    """Heartbeats of a member with these epochs."""
    return answers(broker, *((said(epoch), APIS[ApiKey.STREAMS_GROUP_HEARTBEAT].highest) for epoch in epochs))


def said(epoch: int) -> Any:
    counting = topology(part("0", source_topics=[TOPIC], state_changelog_topics=[internal(CHANGELOG)]))
    return heartbeat(epoch, group_id=GROUP, **({} if epoch else {"topology": counting}))


def test_a_streams_group_is_listed_described_and_deleted(tools: Tools, broker: BlockingBroker) -> None:
    assert [answer.error_code for answer in beat(broker, 0, 2)] == [0, 0]
    assert lines(tools("streams-groups", "--list")) == [GROUP]
    [listed] = table(tools("streams-groups", "--list", "--state"))
    assert (listed["group"], listed["state"]) == (GROUP, "Stable")
    [state] = table(tools("streams-groups", "--describe", "--group", GROUP, "--state"))
    assert (state["state"], state["#members"]) == ("Stable", "1")
    told = tools("streams-groups", "--describe", "--group", GROUP, "--members")
    assert "member" in told
    assert "0:[0];" in told
    [row] = table(tools("streams-groups", "--describe", "--group", GROUP))
    assert (row["topic"], row["partition"]) == (TOPIC, "0")
    committed = {"partition_index": 0, "committed_offset": 2, "committed_metadata": None}
    commit = ask(
        "OffsetCommit",
        group_id=GROUP,
        generation_id_or_member_epoch=3,
        member_id=MEMBER,
        topics=[{"name": TOPIC, "partitions": [committed]}],
    )
    assert [answer.topics[0].partitions[0].error_code for answer in answers(broker, (commit, 9))] == [0]
    assert [answer.error_code for answer in beat(broker, -1)] == [0]
    told = tools("streams-groups", "--reset-offsets", "--group", GROUP, "--to-earliest", "--all-input-topics", "--execute")
    assert [(row["topic"], row["new-offset"]) for row in table(told)] == [(TOPIC, "0")]
    tools("streams-groups", "--delete", "--group", GROUP)
    assert lines(tools("streams-groups", "--list")) == []
