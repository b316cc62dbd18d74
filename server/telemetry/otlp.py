"""What clients send, read: MetricsData of OpenTelemetry, as protobuf (OTLP 1.x), in one of the codecs of record batches.

The package `opentelemetry-proto` is needed where telemetry is enabled, and loaded then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ...protocol.errors import ErrorCode, InvalidConfigError, RequestError, TriologError
from ...protocol.records.compression import decompress
from ...protocol.types import Bytes, CompressionType

MOST_UNPACKED: Final = 8
"""Times `telemetry_max_bytes` that metrics may have when they are decompressed."""
MAX_NAME_CHARS: Final = 200
MAX_ATTRIBUTES: Final = 20
DELTA: Final = 1
"""AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA."""
MISSING: Final = (
    "telemetry_enable needs the package opentelemetry-proto where the server runs: pip install 'triolog[telemetry]'"
)


class Point(NamedTuple):
    """One number of one metric."""

    metric: str
    attributes: str
    """`name=value`, in order."""
    value: float
    is_delta: bool
    """It is what came to the sum since the last push."""


def load_otlp() -> type[Any]:
    """The class that reads. Raises InvalidConfigError where it is not installed."""
    try:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    except ImportError as exc:
        raise InvalidConfigError(MISSING) from exc
    return MetricsData


def read_points(data: Bytes, compression_type: int, *, max_bytes: int) -> list[Point]:
    """The numbers that a client sends; of histograms their counts and sums. Raises RequestError: INVALID_RECORD."""
    try:
        plain = decompress(CompressionType(compression_type), data, max_bytes=MOST_UNPACKED * max_bytes)
        message = load_otlp().FromString(plain)
    except TriologError as exc:
        raise RequestError(f"the metrics cannot be decompressed: {exc}", ErrorCode.INVALID_RECORD) from exc
    except Exception as exc:  # protobuf's DecodeError, which is not to be imported here
        raise RequestError(f"the metrics cannot be read: {exc}", ErrorCode.INVALID_RECORD) from exc
    return [
        point
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in _points(metric)
    ]


def _points(metric: Any) -> Iterator[Point]:
    name = metric.name[:MAX_NAME_CHARS]
    kind = metric.WhichOneof("data")
    if kind in ("gauge", "sum"):
        told = getattr(metric, kind)
        is_delta = kind == "sum" and told.aggregation_temporality == DELTA
        for each in told.data_points:
            which = each.WhichOneof("value")
            if which is not None:
                yield Point(name, _attributes(each), float(getattr(each, which)), is_delta)
    elif kind == "histogram":
        is_delta = metric.histogram.aggregation_temporality == DELTA
        for each in metric.histogram.data_points:
            yield Point(f"{name}.count", _attributes(each), float(each.count), is_delta)
            yield Point(f"{name}.sum", _attributes(each), float(each.sum), is_delta)


def _attributes(point: Any) -> str:
    told = []
    for each in point.attributes[:MAX_ATTRIBUTES]:
        which = each.value.WhichOneof("value")
        told.append(f"{each.key}={getattr(each.value, which) if which else ''}"[:MAX_NAME_CHARS])
    return ",".join(sorted(told))
