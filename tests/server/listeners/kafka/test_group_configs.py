"""Groups as resources of DescribeConfigs, IncrementalAlterConfigs, AlterConfigs and ListConfigResources; what is taken and
refused is what Apache Kafka 4.3.1 does."""

from __future__ import annotations

from typing import Any

from triolog.server.config.resource_keys import GROUP_KEYS

from tests.support.kafka_admin import APPEND, DELETE, SET, alter, alter_incrementally, describe, error_names
from tests.support.kafka_asking import ask
from tests.support.kafka_server import TOPIC
from tests.support.kafka_stream import KafkaStream

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
