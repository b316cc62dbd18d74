"""ShareAcknowledge over the wire: several partitions at once, the end of a session, renewals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages import share_fetch
from triolog.server.broker import OffsetReset, ShareConfig

from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server, produced
from tests.support.share_members import ACCEPT, GROUP, RENEW, ShareMember

PARTITIONS = 3


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A topic of three partitions with two records each, all of which the group has begun."""
    async with kafka_server(fast_path) as server:
        await server.broker.topics.create(TOPIC, PARTITIONS)
        server.broker.shares.config_of = lambda _: ShareConfig(offset_reset=OffsetReset.EARLIEST)
        async with server.connected() as client:
            for number in range(PARTITIONS):
                await server.broker.shares.initialize(GROUP, server.topic_id(), number)
                await produced(client, batch("a", "b"), partition=number)
        yield server


async def test_each_partition_succeeds_or_fails_alone(kafka: KafkaServer, member: ShareMember) -> None:
    asked = [
        share_fetch.ShareFetchRequestPartition(partition_index=each, acknowledgement_batches=[]) for each in range(PARTITIONS)
    ]
    await member.ask(topics=[share_fetch.ShareFetchRequestTopic(topic_id=member.topic_id, partitions=asked)])
    said = share_fetch.ShareAcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[ACCEPT])
    wrong = share_fetch.ShareAcknowledgementBatch(first_offset=0, last_offset=2, acknowledge_types=[ACCEPT])
    partitions = [
        share_fetch.ShareAcknowledgePartition(partition_index=number, acknowledgement_batches=[wrong if number == 1 else said])
        for number in range(PARTITIONS)
    ]
    topics = [share_fetch.ShareAcknowledgeTopic(topic_id=member.topic_id, partitions=partitions)]
    answer = await member.acknowledge_all(topics)
    assert {each.partition_index: each.error_code for each in answer.responses[0].partitions} == {
        0: ErrorCode.NONE,
        1: ErrorCode.INVALID_REQUEST,
        2: ErrorCode.NONE,
    }
    found = [kafka.broker.shares.in_flight(GROUP, member.topic_id, number) for number in range(PARTITIONS)]
    assert found == [(2, 2, 0, 0), (0, 2, 2, 0), (2, 2, 0, 0)]


async def test_the_end_of_a_session_gives_back_the_rest(kafka: KafkaServer, member: ShareMember) -> None:
    await member.acquired()
    assert await member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=-1) is ErrorCode.NONE
    assert await member.acknowledge((1, 1, [ACCEPT]), share_session_epoch=-1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert await member.acquired() == [(1, 1, 2)]


async def test_a_renewal_has_to_be_announced_and_is_answered_with_the_time_of_a_lock(member: ShareMember) -> None:
    await member.acquired()
    assert await member.acknowledge((0, 1, [RENEW])) is ErrorCode.INVALID_REQUEST
    assert await member.acknowledge((0, 1, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    assert (await member.acknowledge_all([])).acquisition_lock_timeout_ms == 30_000


async def test_a_group_may_not_want_renewals(kafka: KafkaServer, member: ShareMember) -> None:
    await member.acquired()
    kafka.broker.shares.config_of = lambda _: ShareConfig(renew_acknowledge_enabled=False)
    assert await member.acknowledge((0, 1, [RENEW]), is_renew_ack=True) is ErrorCode.INVALID_RECORD_STATE
