"""Share groups, Streams groups, client quotas and telemetry under rules, in the log of requests, and on several nodes, on the
wire."""

from __future__ import annotations

from typing import Any, Final

import pytest
import triolog
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import APIS, ApiKey, ServedBy
from triolog.server.config.broker_config import Address
from triolog.server.fake.faults.requests import Wanted
from triolog.server.fake.faults.rules import rule_of
from triolog.server.fake.kafka.watched import Watch
from triolog.server.listeners.kafka.error_answers import error_codes

from tests.support.kafka_quotas import EXACT, PRODUCED, USER, altering, asking
from tests.support.kafka_server import TOPIC, KafkaServer
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import ask
from tests.support.streams_members import CHANGELOG, REPARTITION, SOURCE, heartbeat

SHARED: Final = "group"
STREAMS: Final = "app"
PLACES: Final = [{"topic_name": TOPIC, "partitions": [{"start_offset": 3}]}]
ASKED: Final[dict[ApiKey, Any]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: ask("ShareGroupHeartbeat", group_id=SHARED, member_id="m", subscribed_topic_names=[TOPIC]),
    ApiKey.SHARE_GROUP_DESCRIBE: ask("ShareGroupDescribe", group_ids=[SHARED], include_authorized_operations=False),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ask("DescribeShareGroupOffsets", groups=[{"group_id": SHARED, "topics": None}]),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ask("AlterShareGroupOffsets", group_id=SHARED, topics=PLACES),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ask("DeleteShareGroupOffsets", group_id=SHARED, topics=[{"topic_name": TOPIC}]),
    ApiKey.STREAMS_GROUP_HEARTBEAT: heartbeat(),
    ApiKey.STREAMS_GROUP_DESCRIBE: ask("StreamsGroupDescribe", group_ids=[STREAMS], include_authorized_operations=False),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: asking(("user", EXACT, "u")),
    ApiKey.ALTER_CLIENT_QUOTAS: altering((USER, [(PRODUCED, 100.0)])),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ask("GetTelemetrySubscriptions", client_instance_id=bytes(16)),
    ApiKey.PUSH_TELEMETRY: ask("PushTelemetry", client_instance_id=bytes(16)),
}
OF_GROUPS: Final = [key for key in ASKED if APIS[key].served_by is ServedBy.GROUP]


def group_of(key: ApiKey) -> str:
    return STREAMS if "STREAMS" in key.name else SHARED


@pytest.fixture
def settings(watch: Watch) -> dict[str, Any]:
    return {"watch": watch, "telemetry_enable": True, "lenient": True}


@pytest.mark.parametrize("key", ASKED, ids=lambda key: key.name)
async def test_every_api_is_noted_and_fails_where_a_rule_says_so(watch: Watch, client: KafkaStream, key: ApiKey) -> None:
    api, request = APIS[key], ASKED[key]
    rule = watch.faults.add(rule_of({"api": api.name, "error": "POLICY_VIOLATION", "once": True}))
    answer = await client.call(request, api.highest)
    assert (rule.fired, error_codes(answer)) == (1, (ErrorCode.POLICY_VIOLATION,))
    assert ErrorCode.POLICY_VIOLATION not in error_codes(await client.call(request, api.highest))
    failed, _ = watch.requests
    assert (failed.api, failed.errors, failed.fault) == (api.name, ("POLICY_VIOLATION",), rule.number)
    assert list(failed.groups) == ([group_of(key)] if key in OF_GROUPS else [])


async def test_a_rule_of_one_streams_group_leaves_others_alone(kafka: KafkaServer, watch: Watch, client: KafkaStream) -> None:
    told = {"group": "ap?", "error": "COORDINATOR_NOT_AVAILABLE", "once_per_member": True}
    rule = watch.faults.add(rule_of({"api": "StreamsGroupHeartbeat", **told}))
    codes = [
        (await client.call(heartbeat(group_id=group, member_id=member), 0)).error_code
        for group, member in (("app", "a"), ("other", "a"), ("app", "b"), ("app", "a"))
    ]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]
    assert (rule.matched, rule.fired) == (3, 2)
    members = kafka.broker.groups.streams.describe("app").members
    assert [each.member_id for each in members] == ["a"], "what failed has not been carried out"
    assert len(watch.requests.find(Wanted(api="StreamsGroupHeartbeat", group="other", answered=True))) == 1


async def test_a_streams_member_names_the_topics_of_its_topology_when_it_joins(watch: Watch, client: KafkaStream) -> None:
    rule = watch.faults.add(rule_of({"topic": CHANGELOG, "error": "STREAMS_INVALID_TOPOLOGY", "once": True}))
    assert (await client.call(heartbeat(), 0)).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    joined = await client.call(heartbeat(), 0)
    await client.call(heartbeat(joined.member_epoch), 0)
    assert rule.fired == 1
    assert [set(each.topics) for each in watch.requests] == [names := {SOURCE, CHANGELOG, REPARTITION}, names, set()]


async def test_groups_have_a_coordinator_among_the_nodes_that_can_be_moved_and_goes_down() -> None:
    async with triolog.open(kafka=Address("127.0.0.1", 0), nodes=2, topics={TOPIC: 2}) as broker:
        nodes = broker.life.nodes
        for group in (SHARED, STREAMS):
            broker.move_coordinator(group, 2)
        async with connected(nodes.addresses[1][1:]) as one, connected(nodes.addresses[2][1:]) as two:
            for key in OF_GROUPS:
                api = APIS[key]
                assert error_codes(await one.call(ASKED[key], api.highest)) == (ErrorCode.NOT_COORDINATOR,)
                assert ErrorCode.NOT_COORDINATOR not in error_codes(await two.call(ASKED[key], api.highest))
            epoch = broker.streams_groups.describe(STREAMS).members[0].member_epoch
            [told] = (await one.call(ask("FindCoordinator", key_type=0, coordinator_keys=[STREAMS]), 4)).coordinators
            assert told.node_id == 2
            await broker.node_down(2)
            for number in range(2):
                answer = await one.call(heartbeat(epoch + number), 0)
                assert answer.error_code == 0
            await broker.node_up(2)
            assert (await one.call(heartbeat(answer.member_epoch), 0)).error_code == ErrorCode.NOT_COORDINATOR
        assert broker.requests.count("StreamsGroupHeartbeat", node=1, error="NOT_COORDINATOR") == 2


async def test_a_transaction_asks_its_own_coordinator_also_about_a_group_that_another_node_coordinates() -> None:
    async with triolog.open(kafka=Address("127.0.0.1", 0), nodes=2) as broker:
        addresses = [each[1:] for each in broker.life.nodes.addresses.values()]
        broker.move_coordinator("mover", 1)
        broker.move_coordinator("readers", 2)
        init = ask("InitProducerId", transactional_id="mover", transaction_timeout_ms=60_000)
        async with connected(addresses[0]) as one, connected(addresses[1]) as two:
            assert (await two.call(init, 4)).error_code == ErrorCode.NOT_COORDINATOR
            begun = await one.call(init, 4)
            whose = {"transactional_id": "mover", "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
            joining = ask("AddOffsetsToTxn", **whose, group_id="readers")
            assert (await one.call(joining, 3)).error_code == 0
            assert (await one.call(ask("EndTxn", **whose, committed=False), 3)).error_code == 0
