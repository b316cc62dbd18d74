"""Requests of Kafka's protocol that are valid in their encoding and mean something: a value for each field by its name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from triolog.protocol.coordinator.classic_group_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from triolog.protocol.kafka.apis import APIS, Api, ApiKey
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import BOOL, BYTES, RECORDS, STRING, UUID, Element, Field, Primitive, fields_of
from triolog.protocol.schema.primitives import write_unsigned_varint

from tests.support.kafka_wire import Asked, ask

from .world import GROUPS, INT32_MAX, INTERNAL, PATTERNS, SERVED_GROUPS, SHARE_GROUPS, STREAMS_GROUPS, TRANSACTIONAL_IDS, World

KEYS: Final = tuple(APIS)
OFTEN: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.CREATE_TOPICS,
)
"""What others build on."""
MAY_WAIT: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH})
"""For other clients, or for records."""
PART: Final = {"subtopology_id": "0", "source_topics": ["plain"], "state_changelog_topics": [{"name": "streams-changelog"}]}
APPLICATION: Final = ask("StreamsGroupHeartbeat", topology={"subtopologies": [PART]}).topology
"""What can be run, until its topics are deleted."""
SUBSCRIPTION: Final = encode_consumer_protocol(ConsumerProtocolSubscription(topics=["plain", "small"]), 3)
ASSIGNMENT: Final = encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=[]), 1)
"""Of consumers: with others a group never has members of both protocols."""
CLASSIC: Final = ask("JoinGroup", protocols=[{"name": "range", "metadata": SUBSCRIPTION}]).protocols
NOT_REACHED: Final = (2e9,) * 4
"""Quotas that count and that nobody is ever above: who has to be quiet would keep the run waiting."""
UNKNOWN_TAGS: Final = b"\x02\xce\x10\x03abc\xcf\x10\x00"
"""Two tagged fields that no version has."""


class Sent(NamedTuple):
    """A request's bytes, and what its answer has to be."""

    name: str
    version: int
    data: bytes
    asked: Asked | None
    """None: it has no answer."""
    body: Any
    may_wait: bool


def draw(world: World, correlation_id: int) -> Sent:
    """The next request of whoever `world.me` is."""
    api = APIS[world.one_of(OFTEN if world.chance(0.4) else KEYS)]
    version = world.random.randint(api.lowest_read, api.highest)
    body = value_of(api.request, version, world)
    has_answer = api.key is not ApiKey.PRODUCE or body.acks != 0
    asked = Asked(api, version, correlation_id)
    return Sent(
        api.name,
        version,
        frame(api, version, correlation_id, body, world),
        asked if has_answer else None,
        body,
        api.key in MAY_WAIT,
    )


def frame(api: Api, version: int, correlation_id: int, body: Any, world: World) -> bytes:
    """As it goes over the wire, sometimes with tagged fields that nobody knows."""
    flexible = api.is_flexible(version)
    client = world.one_of((b"\xff\xff", b"\0\0", b"\0\4fuzz", b"\0\4fuzz"))
    tags = b"" if not flexible else UNKNOWN_TAGS if world.chance(0.1) else b"\0"
    data = b"".join(codec.write(body, version, flexible=flexible))
    if flexible and world.chance(0.1) and not any(field.tag is not None for field in fields_of(api.request, version)):
        size = world.one_of((0, 5, 5000))
        data = data[:-1] + b"\x01\xe7\x07" + write_unsigned_varint(size) + bytes(size)
    payload = struct.pack(">hhi", api.key, version, correlation_id) + client + tags + data
    return struct.pack(">i", len(payload)) + payload


def value_of(cls: type, version: int, world: World) -> Any:
    """An instance with the fields of a version."""
    values = {}
    for field in fields_of(cls, version):
        if field.tag is None or world.chance(0.5):
            values[field.name] = _field(field, version, world)
    if "configs" in values and values.get("resource_name") in INTERNAL:
        values["resource_name"] = "plain"  # an administrator can configure them so that the server cannot write to them
    if cls is APIS[ApiKey.STREAMS_GROUP_HEARTBEAT].request:
        _straightened(values, world)
    if cls is APIS[ApiKey.CONSUMER_GROUP_HEARTBEAT].request and world.chance(0.5):
        _as_second_member(values, world)
    if cls is APIS[ApiKey.JOIN_GROUP].request and world.chance(0.5):
        classic = {"session_timeout_ms": 6000, "protocol_type": "consumer", "protocols": CLASSIC, "group_instance_id": None}
        values |= {name: value for name, value in classic.items() if name in values}
        values |= {"group_id": world.me.group, "member_id": world.me.member}
    if "share_session_epoch" in values:
        values["group_id"] = world.mostly(SERVED_GROUPS[0], values["group_id"], None, usually=0.9)
        values["member_id"] = world.mostly(world.me.sharer, values["member_id"], None, usually=0.9)
    return cls(**values)


