"""Bodies of the native protocol's calls that mean something, each key with a value of its kind; now and then one of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from triolog.protocol.native import messages

from .world import FURNISHED, INT32_MAX, INT64_MAX, INTERNAL, TRANSACTIONAL_IDS, World

Body = dict[str, Any]
Make = Callable[[World], Any]
MAY_WAIT: Final = frozenset({"fetch"})
APPLICATIONS: Final = ("app-0", "app-1", "", "x" * 300)
ODD: Final = (None, True, -1, 2**63, 1.5, "", "x", b"x", [], {}, [None], {"": 1})


def draw(world: World) -> tuple[str, int, Body]:
    """(api, version, body)"""
    api = world.one_of(APIS)
    body = {key: make(world) for key, make in BODIES[api].items()}
    if world.chance(0.04) and body:
        body[world.one_of(list(body))] = world.one_of(ODD)
    if world.chance(0.02):
        body[world.one_of(("odd", "topic", ""))] = world.one_of(ODD)
    if world.chance(0.05) and body:
        del body[world.one_of(list(body))]
    version = world.mostly(1, 0, 2, INT32_MAX, usually=0.98)
    if (
        body.get("acks") == 0 and api == "produce"
    ):  # what cannot be read is answered; then it is not known that it has no answer
        version, body = 1, _without_acks(world)
    return api, version, body


def _without_acks(world: World) -> Body:
    place = {"topic": world.one_of(tuple(FURNISHED)), "partition": int(world.random.random() * 4)}
    return {"partitions": [{**place, "records": world.records()}], "acks": 0}


def _list(**keys: Make) -> Make:
    def make(world: World) -> list[Any]:
        made = [{key: draw_one(world) for key, draw_one in keys.items()} for _ in range(world.count())]
        if made and world.chance(0.1):
            made.append(made[0])
        return made

    return make


def _names(draw_one: Make, *, nullable: bool = False) -> Make:
    def make(world: World) -> list[str] | None:
        if nullable and world.chance(0.1):
            return None
        return [draw_one(world) for _ in range(world.count())]

    return make


def _partition(world: World) -> int:
    return max(world.partition(), 0) if world.chance(0.95) else -1


def _offset(world: World) -> int:
    return max(world.offset(), 0) if world.chance(0.9) else world.offset()


def _records(world: World) -> Any:
    if world.chance(0.7):
        return world.records()
    record = [None, None, b"v", []]
    return [record] * world.count()


def _producer(world: World) -> Any:
    me = world.me
    return {
        "transactional_id": me.transactional_id or world.one_of(TRANSACTIONAL_IDS),
        "producer_id": max(me.producer_id, 0),
        "producer_epoch": max(world.epoch(me.producer_epoch), 0),
    }


def _configured(world: World) -> str:
    name = world.topic()
    return "plain" if name in INTERNAL else name  # an administrator can configure them so that the server cannot write to them


def _config(world: World) -> Any:
    return {world.config(): world.config_value() for _ in range(world.one_of((0, 1, 1, 2)))}


def _application(world: World) -> str:
    return world.one_of(APPLICATIONS)


def _group(world: World) -> str:
    return world.group()


_VERSION: Final[Make] = lambda world: world.mostly(1, 0, 2, 3, INT64_MAX, usually=0.4)  # noqa: E731
_TASK: Final[Make] = lambda world: world.one_of(("task-0", "task-1", "", "a/b", ".."))  # noqa: E731
_state: Final[Make] = lambda world: world.mostly("Ongoing", "Empty", "Dead", "?")  # noqa: E731
_count: Final[Make] = lambda world: world.mostly(1000, 0, 1, 10_000, 10_001)  # noqa: E731
_transactional_id: Final[Make] = lambda world: world.mostly(world.me.transactional_id, "unknown", "")  # noqa: E731
_PLACE: Final[dict[str, Make]] = {"topic": World.topic, "partition": _partition}

_ACL: Final[dict[str, Make]] = {
    "resource_type": lambda world: world.mostly("TOPIC", "GROUP", "ANY", "CLUSTER", "?"),
    "resource_name": World.text,
    "pattern_type": lambda world: world.mostly("LITERAL", "PREFIXED", "ANY", "MATCH", "?"),
    "principal": lambda world: world.mostly("User:fuzzed", "fuzzed", None),
    "host": lambda world: world.mostly("*", "::1", None),
    "operation": lambda world: world.mostly("READ", "ALL", "ANY", "?"),
    "permission": lambda world: world.mostly("ALLOW", "ANY", "?"),
}

BODIES: Final[dict[str, dict[str, Make]]] = {
    "produce": {
        "partitions": _list(**_PLACE, records=_records),
        "acks": lambda world: world.mostly(-1, 1, 0, 2),
        "timeout_ms": lambda world: world.mostly(30_000, 0, 1, INT32_MAX),
        "transactional_id": lambda world: world.mostly(None, world.me.transactional_id, "unknown"),
    },
    "fetch": {
        "partitions": _list(**_PLACE, offset=_offset, max_bytes=lambda world: world.mostly(2**20, 0, 1, INT32_MAX)),
        "max_wait_ms": lambda world: world.mostly(0, 1, 20, usually=0.9),
        "min_bytes": lambda world: world.mostly(0, 1, INT32_MAX),
        "max_bytes": lambda world: world.mostly(2**20, 0, 1, INT32_MAX),
        "isolation": lambda world: world.one_of(("read_uncommitted", "read_committed")),
        "format": lambda world: world.one_of(("batches", "records")),
        "gaps": lambda world: world.one_of((None, "refuse", "skip")),
    },
    "offsets_for_times": {
        "partitions": _list(**_PLACE, timestamp=World.timestamp),
        "isolation": lambda world: world.one_of(("read_uncommitted", "read_committed")),
    },
    "explain": {"partitions": _list(**_PLACE, offset=_offset), "with_segments": lambda world: world.one_of((False, True))},
    "metadata": {"topics": _names(World.topic, nullable=True)},
    "create_topics": {
        "topics": _list(name=World.topic, partitions=lambda world: world.mostly(2, 1, 0, 10_001), config=_config),
        "validate_only": lambda world: world.chance(0.5),
    },
    "delete_topics": {"topics": _names(World.topic)},
    "describe_configs": {"topics": _names(World.topic)},
    "create_partitions": {"topics": _list(name=World.topic, total=lambda world: world.mostly(4, 0, 1, 10_001))},
    "alter_configs": {"topics": _list(name=_configured, set=_config, delete=_names(World.config))},
    "delete_records": {"partitions": _list(**_PLACE, before_offset=World.offset)},
    "init_producer": {
        "transactional_id": lambda world: world.mostly(world.me.transactional_id, None, "unknown"),
        "timeout_ms": lambda world: world.mostly(60_000, 0, 1, INT32_MAX),
    },
    "end_transaction": {
        **{
            key: (lambda world, key=key: _producer(world)[key]) for key in ("transactional_id", "producer_id", "producer_epoch")
        },
        "commit": lambda world: world.chance(0.5),
    },
    "list_transactions": {
        "states": _names(_state, nullable=True),
        "open_for_ms": lambda world: world.mostly(None, 0, 1000, INT64_MAX),
        "max_transactions": _count,
    },
    "describe_transactions": {"transactions": _names(_transactional_id)},
    "describe_producers": {
        "partitions": _list(**_PLACE),
        "open_only": lambda world: world.chance(0.5),
        "max_producers": _count,
    },
    "abort_transaction": {"transactional_id": _transactional_id},
    "abort_hanging_transactions": {
        "partitions": _list(**_PLACE, producer_id=lambda world: world.mostly(_producer(world)["producer_id"], 0, INT64_MAX))
    },
    "commit_offsets": {
        "group": _group,
        "partitions": _list(**_PLACE, offset=_offset, metadata=World.text),
        "transaction": lambda world: None if world.chance(0.6) else _producer(world),
    },
    "fetch_offsets": {
        "group": _group,
        "partitions": lambda world: None if world.chance(0.2) else _list(**_PLACE)(world),
        "require_stable": lambda world: world.chance(0.5),
    },
    "list_groups": {},
    "describe_groups": {"groups": _names(_group)},
    "delete_groups": {"groups": _names(_group)},
    "alter_share_group_offsets": {"group": _group, "partitions": _list(**_PLACE, start_offset=_offset)},
    "describe_quotas": {},
    "alter_quotas": {
        "changes": _list(
            entity=_list(type=lambda world: world.mostly("user", "client-id", "ip", "?"), name=World.text),
            values=_list(
                key=lambda world: world.mostly("request_percentage", "connection_creation_rate", "?"),
                value=lambda world: world.mostly(1e9, 0, -1, None, float("nan")),
            ),
        )
    },
    "describe_users": {},
    "alter_users": {
        "changes": _list(
            user=World.text,
            mechanism=lambda world: world.mostly("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
            iterations=lambda world: world.mostly(4096, 0, 1, INT32_MAX),
            salt=lambda world: world.mostly(b"salt", b""),
            salted_password=lambda world: world.mostly(b"secret", b"", None),
        )
    },
    "describe_acls": {"filter": lambda world: {key: make(world) for key, make in _ACL.items()}},
    "create_acls": {"acls": _list(**_ACL)},
    "delete_acls": {"filters": _list(**_ACL)},
    "list_gaps": {"topics": _names(World.topic, nullable=True)},
    "accept_gaps": {"partitions": _list(**_PLACE, start_offset=_offset)},
    "describe_segments": {
        "partitions": _list(**_PLACE, from_offset=_offset),
        "max_segments": lambda world: world.mostly(1000, 0, 1, 10_000, 10_001),
    },
    "split_points": {
        "partitions": _list(
            **_PLACE, start=_offset, end=_offset, target_bytes=lambda world: world.mostly(1000, 1, 0, INT64_MAX)
        )
    },
    "stage": {
        "application": _application,
        "version": _VERSION,
        "task": _TASK,
        "partitions": _list(**_PLACE, records=World.records),
    },
    "commit_stage": {
        "application": _application,
        "version": _VERSION,
        "tasks": _list(
            task=_TASK,
            partitions=_list(**_PLACE, size_bytes=lambda world: world.mostly(73, 1, 0), crc=lambda world: world.number(31)),
        ),
    },
    "abort_stage": {"application": _application, "version": _VERSION, "tasks": _names(_TASK, nullable=True)},
    "last_commit": {"application": _application},
    "lease_segments": {
        "partitions": _list(**_PLACE),
        "lease_ms": lambda world: world.mostly(1000, 0, 1, INT64_MAX),
        "lease_id": lambda world: world.mostly(None, "lease", "x" * 100),
    },
    "list_connections": {"max_connections": _count},
    "statistics": {},
    "hello": {"client_id": World.text},
    "authenticate": {
        "mechanism": lambda world: world.mostly("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "?"),
        "data": lambda world: world.mostly(b"n,,n=user,r=nonce", b"", b"\0user\0password", b"c=biws,r=nonce,p=AAAA"),
    },
}
"""By call, what draws each key."""

APIS: Final = tuple(name for name in BODIES if name != "hello")
assert set(BODIES) == set(messages.REQUESTS), set(BODIES) ^ set(messages.REQUESTS)
