"""DescribeConfigs and ListConfigResources: which keys there are, where values come from, and what each version is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.kafka.messages.configs import ListConfigResourcesRequest
from triolog.server.config import FORMER_KEYS, KEPT_KEYS, TOPIC_KEYS
from triolog.server.config.log_config import FOLLOWED_KEYS

from tests.support.kafka_admin import BROKER_TYPE, TOPIC_TYPE, describe, error_names
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
LATEST = 4
KAFKA_4_1 = """
cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level delete.retention.ms
file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas index.interval.bytes
leader.replication.throttled.replicas local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes
message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio
min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable
remote.storage.enable retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
unclean.leader.election.enable
"""
"""What a broker of Kafka 4.3 lists for a topic."""
TYPES = {"retention.ms": 5, "segment.bytes": 3, "preallocate": 1, "cleanup.policy": 7, "compression.type": 2}
TYPES |= {"min.cleanable.dirty.ratio": 6, "leader.replication.throttled.replicas": 7, "durability": 2}


async def described(client: KafkaStream, kind: int, name: str, version: int = LATEST, **wanted: Any) -> dict[str, Any]:
    """The keys of one resource, which has to be there."""
    [result] = (await client.call(describe((kind, name), **wanted), version)).results
    assert (result.error_code, result.error_message, result.resource_type, result.resource_name) == (0, None, kind, name)
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_has_all_keys_of_kafkas_and_ours(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await kafka.broker.topics.alter_configs(TOPIC, {"retention.ms": "5"})
    configs = await described(client, TOPIC_TYPE, TOPIC, version, synonyms=True, documentation=True)
    assert configs.keys() == {*TOPIC_KEYS, *KEPT_KEYS}
    assert configs.keys() >= set(KAFKA_4_1.split())
    for name, config in configs.items():
        assert (config.read_only, config.is_sensitive) == (False, False)
        assert config.config_source == (DYNAMIC_TOPIC if name == "retention.ms" else DEFAULT)
        assert bool(config.documentation) == (version >= 3)
    assert (configs["retention.ms"].value, configs["segment.bytes"].value) == ("5", "1073741824")
    types = {name: configs[name].config_type for name in TYPES}
    assert types == (TYPES if version >= 3 else dict.fromkeys(TYPES, 0))


async def test_synonyms_tell_what_a_key_follows_when_the_topic_does_not_override_it(fast_path: Path) -> None:
    async with kafka_server(fast_path, topic={"segment.bytes": "5000"}) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC, 1, {"retention.ms": "5"})
        configs = await described(client, TOPIC_TYPE, TOPIC, synonyms=True)
        told = {name: [(each.name, each.value, each.source) for each in config.synonyms] for name, config in configs.items()}
        assert told["retention.ms"] == [("retention.ms", "5", DYNAMIC_TOPIC), ("log.retention.ms", "604800000", DEFAULT)]
        assert told["segment.bytes"] == [("log.segment.bytes", "5000", STATIC_BROKER)]
        assert configs["segment.bytes"].config_source == STATIC_BROKER
        assert told["durability"] == []
        without = await described(client, TOPIC_TYPE, TOPIC)
        assert all(config.synonyms == [] and config.documentation is None for config in without.values())


async def test_what_else_a_topic_was_configured_with_is_listed(fast_path: Path) -> None:
    async with kafka_server(fast_path, lenient=True) as kafka, kafka.connected() as client:
        former = next(iter(FORMER_KEYS))
        await kafka.broker.topics.create(TOPIC, 1, {"no.such.key": "1", former: "2"}, lenient=True)
        configs = await described(client, TOPIC_TYPE, TOPIC, synonyms=True, documentation=True)
        assert (configs["no.such.key"].value, configs["no.such.key"].config_type) == ("1", 0)
        assert configs["no.such.key"].documentation == "There is no such key: it is kept and means nothing."
        assert (configs[former].value, configs[former].config_source) == ("2", DYNAMIC_TOPIC)


@pytest.mark.parametrize("keys", [[], None], ids=["empty", "null"])
async def test_no_keys_ask_for_all_and_unknown_ones_are_left_out(client: KafkaStream, keys: list[str] | None) -> None:
    assert len(await described(client, TOPIC_TYPE, TOPIC, keys=keys)) == len(TOPIC_KEYS) + len(KEPT_KEYS)
    assert [*await described(client, TOPIC_TYPE, TOPIC, keys=["nope", "retention.ms"])] == ["retention.ms"]


async def test_a_broker_tells_its_keys_by_kafkas_names(fast_path: Path) -> None:
    settings = {"num_partitions": 3, "auto_create_topics_enable": False, "offsets_retention_ms": 120_000}
    async with kafka_server(fast_path, topic={"retention.ms": "7200000"}, **settings) as kafka, kafka.connected() as client:
        configs = await described(client, BROKER_TYPE, str(kafka.broker.node_id), synonyms=True, documentation=True)
        address = f"PLAINTEXT://{kafka.address}"
    found = {name: (config.value, config.config_source, config.config_type) for name, config in configs.items()}
    expected = {
        "num.partitions": ("3", STATIC_BROKER, 3),
        "auto.create.topics.enable": ("false", STATIC_BROKER, 1),
        "default.replication.factor": ("1", DEFAULT, 3),
        "log.retention.ms": ("7200000", STATIC_BROKER, 5),
        "log.retention.hours": ("2", STATIC_BROKER, 3),
        "log.segment.bytes": ("1073741824", DEFAULT, 3),
        "message.max.bytes": ("1048588", DEFAULT, 3),
        "offsets.retention.minutes": ("2", STATIC_BROKER, 3),
        "log.dirs": (str(fast_path), STATIC_BROKER, 7),
        "broker.id": ("1", STATIC_BROKER, 3),
        "advertised.listeners": (address, STATIC_BROKER, 2),
        "delete.topic.enable": ("true", DEFAULT, 1),
    }
    assert {name: found[name] for name in expected} == expected
    for config in configs.values():
        assert config.read_only is (config.name not in FOLLOWED_KEYS)
        assert config.documentation.endswith(".")
        assert [(each.name, each.value) for each in config.synonyms] == [(config.name, config.value)]


REFUSED = [
    (TOPIC_TYPE, "nope", "UNKNOWN_TOPIC_OR_PARTITION"),
    (TOPIC_TYPE, "", "INVALID_TOPIC_EXCEPTION"),
    (TOPIC_TYPE, "bad name", "INVALID_TOPIC_EXCEPTION"),
    (BROKER_TYPE, "7", "INVALID_REQUEST"),
    (BROKER_TYPE, "x", "INVALID_REQUEST"),
    (8, "1", "INVALID_REQUEST"),
    (16, "", "INVALID_REQUEST"),
    (32, "", "INVALID_REQUEST"),
    (99, "x", "INVALID_REQUEST"),
]


async def test_what_is_not_there_is_refused_alone(client: KafkaStream) -> None:
    assert await described(client, BROKER_TYPE, "") == {}, "all brokers have no keys that were set while they ran"
    asked = [(kind, name) for kind, name, _ in REFUSED]
    answer = await client.call(describe(*asked, (TOPIC_TYPE, TOPIC)), LATEST)
    assert error_names(answer.results) == [*(error for _, _, error in REFUSED), "NONE"]
    assert all(result.error_message and not result.configs for result in answer.results[:-1])


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ([], {(TOPIC, TOPIC_TYPE), ("1", BROKER_TYPE)}),
        ([TOPIC_TYPE], {(TOPIC, TOPIC_TYPE)}),
        ([BROKER_TYPE, 32], {("1", BROKER_TYPE)}),
        ([8, 16, 32], set()),
    ],
    ids=["all", "topics", "brokers", "neither"],
)
async def test_resources_are_listed_by_type(client: KafkaStream, types: list[int], found: set[tuple[str, int]]) -> None:
    answer = await client.call(ListConfigResourcesRequest(resource_types=types), 1)
    assert answer.error_code == 0
    assert {(each.resource_name, each.resource_type) for each in answer.config_resources} == found


async def test_version_0_lists_client_metrics_and_a_type_that_does_not_exist_is_refused(client: KafkaStream) -> None:
    assert (await client.call(ListConfigResourcesRequest(resource_types=[]), 0)).config_resources == [], "there are none"
    assert error_names([await client.call(ListConfigResourcesRequest(resource_types=[2, 99]), 1)]) == ["UNSUPPORTED_VERSION"]
