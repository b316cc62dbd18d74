"""Share consumers under rules, in the log of requests, and on several nodes, on the wire. What real clients make of it is in
tests/clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.server.broker import OffsetReset, ShareConfig
from triolog.server.config.broker_config import Address
from triolog.server.fake.faults.rules import rule_of
from triolog.server.fake.kafka.watched import Watch

from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server, produced
from tests.support.kafka_stream import connected
from tests.support.share_members import ACCEPT, GROUP, ShareMember, ranges

EARLIEST: Final = ShareConfig(offset_reset=OffsetReset.EARLIEST)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def kafka(fast_path: Path, watch: Watch) -> AsyncIterator[KafkaServer]:
    """Two partitions with ten records each, which the group begins to read at the first one."""
    async with kafka_server(fast_path, watch=watch) as server:
        await server.broker.topics.create(TOPIC, 2)
        server.broker.shares.config_of = lambda _: EARLIEST
        async with server.connected() as client:
            for partition in range(2):
                await server.broker.shares.initialize(GROUP, server.topic_id(), partition)
                for value in range(10):
                    await produced(client, batch(str(value)), partition=partition)
        watch.requests.clear()
        yield server


def both(kafka: KafkaServer) -> list[dict[str, Any]]:
    partitions = [{"partition_index": number, "acknowledgement_batches": []} for number in range(2)]
    return [{"topic_id": kafka.topic_id(), "partitions": partitions}]


def found(answer: Any) -> dict[int, Any]:
    """Partitions of a ShareFetch's answer by number."""
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}


async def test_what_a_share_consumer_goes_on_with_is_noted_by_name(watch: Watch, member: ShareMember) -> None:
    await member.acquired(max_records=4)
    await member.ask(topics=[])
    await member.acknowledge((0, 0, [ACCEPT]))
    assert [(each.api, dict(each.topics), list(each.groups)) for each in watch.requests] == [
        ("ShareFetch", {TOPIC: [0]}, [GROUP]),
        ("ShareFetch", {TOPIC: [0]}, [GROUP]),
        ("ShareAcknowledge", {TOPIC: [0]}, [GROUP]),
    ]


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_error_of_one_partition_leaves_the_other_alone_and_the_session_goes_on(
    kafka: KafkaServer, watch: Watch, member: ShareMember, is_first: bool
) -> None:
    if not is_first:
        await member.ask(topics=both(kafka), max_records=0)
    told = {"api": "ShareFetch", "topic": TOPIC, "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER", "once": True}
    watch.faults.add(rule_of(told))
    answer = found(await member.ask(topics=both(kafka) if is_first else []))
    assert (answer[0].error_code, ranges(answer[0])) == (0, [(0, 9, 1)])
    assert (answer[1].error_code, list(answer[1].acquired_records)) == (NOT_LEADER, [])
    answer = found(await member.ask(topics=[]))
    assert ranges(answer[1]) == [(0, 9, 1)], "it was not given before, and is still in the session"


async def test_what_is_said_of_a_partition_that_fails_does_not_count(watch: Watch, member: ShareMember) -> None:
    assert await member.acquired() == [(0, 9, 1)]
    told = {"topic": TOPIC, "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    watch.faults.add(rule_of({"api": ["ShareFetch", "ShareAcknowledge"], **told}))
    assert await member.acknowledge((0, 9, [ACCEPT])) is NOT_LEADER
    answer = found(await member.ask([(0, 9, [ACCEPT])]))
    assert (answer[0].error_code, answer[0].acknowledge_error_code) == (NOT_LEADER, NOT_LEADER)
    assert await member.acknowledge((0, 9, [ACCEPT])) is ErrorCode.NONE


async def test_records_of_a_share_consumer_are_corrupted_as_others_are(watch: Watch, member: ShareMember) -> None:
    watch.faults.add(rule_of({"api": "ShareFetch", "corrupt": True, "once": True}))
    answer = found(await member.ask(max_records=1))
    assert ranges(answer[0]) == [(0, 0, 1)]
    assert answer[0].records


async def test_a_member_has_a_session_with_each_node_and_a_new_leader_knows_of_no_locks() -> None:
    async with triolog.open(kafka=Address("127.0.0.1", 0), nodes=2, topics={TOPIC: 1}) as broker:
        core, nodes = broker.core, broker.life.nodes
        core.shares.config_of = lambda _: EARLIEST
        topic_id = core.topics.id_of(TOPIC)
        await core.shares.initialize(GROUP, topic_id, 0)
        await broker.append(TOPIC, [b"value"] * 4)
        await broker.move_leader(TOPIC, 0, 1)
        async with connected(nodes.addresses[1][1:]) as one, connected(nodes.addresses[2][1:]) as two:
            old, new = ShareMember(one, topic_id), ShareMember(two, topic_id)
            assert await old.acquired() == [(0, 3, 1)]
            assert await old.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
            assert found(await new.ask())[0].error_code == NOT_LEADER
            await broker.move_leader(TOPIC, 0, 2)
            assert [each.first_offset for each in broker.share_groups.partitions(GROUP)] == []
            assert found(await old.ask(topics=[]))[0].error_code == NOT_LEADER
            assert await old.acknowledge((2, 3, [ACCEPT])) is NOT_LEADER
            assert await new.acquired() == [(2, 3, 1)]
            await old.leave()
            assert await new.acknowledge((2, 3, [ACCEPT])) is ErrorCode.NONE, "the end of the old session took nothing"