def _straightened(values: dict[str, Any], world: World) -> None:
    """A heartbeat of a Streams group that is mostly not refused for the first thing that Kafka 4.3 does not support."""
    if world.chance(0.2):
        return
    me = world.me
    values |= dict.fromkeys(("instance_id", "rack_id", "task_offsets", "task_end_offsets"))
    values["group_id"] = world.mostly(me.group if me.group in STREAMS_GROUPS else STREAMS_GROUPS[0], values["group_id"])
    values["member_id"] = world.mostly(me.sharer, values["member_id"], usually=0.9)
    values["member_epoch"] = epoch = world.mostly(me.streams_epoch, 0, -1, 3, usually=0.9)
    if epoch == 0:
        values |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        values["topology"] = world.mostly(APPLICATION, values["topology"])
    else:
        values |= {"topology": None, "warmup_tasks": None if values["active_tasks"] is None else []}
        values["standby_tasks"] = values["warmup_tasks"]


def _as_second_member(values: dict[str, Any], world: World) -> None:
    """A heartbeat of a member beside the one that uses the classic protocol, in the same group."""
    me = world.me
    values |= dict.fromkeys(("instance_id", "rack_id", "subscribed_topic_regex", "server_assignor"))
    values |= {"group_id": me.group, "member_id": me.sharer, "subscribed_topic_names": ["plain"], "rebalance_timeout_ms": 10}
    values["member_epoch"] = epoch = world.mostly(me.consumer_epoch, 0, -1, usually=0.9)
    values["topic_partitions"] = None if epoch else []


def _field(field: Field, version: int, world: World) -> Any:
    if version in field.nullable and world.chance(0.15):
        return None
    if not field.is_array:
        return _one(field.name, field.element, version, world)
    elements = [_one(field.name, field.element, version, world) for _ in range(world.count())]
    if elements and world.chance(0.1):
        elements.append(elements[0])
    return elements


def _one(name: str, element: Element, version: int, world: World) -> Any:
    if not isinstance(element, Primitive):
        return value_of(element, version, world)
    if (choose := BY_NAME.get(name)) is not None:
        value = choose(world)
        if _fits(value, element):
            return value
    if element is STRING:
        return world.text()
    if element is UUID:
        return world.topic_id()
    if element is BOOL:
        return world.chance(0.5)
    if element is BYTES:
        return world.blob()
    if element.format == "d":
        return world.one_of((0.0, -1.0, 1e300, float("nan"), *NOT_REACHED))
    return world.number(8 * struct.calcsize(f">{element.format}"), signed=element.format.islower())


def _named(world: World) -> str:
    """`name` is a topic's in most messages, in some a configuration's or a user's."""
    return world.mostly(world.topic(), world.config(), "alice", "uniform", usually=0.75)


def _resource(world: World) -> str:
    return world.mostly(world.topic(), "", "0", "1", "kafka-cluster", "*", world.me.group, usually=0.6)


def _fits(value: Any, element: Primitive) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return isinstance(value, type(element.default)) or element is RECORDS
    if not isinstance(element.default, int) or element is BOOL:
        return False
    bits = 8 * struct.calcsize(f">{element.format}") - 1
    return -(2**bits) <= value < 2**bits


