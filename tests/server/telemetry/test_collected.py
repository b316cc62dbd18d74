"""What clients have sent: read from OTLP in every codec, added up, within limits."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.compression import compress
from triolog.protocol.types import CompressionType
from triolog.server.telemetry import instances, otlp

CLIENT = {"client_id": "a", "client_instance_id": "i"}


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
        with pytest.raises(RequestError) as caught:
            read_points(data, codec, max_bytes=1_000)
        assert caught.value.code is ErrorCode.INVALID_RECORD


def shown(kept: instances.Collected, now_ms: int = 0) -> dict[str, float]:
    return {f"{each.metric} {each.attributes}": each.value for each in kept.series(now_ms)}


def test_what_is_counted_is_added_up_and_the_rest_replaced() -> None:
    kept = instances.Collected()
    for _ in range(2):
        kept.add(b"i", CLIENT, POINTS, now_ms=0, expires_ms=100)
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
    kept.add(b"1", CLIENT, POINTS, now_ms=0, expires_ms=100)
    assert (len(shown(kept)), kept.left_out) == (2, 3)
    kept.add(b"2", CLIENT, POINTS, now_ms=0, expires_ms=100)
    assert (len(list(kept.series(0))), kept.left_out) == (3, 7)
    kept.add(b"3", CLIENT, POINTS[:1], now_ms=0, expires_ms=100)
    assert len(list(kept.series(0))) == 2, "the first has made room"
