"""Who may send metrics: the checks of Kafka's ClientMetricsManager in its order, what each client is asked for, limits. What
clients have sent: read from OTLP in every codec, added up, within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.compression import compress
from triolog.protocol.types import CompressionType
from triolog.server.config.resource_keys import Subscription, subscription
from triolog.server.system.client_memory import ClientMemory
from triolog.server.telemetry import instances, otlp
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
    with pytest.raises(RequestError, match=r"^THROTTLING_QUOTA_EXCEEDED"):
        get(clients, 1_000)
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


PUSHING_CLIENT = {"client_id": "a", "client_instance_id": "i"}


def sent() -> bytes:
    """A gauge, a counter of two partitions as deltas, a histogram."""
    data = MetricsData()
    metrics: Any = data.resource_metrics.add().scope_metrics.add().metrics
    gauge = metrics.add(name="rate")
    gauge.gauge.data_points.add(as_double=2.5)
    total = metrics.add(name="total")
    total.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    for number in range(2):
        point = total.sum.data_points.add(as_int=10 + number)
        point.attributes.add(key="partition").value.int_value = number
    histogram = metrics.add(name="latency")
    histogram.histogram.data_points.add(count=3, sum=4.5)
    return bytes(data.SerializeToString())


POINTS = [
    otlp.Point("rate", "", 2.5, False),
    otlp.Point("total", "partition=0", 10.0, True),
    otlp.Point("total", "partition=1", 11.0, True),
    otlp.Point("latency.count", "", 3.0, False),
    otlp.Point("latency.sum", "", 4.5, False),
]


def read_points(data: bytes, codec: CompressionType, *, max_bytes: int) -> list[otlp.Point]:
    steps = otlp.point_steps(otlp.unpack(data, codec, max_bytes=max_bytes))
    while True:
        try:
            next(steps)
        except StopIteration as exc:
            found: list[otlp.Point] = exc.value
            return found


@pytest.mark.parametrize("codec", CompressionType)
def test_numbers_are_read_in_every_codec(codec: CompressionType) -> None:
    data = b"".join([compress(codec, sent(), max_bytes=2**20)])
    assert read_points(data, codec, max_bytes=2**20) == POINTS


def test_what_cannot_be_read_is_an_invalid_record() -> None:
    bomb = b"".join([compress(CompressionType.GZIP, bytes(10_000), max_bytes=2**20)])
    for data, codec in ((b"\xff\xff", CompressionType.NONE), (b"no gzip", CompressionType.GZIP), (bomb, CompressionType.GZIP)):
        with pytest.raises(RequestError, match=r"^INVALID_RECORD"):
            read_points(data, codec, max_bytes=1_000)


def shown(kept: instances.Collected, now_ms: int = 0) -> dict[str, float]:
    return {f"{each.metric} {each.attributes}": each.value for each in kept.series(now_ms)}


def test_what_is_counted_is_added_up_and_the_rest_replaced() -> None:
    kept = instances.Collected()
    for _ in range(2):
        kept.add(b"i", PUSHING_CLIENT, POINTS, now_ms=0, expires_ms=100)
    assert shown(kept) == {
        "rate ": 2.5,
        "total partition=0": 20.0,
        "total partition=1": 22.0,
        "latency.count ": 3.0,
        "latency.sum ": 4.5,
    }
    assert shown(kept, 100) == {}


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "MAX_SERIES_OF_CLIENT", 2)
    monkeypatch.setattr(instances, "MAX_SERIES", 3)
    monkeypatch.setattr(instances, "MAX_CLIENTS", 2)
    kept = instances.Collected()
    kept.add(b"1", PUSHING_CLIENT, POINTS, now_ms=0, expires_ms=100)
    assert (len(shown(kept)), kept.left_out) == (2, 3)
    kept.add(b"2", PUSHING_CLIENT, POINTS, now_ms=0, expires_ms=100)
    assert (len(list(kept.series(0))), kept.left_out) == (3, 7)
    kept.add(b"3", PUSHING_CLIENT, POINTS[:1], now_ms=0, expires_ms=100)
    assert len(list(kept.series(0))) == 2, "the first has made room"
