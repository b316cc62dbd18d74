"""ACLs on the native protocol: every call with each of its rights and without, and what an answer lets nobody guess. Logging
in over the native protocol: mechanisms, the order of tokens, what a client without a login gets, logins that end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
import triolog
from triolog.protocol.errors import ErrorCode, InvalidConfigError, RequestError
from triolog.protocol.kafka.authorization import CLUSTER_NAME, DENIED, AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.native import messages
from triolog.protocol.native import messages as m
from triolog.protocol.native.connection import CONNECTION_CLOSED, LastError, Response
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import ANONYMOUS, TopicPartition
from triolog.server.broker import Acl, AclFilter, Broker
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.server.listeners.native.guard import RULES
from triolog.server.listeners.native.session import error_codes

from tests.support.attackers import both_listeners
from tests.support.brokers import actor_of, running_broker, until
from tests.support.kafka_login import ScramClient
from tests.support.kafka_server import batch
from tests.support.native_stream import NativeStream, native_stream
from tests.support.wire_client import WireClient, error_of

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
    on_topic(lambda topic: m.DescribeProducersRequest((m.Partition(topic, 0),)), Op.READ),
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
        lambda topic: m.FetchOffsetsRequest("group", (m.Partition(topic, 0),)), Op.DESCRIBE, (Op.DESCRIBE, GROUP, "group")
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
        lambda topic: m.LeaseSegmentsRequest((m.Partition(topic, 0),), 1000),
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


HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FAILED: Final = ErrorCode.SASL_AUTHENTICATION_FAILED
METADATA: Final = messages.MetadataRequest()
LARGE: Final = messages.ProduceRequest((messages.ProducePartition("t", 0, batch("x" * 900_000)),))
UNACKNOWLEDGED: Final = messages.ProduceRequest((messages.ProducePartition("t", 0, batch("x")),), 0)


@contextmanager
def serving(**keys: Any) -> Iterator[BlockingBroker]:
    security = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1, **keys}
    users = {"alice": "secret", "bob": "other"}
    with triolog.blocking.open(
        MEMORY, native=Address("127.0.0.1", 0), users=users, security=security, topics={"t": 1}
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    with serving() as served:
        yield served


@pytest.fixture
def client(broker: BlockingBroker) -> Iterator[WireClient]:
    with connected(broker) as client:
        yield client


def connected(broker: BlockingBroker) -> WireClient:
    return WireClient.connect(broker.native)


def counted(broker: BlockingBroker) -> tuple[int, int]:
    """(failed logins, logins)"""
    statistics = broker.call_now(lambda: broker._target.core.security.statistics)
    return statistics.failed_logins, statistics.logins


def token(client: WireClient, data: bytes, mechanism: str = "SCRAM-SHA-256") -> messages.AuthenticateResponse:
    answer = client.call(messages.AuthenticateRequest(mechanism, data))
    assert isinstance(answer, messages.AuthenticateResponse)
    return answer


def scram_of(mechanism: str = "SCRAM-SHA-256", user: str = "alice", password: str = "secret") -> ScramClient:
    return ScramClient(HASHES[mechanism], user, password)


def log_in(
    client: WireClient, mechanism: str = "SCRAM-SHA-256", user: str = "alice", password: str = "secret"
) -> messages.AuthenticateResponse:
    """The answer to the last token. Raises RequestError."""
    scram = scram_of(mechanism, user, password)
    challenge = token(client, scram.first(), mechanism)
    assert (challenge.done, challenge.session_lifetime_ms) == (False, 0)
    answer = token(client, scram.final(challenge.data), mechanism)
    assert answer.done
    assert scram.check(answer.data)
    return answer


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_user_logs_in_and_is_served(broker: BlockingBroker, client: WireClient, mechanism: str) -> None:
    failed, logins = counted(broker)
    assert client.hello.sasl_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert log_in(client, mechanism).session_lifetime_ms == 0
    assert client.call(messages.MetadataRequest(())).topics == ()
    assert counted(broker) == (failed, logins + 1)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")])
def test_a_wrong_password_is_answered_counted_and_ends_the_connection(
    broker: BlockingBroker, client: WireClient, mechanism: str, user: str, password: str
) -> None:
    failed, logins = counted(broker)
    error = error_of(log_in, client, mechanism, user, password)
    assert client.is_closed_by_server()
    assert error.code is FAILED
    assert error.message.endswith(f"due to invalid credentials with SASL mechanism {mechanism}")
    assert counted(broker) == (failed + 1, logins)


async def test_a_failed_login_is_answered_after_a_delay_that_ends_with_the_server(fast_path: Path) -> None:
    settings = {
        "native_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": {"alice": "secret"},
        "connection_failed_authentication_delay_ms": 10_000,
    }
    async with both_listeners(fast_path, **settings) as server, server.native_client() as client:
        scram = scram_of(password="wrong")
        challenge: Any = await client.call(messages.AuthenticateRequest("SCRAM-SHA-256", scram.first()))
        await client.send(messages.AuthenticateRequest("SCRAM-SHA-256", scram.final(challenge.data)))
        await until(lambda: server.kafka.broker.security.statistics.failed_logins == 1)
        assert not server.admission.counters("native").apis["authenticate"].errors
        with trio.fail_after(5):
            server.native.stop(1)
            answer = await client.receive()
        assert answer.error is not None
        assert answer.error.code is FAILED
        assert server.admission.counters("native").apis["authenticate"].errors == {FAILED: 1}


def test_a_password_is_no_mechanism_without_tls(broker: BlockingBroker, client: WireClient) -> None:
    failed, _ = counted(broker)
    error = error_of(token, client, b"\0alice\0secret", "PLAIN")
    assert client.is_closed_by_server()
    assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "SCRAM-SHA-256, SCRAM-SHA-512" in error.message
    assert counted(broker)[0] == failed + 1


def test_a_listener_without_tls_that_knows_passwords_only_does_not_start() -> None:
    with pytest.raises(InvalidConfigError, match="does not accept passwords"), serving(sasl_enabled_mechanisms="PLAIN"):
        """Not reached."""


@pytest.mark.parametrize(
    "conversation",
    [
        lambda client: client.send(METADATA),
        lambda client: client.send(messages.StatisticsRequest()),
        lambda client: client.send_body("no such call", {}),
        lambda client: client.send(UNACKNOWLEDGED, expects_answer=False),
        lambda client: (token(client, scram_of().first()), client.send(METADATA)),
    ],
    ids=["metadata", "statistics", "unknown", "produce with acks 0", "between tokens"],
)
def test_who_has_not_logged_in_is_told_so_and_not_served(broker: BlockingBroker, client: WireClient, conversation: Any) -> None:
    before = counted(broker)
    conversation(client)
    error = client.last_error()
    assert error.code is ErrorCode.ILLEGAL_SASL_STATE
    assert "Send authenticate first, with SCRAM-SHA-256, SCRAM-SHA-512" in error.message
    assert counted(broker) == before


def test_frames_are_small_until_the_login() -> None:
    with serving() as broker, connected(broker) as unknown, connected(broker) as known:
        unknown.send(LARGE)
        assert unknown.last_error().code is ErrorCode.INVALID_REQUEST
        log_in(known)
        assert known.call(LARGE).partitions[0].error is None


def test_what_comes_along_with_the_wrong_password_is_not_served(client: WireClient) -> None:
    scram = scram_of(password="wrong")
    challenge = token(client, scram.first())
    asked = client.send(messages.AuthenticateRequest("SCRAM-SHA-256", scram.final(challenge.data)))
    client.send(METADATA)
    answer = client.receive()
    assert isinstance(answer, Response)
    assert answer.correlation_id == asked
    assert answer.error is not None
    assert client.is_closed_by_server()


def test_a_proof_of_another_exchange_is_none(broker: BlockingBroker, client: WireClient) -> None:
    """Both nonces are part of what is signed: a client-final that was overheard is of no use on another connection."""
    scram = scram_of()
    overheard = scram.final(token(client, scram.first()).data)
    assert token(client, overheard).done
    with connected(broker) as replaying:
        token(replaying, scram_of().first())
        error = error_of(token, replaying, overheard)
        assert replaying.is_closed_by_server()
    assert (error.code, "another nonce" in error.message) == (FAILED, True)


@pytest.mark.parametrize("data", [b"", b"n,,n=alice", b"\xff", b"p=tls-unique,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc"])
def test_a_first_token_that_is_none_fails(client: WireClient, data: bytes) -> None:
    assert error_of(token, client, data).code is FAILED


def test_a_mechanism_that_changes_between_tokens_fails(broker: BlockingBroker, client: WireClient) -> None:
    failed, _ = counted(broker)
    scram = scram_of()
    challenge = token(client, scram.first())
    assert error_of(token, client, scram.final(challenge.data), "SCRAM-SHA-512").code is FAILED
    assert counted(broker)[0] == failed + 1


def test_a_client_that_goes_between_tokens_leaves_nothing(broker: BlockingBroker) -> None:
    before = counted(broker)
    with connected(broker) as gone, connected(broker) as other:
        token(gone, scram_of().first())
        gone.close()
        log_in(other)
        while len(other.call(messages.ListConnectionsRequest()).connections) > 1:
            """It has not gone yet."""
    assert counted(broker) == (before[0], before[1] + 1)


def test_a_second_login_is_refused_where_none_expires(client: WireClient) -> None:
    log_in(client)
    assert error_of(token, client, scram_of().first()).code is ErrorCode.ILLEGAL_SASL_STATE
    assert client.call(messages.MetadataRequest(())).topics == ()


def test_where_nobody_logs_in_that_is_said() -> None:
    with serving(native_security="plaintext") as broker, connected(broker) as client:
        assert client.hello.sasl_mechanisms == ()
        assert error_of(token, client, b"n,,n=alice,r=abc").code is ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(messages.MetadataRequest(())).topics == ()


def test_a_login_that_expires_is_renewed_by_the_same_user_or_ends() -> None:
    with serving(connections_max_reauth_ms=400) as broker:
        with connected(broker) as renewed:
            assert log_in(renewed).session_lifetime_ms == 400
            for _ in range(3):
                scram = scram_of()
                challenge = token(renewed, scram.first())
                assert renewed.call(messages.MetadataRequest(())).topics == (), "the login so far holds while it is renewed"
                assert token(renewed, scram.final(challenge.data)).session_lifetime_ms == 400
        with connected(broker) as other:
            log_in(other)
            error = error_of(log_in, other, user="bob", password="other")
            assert error.message == "Cannot change principals during re-authentication"
            assert other.is_closed_by_server()
        with connected(broker) as other_mechanism:
            log_in(other_mechanism)
            error = error_of(log_in, other_mechanism, "SCRAM-SHA-512")
            assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        with connected(broker) as expired:
            log_in(expired)
            while not isinstance(event := _answer(expired), LastError):
                assert event is not CONNECTION_CLOSED
            assert (event.error.code, "expired" in event.error.message) == (ErrorCode.ILLEGAL_SASL_STATE, True)


def _answer(client: WireClient) -> object:
    client.send(METADATA)
    return client.receive()


def test_no_message_shows_a_token() -> None:
    assert "secret" not in repr(messages.AuthenticateRequest("PLAIN", b"\0alice\0secret"))
    assert "secret" not in repr(messages.AuthenticateResponse(b"secret", True))
    with pytest.raises(RequestError) as caught:
        messages.decode_request("authenticate", 1, {"mechanism": "PLAIN", "data": "secret"})
    assert "secret" not in str(caught.value)
