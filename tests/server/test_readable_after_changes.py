"""No change is accepted that the next start could not read: sizes of files, values and names are checked before it counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.access.acls import Acl
from triolog.server.broker import Broker
from triolog.server.storage.disk import checkpoints

from tests.support.brokers import running_broker

SHA_256 = ScramMechanism.SCRAM_SHA_256
LIMIT = 4096
FEW = 200
"""Changes, more than fit into a file of LIMIT bytes."""


def _acl(name: str) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW)


async def _topic(broker: Broker, number: int) -> None:
    await broker.topics.create(f"topic-{number}", 1, {"retention.ms": "1"})


async def _topic_config(broker: Broker, number: int) -> None:
    if not number:
        await broker.topics.create("one")
    await broker.topics.alter_configs("one", {"retention.hold.groups": ",".join(f"group-{i}" for i in range(number * 10))}, ())


async def _quota(broker: Broker, number: int) -> None:
    await broker.security.alter_client_quotas({(("client-id", f"{number}"),): {"producer_byte_rate": 1.0}})


async def _acls(broker: Broker, number: int) -> None:
    await broker.security.create_acls([_acl(f"{number}")])


async def _user(broker: Broker, number: int) -> None:
    credential = ScramCredential.from_salted_password(SHA_256, 4096, b"salt", b"x" * 32)
    await broker.security.alter_scram_users({(f"user-{number}", SHA_256): credential}, ())


async def _group(broker: Broker, number: int) -> None:
    await broker.group_configs.change(f"group-{number}", lambda _: {"share.auto.offset.reset": "earliest"})


async def _metrics(broker: Broker, number: int) -> None:
    await broker.client_metrics.change(f"subscription-{number}", lambda _: {"metrics": "org.apache.kafka." * 5})


FLOODS: dict[str, tuple[str, Callable[[Broker, int], Awaitable[None]]]] = {
    "topics": ("topics.json", _topic),
    "partitions": ("recovery-point-offset-checkpoint", _topic),
    "configurations of a topic": ("topics.json", _topic_config),
    "quotas": ("security.json", _quota),
    "ACLs": ("security.json", _acls),
    "users": ("security.json", _user),
    "groups": ("groups.json", _group),
    "subscriptions": ("client-metrics.json", _metrics),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_is_refused_before_a_file_is_too_large(
    flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that was accepted is there after a restart, and changes can be made again."""
    name, change = FLOODS[flood]
    monkeypatch.setitem(checkpoints.LIMITS, name, LIMIT)
    async with running_broker(tmp_path) as broker:
        for number in range(FEW):
            try:
                await change(broker, number)
            except RequestError as exc:
                refusal = exc
                break
        assert (refusal.code, number > 0) == (ErrorCode.POLICY_VIOLATION, True)
        stored = _stored(broker)
    assert all((tmp_path / each).stat().st_size <= LIMIT for each in (name, f"{name}.previous") if (tmp_path / each).exists())
    async with running_broker(tmp_path) as broker:
        assert _stored(broker) == stored


def _stored(broker: Broker) -> tuple[object, ...]:
    topics = {name: broker.topics.describe(name).config for name in broker.topics.names()}
    security = broker.security
    states = dict(security.client_quotas()), dict(security.scram_users()), dict(broker.group_configs.overrides())
    return topics, *states, dict(broker.client_metrics.overrides())


async def test_values_and_names_have_limits(tmp_path: Path) -> None:
    long = "1:1," * 10_000 + "1:1"
    async with running_broker(tmp_path, lenient=True) as broker:
        await broker.topics.create("one")
        too_long = [
            lambda: broker.topics.create("two", 1, {"leader.replication.throttled.replicas": long}),
            lambda: broker.topics.create("two", 1, {"k" * 256: "v"}, lenient=True),
            lambda: broker.topics.create("two", 1, {"retention.hold.groups": long}, validate_only=True),
            lambda: broker.topics.alter_configs("one", {"retention.hold.groups": long}, ()),
            lambda: broker.topics.change_configs("one", lambda _: {"unknown": long}, lenient=True),
            lambda: broker.group_configs.change("g", lambda _: {"share.auto.offset.reset": long}),
            lambda: broker.client_metrics.change("s", lambda _: {"metrics": long}),
            lambda: broker.client_metrics.change("s" * 1025, lambda _: {"metrics": "a"}),
            lambda: broker.security.alter_client_quotas({(("client-id", "x" * 1025),): {"producer_byte_rate": 1.0}}),
            lambda: broker.security.create_acls([_acl("x" * 1025)]),
        ]
        for change in too_long:
            with pytest.raises(RequestError, match=r"at most|maximum value size") as raised:
                await change()
            assert len(str(raised.value)) < 1000
