"""The configuration of the server's own topics is guarded like their data: no change loses an offset or refuses a commit."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.authorization import AclOperation, ResourceType
from triolog.server.broker import Broker
from triolog.server.config import KNOWN_KEYS
from triolog.server.config.log_config import INTERNAL_KEYS
from triolog.server.listeners.kafka.configs import ResourceType as ConfigType
from triolog.server.storage.directory.catalogue import adopted_configs
from triolog.server.storage.disk.paths import INTERNAL_TOPICS

from tests.support import kafka_admin
from tests.support.brokers import running_broker
from tests.support.kafka_login import allow
from tests.support.kafka_server import kafka_server

OTHERS: Final = {
    "cleanup.policy": "compact,delete",
    "compression.type": "gzip",
    "durability": "group:100",
    "message.timestamp.type": "LogAppendTime",
    "record.validation": "header",
    "gap.policy": "refuse",
    "disk.full.policy": "drop-oldest",
    "errors.deadletterqueue.group.enable": "true",
    "retention.hold.groups": "somebody",
    "leader.replication.throttled.replicas": "*",
    "follower.replication.throttled.replicas": "*",
    "preallocate": "true",
    "fetch.check.crcs": "true",
    "unclean.leader.election.enable": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "false",
    "internal.segment.bytes": "14",
    "segment.bytes": "14",
    "segment.index.bytes": "24",
}
"""A value of each key that cannot be 1, other than what these topics are made with."""


@pytest.fixture
async def broker(fast_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(fast_path) as broker:
        for topic in INTERNAL_TOPICS:
            await broker._manager.changes.create(topic, 1, adopted_configs(topic), internal=True)
        yield broker


async def test_only_keys_about_files_can_be_changed(broker: Broker) -> None:
    for topic in INTERNAL_TOPICS:
        before = broker.topics.describe(topic).config
        for key in sorted(KNOWN_KEYS):
            change = {key: OTHERS.get(key, "1")}
            if key in INTERNAL_KEYS and key != "segment.bytes":
                await broker.topics.alter_configs(topic, change)
                await broker.topics.alter_configs(topic, {}, [key])
            else:
                with pytest.raises(RequestError, match=f"is the server's own: .*{re.escape(key)}") as raised:
                    await broker.topics.alter_configs(topic, change)
                assert raised.value.code is ErrorCode.POLICY_VIOLATION, f"{topic}: {key}"
            assert broker.topics.describe(topic).config == before, f"{topic}: {key}"


async def test_what_such_a_topic_is_made_with_cannot_be_taken_away_and_can_be_put_back(broker: Broker) -> None:
    topic = "__consumer_offsets"
    made = broker.topics.describe(topic).config
    with pytest.raises(RequestError, match=r"cleanup\.policy cannot be changed"):
        await broker.topics.alter_configs(topic, {}, ["cleanup.policy"])
    with pytest.raises(RequestError, match=r"cleanup\.policy cannot be changed"):
        await broker.topics.change_configs(topic, lambda _: {})
    hosted = broker._manager.topics.get(topic)
    of_an_older_server = {**made, "cleanup.policy": "delete", "max.message.bytes": "1"}
    hosted.topic = attrs.evolve(hosted.topic, configs=of_an_older_server)
    await broker.topics.alter_configs(topic, {"cleanup.policy": "compact"}, ["max.message.bytes"])
    assert broker.topics.describe(topic).config == made
    await broker.topics.alter_configs(topic, {"segment.bytes": str(2**20)})


async def test_it_takes_the_right_to_configure_the_cluster(fast_path: Path) -> None:
    topic, change = "__consumer_offsets", [("flush.ms", 0, "1000")]
    async with kafka_server(fast_path, acl_enable=True) as server, server.connected() as client:
        await server.broker._manager.changes.create(topic, 1, adopted_configs(topic), internal=True)
        request = kafka_admin.alter_incrementally((int(ConfigType.TOPIC), topic, change))
        await allow(server, AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, topic)
        [refused] = (await client.call(request, 1)).responses
        assert ErrorCode(refused.error_code) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await allow(server, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster")
        [done] = (await client.call(request, 1)).responses
        assert ErrorCode(done.error_code) is ErrorCode.NONE