ALIKE: Final[dict[str, Callable[[World], Any]]] = {
    "topic topic_names subscribed_topic_names source_topics": World.topic,
    "partition partition_index partition_indexes partitions index": World.partition,
    "broker_ids replicas min_bytes endpoint_information_epoch topology_epoch": lambda world: world.mostly(0, 1, -1, INT32_MAX),
    "group_id group_ids groups groups_names": World.group,
    "group_instance_id instance_id": lambda world: world.mostly(world.me.instance or "", "other", "", usually=0.8),
    "generation_id generation_id_or_member_epoch": lambda world: world.epoch(world.me.generation),
    "subscribed_topic_regex transactional_id_pattern": lambda world: world.one_of(PATTERNS),
    "producer_epoch v3_and_below_producer_epoch": lambda world: world.epoch(world.me.producer_epoch),
    "fetch_offset offset committed_offset start_offset first_offset last_offset": World.offset,
    "max_bytes partition_max_bytes": lambda world: world.mostly(2**20, 0, 1, -1, INT32_MAX),
    "current_leader_epoch last_fetched_epoch": lambda world: world.mostly(-1, 0, 1, INT32_MAX, usually=0.9),
    "resource_name resource_name_filter": _resource,
    "resource_type resource_types": lambda world: world.mostly(2, 4, 0, 1, 3, 8, 32, 99),
    "entity_name match": lambda world: world.mostly("ANONYMOUS", "fuzz", "127.0.0.1", "alice", ""),
}
"""Names of fields that have the same kind of value, with blanks between them."""
BY_NAME: Final[dict[str, Callable[[World], Any]]] = {
    **{name: choose for names, choose in ALIKE.items() for name in names.split()},
    "name": _named,
    "topic_name": lambda world: world.mostly(world.topic(), "__cluster_metadata"),
    "topic_id": World.topic_id,
    "num_partitions": lambda world: world.mostly(1, -1, 2, 0, -2, 10_001, INT32_MAX),
    "count": lambda world: world.mostly(3, 4, 0, -1, 10_001, INT32_MAX),
    "replication_factor": lambda world: world.mostly(1, -1, 0, 2, 2**15 - 1),
    "member_id": lambda world: world.mostly(world.me.member, "", "nobody", "x" * 300, usually=0.85),
    "member_epoch": lambda world: world.mostly(world.me.generation, 0, -1, -2, -3, INT32_MAX),
    "server_assignor": lambda world: world.mostly("uniform", "range", "bogus", ""),
    "protocol_type": lambda world: world.mostly("consumer", "", "connect", usually=0.9),
    "metadata": lambda world: world.mostly(SUBSCRIPTION, b"", SUBSCRIPTION[:-1], world.random.randbytes(30), usually=0.9),
    "assignment": lambda world: world.mostly(ASSIGNMENT, b"", ASSIGNMENT[:-1], world.random.randbytes(30), usually=0.9),
    "protocol_name": lambda world: world.mostly("range", "", "other", usually=0.9),
    "session_timeout_ms": lambda world: world.mostly(20, 0, -1, 6000, INT32_MAX),
    "rebalance_timeout_ms": lambda world: world.mostly(10, 0, -1, INT32_MAX, usually=0.95),
    "transactional_id": lambda world: world.mostly(world.me.transactional_id or "mover-0", "", "unknown", "x" * 32_767),
    "v3_and_below_transactional_id": lambda world: world.mostly(world.me.transactional_id or "mover-0", "", "unknown"),
    "transactional_ids": lambda world: world.one_of((*TRANSACTIONAL_IDS, "", "unknown")),
    "producer_id": lambda world: world.mostly(world.me.producer_id, -1, 0, 2**63 - 1, -(2**63), usually=0.9),
    "v3_and_below_producer_id": lambda world: world.mostly(world.me.producer_id, -1, 0, usually=0.9),
    "producer_id_filters": lambda world: world.mostly(world.me.producer_id, -1, 2**63 - 1),
    "transaction_timeout_ms": lambda world: world.mostly(60_000, 1, 0, -1, INT32_MAX),
    "acks": lambda world: world.mostly(-1, 1, 0, 2, -2, usually=0.8),
    "records": World.records,
    "timeout_ms": lambda world: world.mostly(30_000, 0, -1, INT32_MAX, -INT32_MAX - 1),
    "timestamp": World.timestamp,
    "max_wait_ms": World.wait_ms,
    "max_num_offsets": lambda world: world.mostly(1, 0, -1, INT32_MAX),
    "replica_id": lambda world: world.mostly(-1, 0, -2, usually=0.97),
    "replica_epoch": lambda world: -1,
    "isolation_level": lambda world: world.mostly(0, 1, 2, -1, usually=0.5),
    "session_id": lambda world: world.mostly(world.me.session_id, 0, 7, -1),
    "session_epoch": lambda world: world.mostly(world.me.session_epoch, 0, -1, 1, INT32_MAX),
    "share_session_epoch": lambda world: world.mostly(world.me.share_epoch, 0, -1, 1, INT32_MAX, -2, usually=0.9),
    "max_records": lambda world: world.mostly(5, 0, 1, -1, INT32_MAX),
    "batch_size": lambda world: world.mostly(3, 0, 1, -1, INT32_MAX),
    "subtopology_id": lambda world: world.mostly("0", "1", "", "x", usually=0.7),
    "repartition_sink_topics": lambda world: world.mostly("streams-repartition", world.topic()),
    "process_id": lambda world: world.mostly(world.me.group, "", "other"),
    "share_acquire_mode": lambda world: world.mostly(0, 1, 2, -1, usually=0.6),
    "is_renew_ack": lambda world: world.chance(0.1),
    "acknowledge_types": lambda world: world.mostly(1, 0, 2, 3, 4, 5, -1, usually=0.5),
    "leader_epoch": lambda world: world.mostly(0, -1, 1, INT32_MAX),
    "committed_metadata": World.text,
    "response_partition_limit": lambda world: world.mostly(2000, 0, -1, 1, INT32_MAX),
    "principal": lambda world: world.mostly("User:alice", "User:*", "User:ANONYMOUS", "alice", ""),
    "principal_filter": lambda world: world.mostly("User:alice", "User:*", "alice", ""),
    "value": World.config_value,
    "configuration_keys": World.config,
    "config_operation": lambda world: world.mostly(0, 1, 2, 3, 4, -1, usually=0.6),
    "coordinator_keys": lambda world: world.mostly(world.me.group, "", *TRANSACTIONAL_IDS),
    "key_type": lambda world: world.mostly(0, 1, 2, -1),
    "state_filters": lambda world: world.one_of(("Ongoing", "Empty", "", "Bogus")),
    "states_filter": lambda world: world.one_of(("Stable", "empty", "", "Bogus")),
    "types_filter": lambda world: world.one_of(("classic", "consumer", "share", "streams", "", "Bogus")),
    "mechanism": lambda world: world.one_of(("PLAIN", "SCRAM-SHA-256", "", 1, 2, 0, 99)),
    "iterations": lambda world: world.mostly(4096, 0, -1, 16_384, INT32_MAX),
    "feature": lambda world: world.mostly("transaction.version", "group.version", "share.version", "", "bogus"),
    "max_version_level": lambda world: world.mostly(1, 0, 2, -1, 99),  # what is disabled is soon enabled again
    "upgrade_type": lambda world: world.mostly(1, 2, 3, 0),
    "entity_type": lambda world: world.mostly("user", "client-id", "ip", "", "bogus"),
    "match_type": lambda world: world.mostly(0, 1, 2, 7),
    "key": lambda world: world.mostly("producer_byte_rate", "consumer_byte_rate", "request_percentage", world.me.group),
    "cluster_id": lambda world: world.mostly("", "another", usually=0.9),
}
"""What stands in fields of this name. A value of another type than the field's is drawn by its type."""


