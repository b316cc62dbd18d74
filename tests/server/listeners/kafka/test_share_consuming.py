"""Share groups from end to end over the wire: members join, are given records, leave or fall silent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode

from tests.support.brokers import until
from tests.support.kafka_admin import SET, alter_incrementally, error_names
from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.share_members import ACCEPT, GROUP, RELEASE, ShareMember

GROUP_TYPE = 32


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A topic with ten records, which groups begin to read at the first one."""
    async with kafka_server(fast_path, lenient=True) as server:
        await server.broker.topics.create(TOPIC)
        async with server.connected() as client:
            await configure(client, **{"share.auto.offset.reset": "earliest"})
            await produced(client, batch(*map(str, range(10))))
        yield server


async def configure(client: KafkaStream, **configs: str) -> None:
    request = alter_incrementally((GROUP_TYPE, GROUP, tuple((name, SET, value) for name, value in configs.items())))
    assert error_names((await client.call(request, 1)).responses) == ["NONE"]


async def heartbeat(client: KafkaStream, member_id: str, epoch: int, *topics: str) -> Any:
    said = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch}
    answer = await client.call(ask("ShareGroupHeartbeat", **said, subscribed_topic_names=list(topics) or None), 1)
    assert answer.error_code == 0, answer
    return answer


async def joined(kafka: KafkaServer, client: KafkaStream, member_id: str = "member") -> ShareMember:
    """A member that has joined, and was given the partition."""
    answer = await heartbeat(client, member_id, 0, TOPIC)
    if not answer.assignment.topic_partitions:
        answer = await heartbeat(client, member_id, answer.member_epoch)
    [topic] = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (kafka.topic_id(), [0])
    return ShareMember(client, kafka.topic_id(), member_id)


async def offset(client: KafkaStream) -> tuple[int, int]:
    """(start offset, lag) of the group."""
    asked = ask("DescribeShareGroupOffsets", groups=[{"group_id": GROUP, "topics": None}])
    (group,) = (await client.call(asked, 1)).groups
    [partition] = group.topics[0].partitions
    return partition.start_offset, partition.lag


async def test_who_joins_is_given_records_and_the_offset_follows(kafka: KafkaServer, client: KafkaStream) -> None:
    member = await joined(kafka, client)
    assert await offset(client) == (-1, -1)
    assert await member.acquired() == [(0, 9, 1)]
    assert await member.acknowledge((0, 3, [ACCEPT]), (6, 6, [ACCEPT])) is ErrorCode.NONE
    assert await offset(client) == (0, 5), "the start is stored when it moves again, the lag counts what is done"


async def test_a_member_that_has_left_may_acknowledge_until_its_session_ends(kafka: KafkaServer, client: KafkaStream) -> None:
    """librdkafka leaves on the connection to the coordinator before its last acknowledgements, which are on another one."""
    member = await joined(kafka, client)
    await member.acquired()
    async with kafka.connected() as second:
        other = await joined(kafka, second, "other")
        await heartbeat(client, "member", -1)
        assert await other.acquired() == [], "they are locked"
        assert await member.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NONE
        await member.leave()
        assert await other.acquired() == [(4, 9, 2)]


async def test_a_member_that_falls_silent_keeps_its_records_until_its_connection_ends(kafka: KafkaServer) -> None:
    async with kafka.connected() as client:
        await configure(client, **{"share.record.lock.duration.ms": "3600000"})
        member = await joined(kafka, client)
        await member.acquired()
        await configure(client, **{"share.session.timeout.ms": "2", "share.heartbeat.interval.ms": "1"})
        await heartbeat(client, "member", kafka.broker.groups.share.describe(GROUP).members[0].member_epoch)
        await until(lambda: not kafka.broker.groups.share.describe(GROUP).members)
        assert kafka.broker.shares.in_flight(GROUP, kafka.topic_id(), 0) == (0, 10, 10, 0)
    await until(lambda: kafka.broker.shares.in_flight(GROUP, kafka.topic_id(), 0) is None)
    assert len(kafka.broker.shares.sessions_at(kafka.broker.node_id)) == 0


async def test_a_group_behaves_as_it_is_configured(kafka: KafkaServer, client: KafkaStream) -> None:
    member = await joined(kafka, client)
    await configure(client, **{"share.record.lock.duration.ms": "7000", "share.delivery.count.limit": "1"})
    answer = await member.ask()
    assert answer.acquisition_lock_timeout_ms == 7_000
    assert await member.acquired([(0, 9, [RELEASE])]) == [], "delivered once is enough"
    await configure(client, **{"share.partition.max.record.locks": "3"})
    await produced(client, batch("a"))
    await produced(client, batch(*"bcdef"))
    assert await member.acquired(share_acquire_mode=1) == [(10, 12, 1)]


async def test_an_altered_group_reads_from_there(kafka: KafkaServer, client: KafkaStream) -> None:
    member = await joined(kafka, client)
    await member.acquired()
    await heartbeat(client, "member", -1)
    topic = {"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 7}]}
    answer = await client.call(ask("AlterShareGroupOffsets", group_id=GROUP, topics=[topic]), 0)
    assert answer.responses[0].partitions[0].error_code == 0
    member = await joined(kafka, client)
    assert await member.acquired() == [(7, 9, 1)]
