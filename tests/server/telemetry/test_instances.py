"""Who may send metrics: the checks of Kafka's ClientMetricsManager in its order, what each client is asked for, limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.config.resource_keys import Subscription, subscription
from triolog.server.system.client_memory import ClientMemory
from triolog.server.telemetry import instances
from triolog.server.telemetry.instances import RESERVED, ClientInstance, ClientInstances, Push

NOBODY: Final = bytes(16)
ME: Final = bytes(range(16))
INTERVAL_MS: Final = 1_000
CLIENT: Final = {"client_id": "a", "client_software_name": "librdkafka"}


@attrs.define(eq=False)
class Wanted:
    subscriptions: dict[str, Subscription] = attrs.field(factory=dict)
    version: int = 1

    def said(self) -> tuple[Mapping[str, Subscription], int]:
        return self.subscriptions, self.version

    def put(self, name: str, **values: str) -> None:
        self.subscriptions[name] = subscription({key.replace("_", "."): value for key, value in values.items()})
        self.version += 1


@pytest.fixture
def wanted() -> Wanted:
    wanted = Wanted()
    wanted.put("all", metrics="a.,b.", interval_ms=str(INTERVAL_MS))
    return wanted


@pytest.fixture
def clients(wanted: Wanted) -> ClientInstances:
    return ClientInstances(100, wanted.said)


def get(clients: ClientInstances, now_ms: int = 0, who: bytes = ME) -> ClientInstance:
    return clients.get(who, CLIENT, "connection", now_ms)


def push(clients: ClientInstances, instance: ClientInstance, now_ms: int, who: bytes | None = None, **said: int) -> ErrorCode:
    asked: dict[str, Any] = {
        "subscription_id": instance.subscription_id,
        "is_terminating": False,
        "compression_type": 0,
        "size_bytes": 10,
    }
    try:
        clients.push(instance.instance_id if who is None else who, CLIENT, Push(**{**asked, **said}), "connection", now_ms)
    except RequestError as exc:
        return ErrorCode(exc.code)
    return ErrorCode.NONE


def test_a_client_gets_an_id_and_is_asked_for_what_it_matches(clients: ClientInstances, wanted: Wanted) -> None:
    wanted.put("mine", metrics="c.", interval_ms="500", match="client_id=a")
    wanted.put("theirs", metrics="d.", interval_ms="100", match="client_id=b")
    instance = get(clients, who=NOBODY)
    assert instance.instance_id not in RESERVED
    assert (instance.metrics, instance.interval_ms) == (("a.", "b.", "c."), 500)
    wanted.put("everything", metrics="*,x")
    again = get(clients, who=instance.instance_id)
    assert (again.instance_id, again.metrics) == (instance.instance_id, ("*",))
    assert again.subscription_id != instance.subscription_id
    assert -(2**31) <= again.subscription_id < 2**31


def test_without_a_subscription_nothing_is_asked_for_and_seldom(clients: ClientInstances, wanted: Wanted) -> None:
    wanted.subscriptions.clear()
    instance = get(clients)
    assert (instance.metrics, instance.interval_ms) == ((), 300_000)


def test_who_asks_or_sends_too_early_is_told_so(clients: ClientInstances) -> None:
    instance = get(clients, 0)
    assert push(clients, instance, 1) is ErrorCode.NONE, "the first one after it has asked may come at any time"
    assert push(clients, instance, 1_000) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with pytest.raises(RequestError) as caught:
        get(clients, 1_000)
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(clients, instance, 1_001) is ErrorCode.NONE
    assert get(clients, 2_001) is instance


def test_what_is_wrong_with_a_push_in_kafkas_order(clients: ClientInstances) -> None:
    instance = get(clients)
    wrong = {"subscription_id": instance.subscription_id + 1, "compression_type": 9, "size_bytes": 101}
    for who in RESERVED:
        assert push(clients, instance, 0, who) is ErrorCode.INVALID_REQUEST
    assert push(clients, instance, 1, **wrong) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(clients, instance, 2, **wrong) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    del wrong["subscription_id"]
    assert push(clients, instance, 1_001, **wrong) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert get(clients, 1_002) is instance, "who has sent something wrong may ask at once what is right"
    del wrong["compression_type"]
    assert push(clients, instance, 2_001, **wrong) is ErrorCode.TELEMETRY_TOO_LARGE
    assert push(clients, instance, 3_001, size_bytes=100) is ErrorCode.NONE


def test_who_ends_may_send_early_and_never_again(clients: ClientInstances) -> None:
    instance = get(clients)
    assert push(clients, instance, 0) is ErrorCode.NONE
    assert push(clients, instance, 1, is_terminating=True) is ErrorCode.NONE
    assert push(clients, instance, 5_000, is_terminating=True) is ErrorCode.INVALID_REQUEST


def test_a_subscription_that_changes_begins_its_clients_anew(clients: ClientInstances, wanted: Wanted) -> None:
    instance = get(clients)
    assert push(clients, instance, 0) is ErrorCode.NONE
    wanted.put("more", metrics="c.")
    assert push(clients, instance, 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert get(clients, 2).metrics == ("a.", "b.", "c.")


def test_who_is_gone_or_silent_is_forgotten(clients: ClientInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    get(clients)
    clients.disconnected("connection")
    clients.disconnected("connection")
    assert len(clients) == 0
    monkeypatch.setattr(instances, "MAX_INSTANCES", 2)
    for number in range(2, 5):
        clients.get(bytes([number] * 16), CLIENT, number, number)
    assert len(clients) == 2
    clients.get(ME, CLIENT, "late", 60_003)
    assert len(clients) == 2, "one was silent for a minute, and the oldest made room"


def test_clients_count_in_bytes_as_they_describe_themselves(wanted: Wanted) -> None:
    account = ClientMemory(40_000).account("client instances")
    clients = ClientInstances(100, wanted.said, account)
    first = clients.get(ME, {"client_id": "c" * 30_000}, "connection", 0)
    assert account.used_bytes > 30_000
    with pytest.raises(RequestError, match=r"^THROTTLING_QUOTA_EXCEEDED.*client instances"):
        clients.get(b"2" * 16, {"client_id": "d" * 30_000}, "other", 0)
    assert len(clients) == 1
    clients.disconnected("connection")
    assert (account.used_bytes, first.client["client_id"]) == (0, "c" * 30_000)