def learn(world: World, sent: Sent, answer: Any) -> None:
    """What the next requests of the same persona build on."""
    me, body = world.me, sent.body
    match sent.asked and sent.asked.api.key:
        case ApiKey.JOIN_GROUP if answer.member_id and body.group_id == me.group:
            me.member, me.generation = answer.member_id, answer.generation_id
        case ApiKey.CONSUMER_GROUP_HEARTBEAT if body.member_id == me.sharer:
            me.consumer_epoch = 0 if answer.error_code else max(answer.member_epoch, 0)
        case ApiKey.CONSUMER_GROUP_HEARTBEAT if answer.error_code == 0 and body.group_id in (*SERVED_GROUPS, *GROUPS):
            me.member, me.generation = answer.member_id or "", answer.member_epoch
        case ApiKey.SHARE_GROUP_HEARTBEAT if answer.error_code == 0 and body.group_id in SHARE_GROUPS:
            me.member, me.generation = answer.member_id or "", answer.member_epoch
        case ApiKey.STREAMS_GROUP_HEARTBEAT if body.member_id == me.sharer:
            me.streams_epoch = 0 if answer.error_code else max(answer.member_epoch, 0)
        case ApiKey.INIT_PRODUCER_ID if answer.error_code == 0:
            me.producer_id, me.producer_epoch, me.sequence = answer.producer_id, answer.producer_epoch, 0
            me.transactional_id = body.transactional_id
        case ApiKey.END_TXN if answer.error_code == 0 and answer.producer_id >= 0:
            me.producer_id, me.producer_epoch, me.sequence = answer.producer_id, answer.producer_epoch, 0
        case ApiKey.SHARE_FETCH | ApiKey.SHARE_ACKNOWLEDGE if body.member_id == me.sharer and body.group_id == SERVED_GROUPS[0]:
            me.share_epoch = 0 if answer.error_code or body.share_session_epoch < 0 else body.share_session_epoch + 1
        case ApiKey.FETCH if answer.error_code == 0 and answer.session_id:
            me.session_epoch = me.session_epoch + 1 if me.session_id == answer.session_id else 1
            me.session_id = answer.session_id
