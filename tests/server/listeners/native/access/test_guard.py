"""ACLs on the native protocol: every call with each of its rights and without, and what an answer lets nobody guess."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import ANONYMOUS, TopicPartition
from triolog.server.broker import Acl, AclFilter, Broker
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.access.guard import RULES
from triolog.server.listeners.native.calls import native_listener
from triolog.server.listeners.native.session import error_codes

from tests.support.brokers import actor_of, running_broker
from tests.support.native_stream import NativeStream, native_stream

MINE: Final = "mine"
BATCH: Final = build_batch([(0, b"key", b"value", ())])
REFUSALS: Final = frozenset(DENIED.values())

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
Op = AclOperation
Right = tuple[AclOperation, ResourceType, str]


@attrs.frozen
class Case:
    """One call: a request that names a topic, and what it needs."""

    request: Callable[[str], m.RequestMessage]
    rights: tuple[Right, ...]

    @property
    def api(self) -> str:
        return self.request(MINE).api


def on_topic(request: Callable[[str], m.RequestMessage], operation: AclOperation, *more: Right) -> Case:
    return Case(request, ((operation, TOPIC, MINE), *more))


IN_TRANSACTION: Final = (Op.WRITE, TRANSACTION, "tx")
OF_APPLICATION: Final = (Op.WRITE, TRANSACTION, "app")
CASES: Final = [
    on_topic(lambda topic: m.ProduceRequest((m.ProducePartition(topic, 0, BATCH),)), Op.WRITE),
    on_topic(
        lambda topic: m.ProduceRequest((m.ProducePartition(topic, 0, BATCH),), transactional_id="tx"), Op.WRITE, IN_TRANSACTION
    ),
    on_topic(lambda topic: m.FetchRequest((m.FetchPartition(topic, 0, 0),)), Op.READ),
    on_topic(lambda topic: m.OffsetsForTimesRequest((m.OffsetsForTimesPartition(topic, 0, -1),)), Op.DESCRIBE),
    on_topic(lambda topic: m.ExplainRequest((m.ExplainPartition(topic, 0, offset=0),)), Op.DESCRIBE),
    on_topic(lambda topic: m.MetadataRequest((topic,)), Op.DESCRIBE),
    on_topic(lambda topic: m.CreateTopicsRequest((m.NewTopic(topic, 1),)), Op.CREATE),
    Case(lambda topic: m.CreateTopicsRequest((m.NewTopic(topic, 1),)), ((Op.CREATE, CLUSTER, CLUSTER_NAME),)),
    on_topic(lambda topic: m.DeleteTopicsRequest((topic,)), Op.DELETE),
    Case(lambda topic: m.DeleteTopicsRequest((topic,)), ((Op.DELETE, CLUSTER, CLUSTER_NAME),)),
    on_topic(lambda topic: m.DescribeConfigsRequest((topic,)), Op.DESCRIBE_CONFIGS),
    on_topic(lambda topic: m.CreatePartitionsRequest((m.NewPartitions(topic, 5),)), Op.ALTER),
    on_topic(lambda topic: m.AlterConfigsRequest((m.ConfigChange(topic, {"retention.ms": "5"}),)), Op.ALTER_CONFIGS),
    on_topic(lambda topic: m.DeleteRecordsRequest((m.DeleteRecordsPartition(topic, 0, 0),)), Op.DELETE),
    Case(lambda _: m.InitProducerRequest("tx"), (IN_TRANSACTION,)),
    Case(lambda _: m.InitProducerRequest(), ((Op.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.EndTransactionRequest(m.TransactionProducer("tx", 0, 0), True), (IN_TRANSACTION,)),
    Case(lambda _: m.DescribeTransactionsRequest(("tx",)), ((Op.DESCRIBE, TRANSACTION, "tx"),)),
    on_topic(lambda topic: m.DescribeProducersRequest((m.DescribeProducersPartition(topic, 0),)), Op.READ),
    Case(lambda _: m.AbortTransactionRequest("tx"), (IN_TRANSACTION,)),
    Case(
        lambda topic: m.AbortHangingTransactionsRequest((m.HangingTransaction(topic, 0, 1),)),
        ((Op.ALTER, CLUSTER, CLUSTER_NAME),),
    ),
    on_topic(
        lambda topic: m.CommitOffsetsRequest("group", (m.CommittedPartition(topic, 0, 0),)), Op.READ, (Op.READ, GROUP, "group")
    ),
    on_topic(
        lambda topic: m.CommitOffsetsRequest("group", (m.CommittedPartition(topic, 0, 0),), m.TransactionProducer("tx", 0, 0)),
        Op.READ,
        (Op.READ, GROUP, "group"),
        IN_TRANSACTION,
    ),
    on_topic(
        lambda topic: m.FetchOffsetsRequest("group", (m.OffsetsPartition(topic, 0),)),
        Op.DESCRIBE,
        (Op.DESCRIBE, GROUP, "group"),
    ),
    Case(lambda _: m.DescribeGroupsRequest(("group",)), ((Op.DESCRIBE, GROUP, "group"),)),
    Case(lambda _: m.DeleteGroupsRequest(("group",)), ((Op.DELETE, GROUP, "group"),)),
    on_topic(
        lambda topic: m.AlterShareGroupOffsetsRequest("group", (m.SharedStart(topic, 0, 0),)),
        Op.READ,
        (Op.READ, GROUP, "group"),
    ),
    Case(lambda _: m.DescribeQuotasRequest(), ((Op.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.AlterQuotasRequest(()), ((Op.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.DescribeUsersRequest(), ((Op.DESCRIBE, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.AlterUsersRequest(()), ((Op.ALTER, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.DescribeAclsRequest(m.AclEntry()), ((Op.DESCRIBE, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.CreateAclsRequest(()), ((Op.ALTER, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.DeleteAclsRequest(()), ((Op.ALTER, CLUSTER, CLUSTER_NAME),)),
    on_topic(lambda topic: m.ListGapsRequest((topic,)), Op.DESCRIBE),
    on_topic(lambda topic: m.AcceptGapsRequest((m.AcceptGapsPartition(topic, 0, 0),)), Op.ALTER),
    on_topic(lambda topic: m.DescribeSegmentsRequest((m.DescribeSegmentsPartition(topic, 0),)), Op.DESCRIBE),
    on_topic(lambda topic: m.SplitPointsRequest((m.SplitPointsPartition(topic, 0, 0, 0, 1),)), Op.DESCRIBE),
    on_topic(lambda topic: m.StageRequest("app", 0, "task", (m.StagePartition(topic, 0, BATCH),)), Op.WRITE, OF_APPLICATION),
    on_topic(
        lambda topic: m.CommitStageRequest("app", 0, (m.StagedTask("task", (m.StagedPartition(topic, 0, 1, 1),)),)),
        Op.WRITE,
        OF_APPLICATION,
    ),
    Case(lambda _: m.AbortStageRequest("app", 0), (OF_APPLICATION,)),
    Case(lambda _: m.LastCommitRequest("app"), ((Op.DESCRIBE, TRANSACTION, "app"),)),
    on_topic(
        lambda topic: m.LeaseSegmentsRequest((m.LeasePartition(topic, 0),), 1000),
        Op.READ,
        (Op.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME),
    ),
    Case(lambda _: m.ListConnectionsRequest(), ((Op.DESCRIBE, CLUSTER, CLUSTER_NAME),)),
    Case(lambda _: m.StatisticsRequest(), ((Op.DESCRIBE, CLUSTER, CLUSTER_NAME),)),
]
EVERYTHING: Final = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Op.ANY, AclPermission.ANY)
WITHOUT_RIGHTS: Final = {"hello", "authenticate"}
ONLY_HIDDEN: Final = {"list_groups", "list_transactions"}


def acl(right: Right, permission: AclPermission = AclPermission.ALLOW) -> Acl:
    operation, kind, name = right
    return Acl(kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, permission)


@asynccontextmanager
async def asking(path: Path, *rights: Right) -> AsyncIterator[tuple[Broker, NativeStream]]:
    """A connection of a client with these rights, to a server with the topic MINE, which a group has read."""
    async with running_broker(path, acl_enable=True) as broker, trio.open_nursery() as nursery:
        await broker.topics.create(MINE, 2, {"retention.ms": "-1"})
        await broker.offsets.commit("group", [(TopicPartition(MINE, 0), 0, None)])
        await broker.security.create_acls(map(acl, rights))
        address = await nursery.start(native_listener(broker, Address("127.0.0.1", 0), Admission.of(broker.config)).run)
        async with native_stream(address) as client:
            yield broker, client
        nursery.cancel_scope.cancel()


async def told(client: NativeStream, request: m.RequestMessage) -> tuple[set[int], str]:
    """The codes in an answer, and all of it as text."""
    try:
        body = (await client.call(request)).to_body()
    except RequestError as exc:
        return {exc.code}, str(exc)
    return set(error_codes(body)), json.dumps(body, default=repr)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
async def test_a_call_is_served_with_its_rights(fast_path: Path, case: Case) -> None:
    async with asking(fast_path, *case.rights) as (_, client):
        codes, _ = await told(client, case.request(MINE))
        assert not codes & REFUSALS


async def allow_only(broker: Broker, *rights: Right) -> None:
    await broker.security.delete_acls([EVERYTHING])
    await broker.security.create_acls(map(acl, rights))


async def test_a_call_is_refused_without_one_of_its_rights(fast_path: Path) -> None:
    async with asking(fast_path) as (broker, client):
        before = broker.topics.describe(MINE)
        for case, missing in [(each, right) for each in CASES for right in each.rights]:
            await allow_only(broker, *(right for right in case.rights if right != missing))
            codes, text = await told(client, case.request(MINE))
            expected = DENIED[TOPIC if case.api in ("create_topics", "delete_topics") else missing[1]]
            assert codes == {expected}, (case.api, missing)
            assert ANONYMOUS in text, (case.api, missing)
            assert broker.topics.describe(MINE) == before, (case.api, missing)
        assert broker.security.statistics.denied >= len(CASES)


async def test_what_is_missing_and_what_is_forbidden_look_the_same(fast_path: Path) -> None:
    async with asking(fast_path) as (broker, client):
        for case in CASES:
            others = [right for right in case.rights if right[1] is not TOPIC]
            await allow_only(broker, *(others if len(others) < len(case.rights) else []))
            there, missing = [(await told(client, case.request(topic)))[1].replace(topic, "X") for topic in (MINE, "away")]
            assert there == missing, case.api


def test_every_call_has_its_rules_and_its_case() -> None:
    assert {request.api for request in RULES} == set(m.REQUESTS)
    assert {case.api for case in CASES} | WITHOUT_RIGHTS | ONLY_HIDDEN == set(m.REQUESTS)
    for request, rules in RULES.items():
        asks = {rule.says for rule in rules.whole} | ({rules.each.says} if rules.each else set())
        assert bool(asks) == (request.api not in WITHOUT_RIGHTS | ONLY_HIDDEN)


async def test_refused_elements_stand_where_they_were_asked_for(fast_path: Path) -> None:
    async with asking(fast_path, (Op.WRITE, TOPIC, MINE), (Op.READ, TOPIC, MINE)) as (_, client):
        names = ["a", MINE, "b", MINE, "c"]
        parts = tuple(m.ProducePartition(name, number % 2, BATCH) for number, name in enumerate(names))
        produced = (await client.call(m.ProduceRequest(parts))).partitions
        fetched = (
            await client.call(m.FetchRequest(tuple(m.FetchPartition(each.topic, each.partition, 0) for each in parts), 60_000))
        ).partitions
        for answers in (produced, fetched):
            assert [(each.topic, each.partition, each.error and each.error.code) for each in answers] == [
                (name, number % 2, None if name == MINE else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for number, name in enumerate(names)
            ]
        assert all(each.records for each in fetched if each.error is None)


async def test_a_fetch_with_something_refused_does_not_wait(fast_path: Path) -> None:
    async with asking(fast_path, (Op.READ, TOPIC, MINE)) as (_, client):
        asked = tuple(m.FetchPartition(name, 0, 0) for name in (MINE, "away"))
        with trio.fail_after(30):
            await client.call(m.FetchRequest(asked, max_wait_ms=600_000))


async def test_a_large_request_is_judged_like_a_small_one(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, TOPIC, MINE)) as (_, client):
        names = ["away", MINE] * 1500
        asked = tuple(m.OffsetsForTimesPartition(name, 0, -1) for name in names)
        answers = (await client.call(m.OffsetsForTimesRequest(asked))).partitions
        assert [each.topic for each in answers] == names
        assert {(each.topic, each.error and each.error.code) for each in answers} == {
            (MINE, None),
            ("away", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        }


@pytest.mark.parametrize("rights", [[], [(Op.WRITE, TOPIC, MINE)]])
async def test_a_refused_produce_without_an_answer_ends_the_connection(fast_path: Path, rights: Sequence[Right]) -> None:
    async with asking(fast_path, *rights) as (broker, client):
        parts = tuple(m.ProducePartition(name, 0, BATCH) for name in (MINE, "away"))
        request = m.ProduceRequest(parts, m.ACKS_NONE)
        await client.stream.send_all(
            b"".join(client.connection.send_request(99, request.api, 1, request.to_body(), expects_answer=False))
        )
        with trio.fail_after(30):
            while data := await client.stream.receive_some():
                assert b"TOPIC_AUTHORIZATION_FAILED" in data
        assert broker.topics.describe(MINE).partitions[0].high_watermark == 0


async def test_all_topics_are_those_that_may_be_described(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, TOPIC, MINE)) as (broker, client):
        await broker.topics.create("hidden")
        [topic] = (await client.call(m.MetadataRequest())).topics
        assert (topic.name, topic.config) == (MINE, {})
        await broker.security.create_acls([acl((Op.DESCRIBE_CONFIGS, TOPIC, MINE))])
        [topic] = (await client.call(m.MetadataRequest((MINE,)))).topics
        assert topic.config == {"retention.ms": "-1"}


async def test_gaps_are_listed_of_topics_that_may_be_described(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, TOPIC, MINE)) as (broker, client):
        await broker.topics.create("hidden")
        for name in (MINE, "hidden"):
            actor_of(broker, TopicPartition(name, 0)).take_offline("a test says so")
        [topic] = (await client.call(m.ListGapsRequest())).topics
        assert (topic.name, [each.partition for each in topic.partitions if each.error is not None]) == (MINE, [0])


async def test_all_offsets_are_those_of_topics_that_may_be_described(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, GROUP, "group")) as (broker, client):
        assert (await client.call(m.FetchOffsetsRequest("group"))).partitions == ()
        await broker.security.create_acls([acl((Op.DESCRIBE, TOPIC, MINE))])
        [offset] = (await client.call(m.FetchOffsetsRequest("group"))).partitions
        assert (offset.topic, offset.offset) == (MINE, 0)


async def test_groups_are_listed_that_may_be_described(fast_path: Path) -> None:
    async with asking(fast_path) as (broker, client):
        await broker.offsets.commit("other", [(TopicPartition(MINE, 0), 0, None)])
        for right, groups in (
            ((Op.DESCRIBE, GROUP, "group"), ("group",)),
            ((Op.DESCRIBE, CLUSTER, CLUSTER_NAME), ("group", "other")),
            ((Op.DESCRIBE, TOPIC, MINE), ()),
        ):
            await allow_only(broker, right)
            assert (await client.call(m.ListGroupsRequest())).groups == groups, right
        assert broker.security.statistics.denied == 0


async def test_transactional_ids_are_listed_that_may_be_described(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, TRANSACTION, "tx")) as (broker, client):
        for name in ("another", "tx", "zz"):
            await broker.producers.init(name, 60_000)
        answer = await client.call(m.ListTransactionsRequest(max_transactions=1))
        assert ([each.transactional_id for each in answer.transactions], answer.left_out) == (["tx"], 0)
        assert broker.security.statistics.denied == 0


async def test_partitions_of_a_transaction_are_told_of_topics_that_may_be_described(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, TRANSACTION, "tx"), (Op.DESCRIBE, TOPIC, MINE)) as (broker, client):
        await broker.topics.create("hidden")
        producer = await broker.producers.init("tx", 60_000)
        await broker.transactions.add_partitions("tx", *producer, [TopicPartition(MINE, 0), TopicPartition("hidden", 0)])
        [described] = (await client.call(m.DescribeTransactionsRequest(("tx",)))).transactions
        assert [each.topic_partition for each in described.partitions] == [TopicPartition(MINE, 0)]


async def test_a_decision_is_remembered_until_acls_change(fast_path: Path) -> None:
    async with asking(fast_path, (Op.DESCRIBE, TOPIC, MINE)) as (broker, client):
        asked: Any = m.MetadataRequest((MINE,))
        assert (await client.call(asked)).topics[0].error is None
        await broker.security.create_acls([acl((Op.DESCRIBE, TOPIC, MINE), AclPermission.DENY)])
        assert (await client.call(asked)).topics[0].error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
