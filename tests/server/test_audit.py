"""Every way to change a topic, a group, a user, an ACL, a quota or configuration leaves a line in the audit log, and no other
call changes one of them: both protocols, the calls of a broker in a program, and the control port."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import triolog
from triolog.protocol.errors import RequestError
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.native import messages as m
from triolog.server.broker import Broker
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.fake.api import ControlApi
from triolog.server.listeners.kafka import audited as kafka_audited
from triolog.server.listeners.native import guard as native_audited

from tests.support import kafka_admin, kafka_quotas, kafka_wire, wire_client
from tests.support.kafka_rights.askers import CASES
from tests.support.kafka_rights.case import MEMBER
from tests.support.kafka_rights.world import ADMIN, World, users

K = ApiKey
METRICS_TYPE: Final = 16
DEADLINE_S: Final = 30.0
SECRET: Final = b"salted password"
ACL: Final = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:carol",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermission.ALLOW,
}
FILTER: Final = {
    "resource_type_filter": ResourceType.TOPIC,
    "resource_name_filter": "orders",
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}
SHARED: Final = {"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 0}]}
STORE: Final = {"name": "app-store-changelog", "partitions": 0, "replication_factor": 0, "topic_configs": []}
PARTS: Final = [{"subtopology_id": "0", "source_topics": ["orders"], "state_changelog_topics": [STORE]}]
TASKS: Final = {f"{kind}_tasks": [] for kind in ("active", "standby", "warmup")}
INSTANCE: Final = {"member_id": MEMBER, "rebalance_timeout_ms": 60_000, "process_id": "process", **TASKS}
USER: Final = {"name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": SECRET}
COMMITTED: Final = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
MARKED: Final = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False}
OF_ORDERS: Final = {"name": "orders", "partition_indexes": [0]}
DISABLED: Final = {"feature": "streams.version", "max_version_level": 0, "upgrade_type": 2}
ASKED_FOR: Final = {"topics": [{"name": "asked-for"}], "allow_auto_topic_creation": True}


def changing(key: ApiKey, **fields: Any) -> Any:
    return kafka_wire.ask(APIS[key].name, **fields)


KAFKA: Final[list[tuple[Any, int, list[str]]]] = [
    (kafka_admin.create_topics(kafka_admin.new_topic("orders", configs={"retention.ms": "-1"})), 7, ["orders"]),
    (kafka_admin.more_partitions(("orders", 2)), 3, ["orders"]),
    (kafka_admin.alter((kafka_admin.TOPIC_TYPE, "orders", [("flush.ms", "77")])), 2, ["topic orders: flush.ms"]),
    (
        kafka_admin.alter_incrementally(
            (kafka_admin.TOPIC_TYPE, "orders", [("segment.ms", kafka_admin.SET, "50000")]),
            (kafka_admin.GROUP_TYPE, "group", [("consumer.session.timeout.ms", kafka_admin.SET, "50000")]),
            (METRICS_TYPE, "metrics", [("interval.ms", kafka_admin.SET, "50000")]),
        ),
        1,
        ["topic orders: segment.ms", "group group: consumer.session.timeout.ms", "client metrics metrics: interval.ms"],
    ),
    (changing(K.METADATA, **ASKED_FOR), 12, ["asked-for"]),
    (
        changing(K.STREAMS_GROUP_HEARTBEAT, group_id="app", topology={"epoch": 0, "subtopologies": PARTS}, **INSTANCE),
        0,
        ["app-store-changelog"],
    ),
    (kafka_admin.delete_records(("orders", 0, 1)), 2, ["orders-0"]),
    (
        changing(K.OFFSET_DELETE, group_id="group", topics=[{"name": "orders", "partitions": [{"partition_index": 0}]}]),
        0,
        ["group: orders-0"],
    ),
    (changing(K.DELETE_GROUPS, groups_names=["other"]), 2, ["other"]),
    (changing(K.ALTER_SHARE_GROUP_OFFSETS, group_id="sharers", topics=[SHARED]), 0, ["sharers: orders"]),
    (changing(K.DELETE_SHARE_GROUP_OFFSETS, group_id="sharers", topics=[{"topic_name": "orders"}]), 0, ["sharers: orders"]),
    (changing(K.WRITE_TXN_MARKERS, markers=[{**MARKED, "topics": [OF_ORDERS]}]), 1, ["producer 7: orders-0"]),
    (changing(K.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[USER]), 0, ["set carol"]),
    (changing(K.CREATE_ACLS, creations=[ACL]), 3, ["ALLOW User:carol at * READ TOPIC LITERAL orders"]),
    (changing(K.DELETE_ACLS, filters=[FILTER]), 3, ["ANY None at None ANY TOPIC LITERAL orders"]),
    (kafka_quotas.altering(([("user", "carol")], [("producer_byte_rate", 1e6)])), 1, ["user carol"]),
    (changing(K.UPDATE_FEATURES, feature_updates=[DISABLED]), 1, ["streams.version=0"]),
    (kafka_admin.delete_topics("asked-for"), 5, ["asked-for"]),
]
"""What is asked for, in order, and the names in the line about it. Values are in none."""
BY_KAFKA: Final = {kafka_wire.api_of(request).key for request, *_ in KAFKA}
IN_GROUPS: Final = (
    K.OFFSET_DELETE,
    K.DELETE_GROUPS,
    K.ALTER_SHARE_GROUP_OFFSETS,
    K.DELETE_SHARE_GROUP_OFFSETS,
    K.WRITE_TXN_MARKERS,
)
"""What they change is in logs, which clients change all the time."""
NATIVE_ACL: Final = m.AclEntry("TOPIC", "orders", "LITERAL", "User:dave", "*", "READ", "ALLOW")
NATIVE: Final[list[tuple[m.RequestMessage, list[str]]]] = [
    (m.CreateTopicsRequest((m.NewTopic("native", 1, {"retention.ms": "-1"}),)), ["native"]),
    (m.CreatePartitionsRequest((m.NewPartitions("native", 2),)), ["native"]),
    (m.AlterConfigsRequest((m.ConfigChange("native", {"flush.ms": "88"}),)), ["native: flush.ms"]),
    (m.DeleteRecordsRequest((m.DeleteRecordsPartition("native", 0, 1),)), ["native-0"]),
    (
        m.AlterQuotasRequest((m.Quota((m.QuotaPart("user", "dave"),), (m.QuotaValue("producer_byte_rate", 1e6),)),)),
        ["user dave"],
    ),
    (m.AlterUsersRequest((m.UserChange("dave", "SCRAM-SHA-256", 4096, b"salt", SECRET),)), ["set dave"]),
    (m.CreateAclsRequest((NATIVE_ACL,)), ["ALLOW User:dave at * READ TOPIC LITERAL orders"]),
    (m.DeleteAclsRequest((m.AclEntry(principal="User:dave"),)), ["ANY User:dave at None ANY ANY ANY None"]),
    (m.AcceptGapsRequest((m.AcceptGapsPartition("native", 0, 1),)), ["native-0: offset 1"]),
    (m.AbortTransactionRequest("nobody"), ["transactional id nobody"]),
    (m.AbortHangingTransactionsRequest((m.HangingTransaction("native", 0, 7),)), ["native-0: producer 7"]),
    (m.DeleteGroupsRequest(("third",)), ["third"]),
    (m.AlterShareGroupOffsetsRequest("sharers", (m.SharedStart("native", 0, 1),)), ["sharers: native"]),
    (m.DeleteTopicsRequest(("native",)), ["native"]),
]


REFUSED: Final = (m.AcceptGapsRequest, m.AbortTransactionRequest, m.AbortHangingTransactionsRequest, m.DeleteGroupsRequest)
"""What there is nothing of: that somebody tried is noted, with the error."""


@attrs.define
class Place:
    """A broker with an audit log, and everybody who may do everything."""

    broker: BlockingBroker = attrs.field(repr=False)
    file: Path
    kafka: kafka_wire.KafkaWire
    native: wire_client.WireClient
    world: World
    """Of which nothing has been made."""
    control: ControlApi = attrs.field(repr=False)

    def state(self) -> Any:
        """All that only an administrator changes."""
        return self.broker.call_now(lambda: state_of(self.broker._target.core))

    def lines(self) -> list[dict[str, Any]]:
        whole = self.file.read_text().rpartition("\n")[0]  # a line may be half written
        return [each for each in map(json.loads, whole.splitlines()) if each["event"] == "change"]

    def line_after(self, change: Callable[[], Any]) -> dict[str, Any]:
        """The one line that a change leaves. Lines are written in the order of changes, soon."""
        before, deadline = len(self.lines()), time.monotonic() + DEADLINE_S
        change()
        while len(found := self.lines()) == before:
            assert time.monotonic() < deadline, "no line"
        [line] = found[before:]
        return line


def state_of(core: Broker) -> Any:
    topics = {name: core.topics.describe(name) for name in core.topics.names()}
    return (
        {name: (each.config, [partition.log_start_offset for partition in each.partitions]) for name, each in topics.items()},
        dict(core.security.scram_users()),
        frozenset(core.security._copies.state.acls),
        {entity: dict(values) for entity, values in core.security.client_quotas().items()},
        {group: dict(values) for group, values in core.group_configs.overrides().items()},
        {name: dict(values) for name, values in core.client_metrics.overrides().items()},
        dict(core.broker_configs.levels),
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    file = tmp_path / "audit.jsonl"
    security = {"acl_enable": "true", "super_users": f"User:{ADMIN};User:ANONYMOUS", "audit_file": str(file)}
    with triolog.blocking.open(
        MEMORY,
        kafka=Address("127.0.0.1", 0),
        lenient=False,
        telemetry=True,
        users=users(),
        security=security,
        native="127.0.0.1:0",
    ) as broker:
        assert broker.kafka is not None
        assert broker.native is not None
        world = World(broker.kafka)
        with world.as_user(ADMIN) as kafka, wire_client.WireClient.connect(broker.native) as native:
            yield Place(broker, file, kafka, native, world, ControlApi(broker._target.life))


def append(place: Place, topic: str) -> None:
    place.broker.append(topic, [b"a", b"b"])


def test_changes_by_kafkas_protocol(place: Place) -> None:
    for request, version, names in KAFKA:
        key = kafka_wire.api_of(request).key
        if key is K.DELETE_RECORDS:
            append(place, "orders")
        for group in ("group", "other", "third"):
            if key is K.OFFSET_DELETE:
                topics = [{"name": "orders", "partitions": [COMMITTED]}]
                place.kafka.call(changing(K.OFFSET_COMMIT, group_id=group, generation_id_or_member_epoch=-1, topics=topics), 9)
        before = place.state()
        line = place.line_after(partial(place.kafka.call, request, version))
        assert (line["api"], line["names"], line["errors"]) == (APIS[key].name, names, []), key
        assert (line["principal"], line["host"], line["protocol"]) == (f"User:{ADMIN}", "127.0.0.1", "kafka")
        assert key in IN_GROUPS or place.state() != before, key
    assert {*kafka_audited.AUDITED, K.METADATA, K.STREAMS_GROUP_HEARTBEAT} == BY_KAFKA
    told = str([line["names"] for line in place.lines()])
    assert all(value not in told for value in ("50000", "77", "100000", SECRET.decode(), SECRET.hex()))


@pytest.mark.merge
def test_other_apis_of_kafka_change_nothing(place: Place) -> None:
    """Asked as by the tests of rights, each by who may do everything, about a topic that is there and names that are not."""
    asked = [case for case in CASES if case.key not in BY_KAFKA or (case.key is K.METADATA and not case.is_about_new)]
    assert {case.key for case in asked} | BY_KAFKA >= {*APIS} - {K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE}
    world = World.made(place.world.address)
    before = place.state()
    for case in asked:
        for of in ("there", "nobody"):
            with world.as_user(ADMIN) as client:
                for body, version in (*case.prepared(world.names(of)), case.request(world.names(of))):
                    client.call(body, version)
        assert place.state() == before, case.label


def call_native(place: Place, message: m.RequestMessage) -> None:
    """Some are refused as a whole."""
    with suppress(RequestError) if isinstance(message, REFUSED) else nullcontext():
        place.native.call(message)


def test_changes_by_the_native_protocol(place: Place) -> None:
    for message, names in NATIVE:
        if isinstance(message, m.DeleteRecordsRequest):
            append(place, "native")
        line = place.line_after(partial(call_native, place, message))
        assert (line["api"], line["names"], line["protocol"]) == (message.api, names, "native")
        assert line["errors"] == (line["errors"] if isinstance(message, REFUSED) else [])
        assert line["principal"] == "User:ANONYMOUS"
    assert {type(message) for message, _ in NATIVE} == {*native_audited.AUDITED}


def test_changes_by_the_program_itself(place: Place) -> None:
    broker = place.broker
    changes: list[tuple[str, Callable[[], Any], list[str]]] = [
        ("create_topic", partial(broker.create_topic, "mine", 1, {"retention.ms": "-1"}), ["mine"]),
        ("create_partitions", partial(broker.create_partitions, "mine", 2), ["mine"]),
        ("alter_config", partial(broker.alter_config, "mine", {"flush.ms": "99"}), ["mine: flush.ms"]),
        (
            "alter_group_config",
            partial(broker.alter_group_config, "g", {"share.auto.offset.reset": "earliest"}),
            ["group g: share.auto.offset.reset"],
        ),
        ("delete_records", partial(broker.delete_records, "mine"), ["mine-0"]),
        ("delete_topic", partial(broker.delete_topic, "mine"), ["mine"]),
    ]
    for api, change, names in changes:
        line = place.line_after(change)
        assert (line["protocol"], line["api"], line["names"], line["errors"]) == ("embedded", api, names, [])
        assert line["principal"] is None


def test_changes_by_the_control_port(place: Place) -> None:
    control = place.control
    for api, change in [
        ("POST /topics", partial(control.create_topic, {"name": "controlled"})),
        ("DELETE /topics", partial(control.delete_topic, {}, "controlled")),
    ]:
        line = place.line_after(partial(place.broker.call, change))
        assert (line["protocol"], line["api"], line["names"], line["errors"]) == ("control", api, ["controlled"], [])


def test_what_was_refused_is_told_with_its_error_and_what_was_only_tried_is_not(place: Place) -> None:
    wrong = partial(place.kafka.call, kafka_admin.create_topics(kafka_admin.new_topic("bad name")), 7)
    line = place.line_after(wrong)
    assert (line["names"], line["errors"]) == (["bad name"], ["INVALID_TOPIC_EXCEPTION"])
    place.kafka.call(kafka_admin.create_topics(kafka_admin.new_topic("tried"), validate_only=True), 7)
    assert place.line_after(wrong)["names"] == ["bad name"]
