"""DescribeConfigs and ListConfigResources: which keys there are, where values come from, and what each version is told. Keys
of brokers that are set while the server runs: topics follow them, they outlive it, and where they stand is told. Groups as
resources of DescribeConfigs, IncrementalAlterConfigs, AlterConfigs and ListConfigResources; what is taken and refused is what
Apache Kafka 4.3.1 does."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.kafka.messages.configs import ListConfigResourcesRequest
from triolog.server.config import FORMER_KEYS, KEPT_KEYS, TOPIC_KEYS
from triolog.server.config.log_config import FOLLOWED_KEYS
from triolog.server.config.resource_keys import GROUP_KEYS
from triolog.server.storage.directory.state_files import BROKERS

from tests.support.brokers import actor_of
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_admin import (
    APPEND,
    BROKER_TYPE,
    DELETE,
    SET,
    TOPIC_TYPE,
    alter,
    alter_incrementally,
    describe,
    error_names,
)
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

NODE, ALL = "1", ""
DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER = 2, 3


async def put(client: KafkaStream, name: str, key: str, value: str | None) -> str:
    """The error of setting one key, or of deleting it."""
    change = (BROKER_TYPE, name, [(key, DELETE if value is None else SET, value)])
    return error_names((await client.call(alter_incrementally(change), 1)).responses)[0]


async def sources(client: KafkaStream, kind: int, name: str, key: str) -> list[tuple[str, str, int]]:
    """What is told of a key, and of where its value could come from."""
    [result] = (await client.call(describe((kind, name), keys=[key], synonyms=True), 4)).results
    found: list[Any] = [(each.value, each.config_source) for each in result.configs]
    synonyms = [(each.name, each.value, each.source) for config in result.configs for each in config.synonyms]
    assert found == [(value, source) for _, value, source in synonyms[:1]]
    return synonyms


async def test_topics_follow_what_is_set_unless_they_say_something_themselves(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("own", 1, {"retention.ms": "5"})
    assert await put(client, ALL, "log.retention.ms", "7000") == "NONE"
    assert actor_of(kafka.broker).log.config.retention_ms == 7000
    assert await put(client, NODE, "log.retention.ms", "8000") == "NONE"
    assert actor_of(kafka.broker).log.config.retention_ms == 8000
    await kafka.broker.topics.create("later")
    started = ("log.retention.ms", "604800000", DEFAULT)
    for_all, for_one = ("log.retention.ms", "7000", DYNAMIC_DEFAULT_BROKER), ("log.retention.ms", "8000", DYNAMIC_BROKER)
    assert await sources(client, TOPIC_TYPE, "later", "retention.ms") == [for_one, for_all, started]
    assert await sources(client, TOPIC_TYPE, "own", "retention.ms") == [
        ("retention.ms", "5", DYNAMIC_TOPIC),
        for_one,
        for_all,
        started,
    ]
    assert await sources(client, BROKER_TYPE, NODE, "log.retention.ms") == [for_one, for_all, started]
    assert await sources(client, BROKER_TYPE, ALL, "log.retention.ms") == [for_all]
    for name in (NODE, ALL):
        assert await put(client, name, "log.retention.ms", None) == "NONE"
    assert await sources(client, TOPIC_TYPE, TOPIC, "retention.ms") == [started]
    assert actor_of(kafka.broker).log.config.retention_ms == 604_800_000


async def test_what_is_set_is_there_after_a_restart(fast_path: Path) -> None:
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        assert await put(client, ALL, "message.max.bytes", "2000") == "NONE"
    async with kafka_server(fast_path) as kafka:
        assert actor_of(kafka.broker).log.config.max_message_bytes == 2000
        kafka.broker.configure(kafka.broker.config)
        await kafka.broker.topics.create("later")
        assert kafka.broker.topics.describe_config("later")["max.message.bytes"][0] == "2000"


async def test_what_cannot_be_stored_is_refused_and_not_in_effect(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with kafka_server(tmp_path, fs=fs) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        for _ in range(2):
            fs.fail("write", f"{BROKERS.name}.tmp", number=errno.ENOSPC)
        assert await put(client, ALL, "log.retention.ms", "7000") == "KAFKA_STORAGE_ERROR"
        assert actor_of(kafka.broker).log.config.retention_ms == 604_800_000
        assert await put(client, ALL, "log.retention.ms", "x") == "INVALID_CONFIG"
        assert kafka.broker.broker_configs.overrides() == {}


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
        assert configs["no.such.key"].documentation == "Unknown key, stored without effect."
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


GROUP_TYPE, GROUP = 32, "group"
TIMEOUT, LIMIT, RESET = "share.session.timeout.ms", "share.delivery.count.limit", "share.auto.offset.reset"


async def change(client: KafkaStream, *operations: tuple[str, int, str | None], name: str = GROUP, **options: Any) -> str:
    answer = await client.call(alter_incrementally((GROUP_TYPE, name, operations), **options), 1)
    return error_names(answer.responses)[0]


async def entries(client: KafkaStream, *keys: str, name: str = GROUP) -> dict[str, Any]:
    (result,) = (await client.call(describe((GROUP_TYPE, name), keys=keys or None, synonyms=True), 4)).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, GROUP_TYPE, name)
    return {each.name: each for each in result.configs}


async def test_a_group_has_every_key_whether_it_is_there_or_not(client: KafkaStream) -> None:
    found = await entries(client)
    assert found.keys() == GROUP_KEYS.keys()
    timeout = found[TIMEOUT]
    assert (timeout.value, timeout.config_source, timeout.config_type, timeout.read_only) == ("45000", 5, 3, False)
    assert [(each.name, each.value, each.source) for each in timeout.synonyms] == [(f"group.{TIMEOUT}", "45000", 5)]
    assert [(each.name, each.value) for each in found[RESET].synonyms] == [(RESET, "latest")]
    assert (found["share.isolation.level"].value, found["share.renew.acknowledge.enable"].value) == ("read_uncommitted", "true")


async def test_keys_are_set_and_taken_back(client: KafkaStream) -> None:
    assert await change(client, (TIMEOUT, SET, " 46000 "), (RESET, SET, "by_duration:PT1H")) == "NONE"
    found = await entries(client, TIMEOUT, RESET)
    assert (found[TIMEOUT].value, found[TIMEOUT].config_source) == ("46000", 8)
    assert [(each.name, each.value, each.source) for each in found[TIMEOUT].synonyms] == [
        (TIMEOUT, "46000", 8),
        (f"group.{TIMEOUT}", "45000", 5),
    ]
    assert found[RESET].value == "by_duration:PT1H"
    assert await change(client, (TIMEOUT, DELETE, None), ("bogus", DELETE, None)) == "NONE"
    assert (await entries(client, TIMEOUT))[TIMEOUT].value == "45000"
    answer = await client.call(alter((GROUP_TYPE, GROUP, [(LIMIT, "4")])), 2)
    assert error_names(answer.responses) == ["NONE"]
    found = await entries(client, LIMIT, RESET)
    assert (found[LIMIT].value, found[RESET].value) == ("4", "latest")


async def test_what_is_refused_changes_nothing(client: KafkaStream) -> None:
    for operation in (
        (TIMEOUT, SET, "x"),
        (TIMEOUT, SET, "1"),
        (TIMEOUT, SET, "60001"),
        (TIMEOUT, APPEND, "1"),
        ("bogus", SET, "1"),
    ):
        assert await change(client, (LIMIT, SET, "3"), operation) == "INVALID_CONFIG"
    assert await change(client, (LIMIT, SET, "3"), validate_only=True) == "NONE"
    assert await change(client, (LIMIT, SET, "3"), name="") == "INVALID_REQUEST"
    (result,) = (await client.call(describe((GROUP_TYPE, "")), 4)).results
    assert error_names([result]) == ["INVALID_REQUEST"]
    assert (await entries(client, LIMIT))[LIMIT].value == "5"


async def test_groups_with_a_configuration_are_listed(client: KafkaStream) -> None:
    await change(client, (LIMIT, SET, "3"), name="b")
    await change(client, (LIMIT, SET, "3"), name="a")
    answer = await client.call(ask("ListConfigResources", resource_types=[GROUP_TYPE]), 1)
    assert [(each.resource_name, each.resource_type) for each in answer.config_resources] == [("a", 32), ("b", 32)]


async def test_members_are_told_their_groups_interval(client: KafkaStream) -> None:
    await change(client, ("share.heartbeat.interval.ms", SET, "6000"), name="shared")
    await change(client, ("consumer.heartbeat.interval.ms", SET, "7000"), name="consumed")
    who = {"member_id": "m", "subscribed_topic_names": [TOPIC]}
    share = ask("ShareGroupHeartbeat", group_id="shared", **who)
    assert (await client.call(share, 1)).heartbeat_interval_ms == 6000
    consumer = ask("ConsumerGroupHeartbeat", group_id="consumed", **who, rebalance_timeout_ms=1000, topic_partitions=[])
    assert (await client.call(consumer, 1)).heartbeat_interval_ms == 7000
    consumer.group_id = "other"
    assert (await client.call(consumer, 1)).heartbeat_interval_ms == 5000
