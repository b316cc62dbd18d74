"""Decodes metrics that clients send: MetricsData of OpenTelemetry, as protobuf (OTLP 1.x), in one of the codecs of record
batches.

A few hundred bytes can unpack to millions of messages. So they are unpacked in a thread, and walked here in steps and within a
limit, down to the data points. The package `opentelemetry-proto` reads each of these, which is small. It is needed, and loaded,
where telemetry is enabled.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final, NamedTuple

import attrs

from ...protocol.errors import ErrorCode, InvalidConfigError, RequestError, TriologError
from ...protocol.extras import how_to_install
from ...protocol.records.unpacking import decompress
from ...protocol.types import Bytes, CompressionType

MOST_UNPACKED: Final = 8
"""Times `telemetry_max_bytes` that metrics may have when they are decompressed."""
MAX_FIELDS: Final = 100_000
"""Of all messages of a push above its data points: a walk of about 100 ms, in steps."""
MAX_POINT_BYTES: Final = 16 * 1024
FIELDS_PER_PAUSE: Final = 128
POINTS_PER_PAUSE: Final = 16
MAX_NAME_CHARS: Final = 200
MAX_ATTRIBUTES: Final = 20
DELTA: Final = 1
"""AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA."""
MISSING: Final = f"telemetry_enable needs the package opentelemetry-proto where the server runs: {how_to_install('telemetry')}"

# Numbers of fields, and wire types of protobuf.
RESOURCE_METRICS, SCOPE_METRICS, METRICS = 1, 2, 2
NAME, GAUGE, SUM, HISTOGRAM = 1, 5, 7, 9
DATA_POINTS, TEMPORALITY = 1, 2
VARINT, FIXED_64, MESSAGE, FIXED_32 = 0, 1, 2, 5
FIXED: Final = {FIXED_64: 8, FIXED_32: 4}


class Point(NamedTuple):
    """A number of a metric."""

    metric: str
    attributes: str
    """`name=value`, in order."""
    value: float
    is_delta: bool
    """It is what came to the sum since the last push."""


class Messages(NamedTuple):
    """The classes that read data points."""

    number: Any
    histogram: Any


def load_otlp() -> Messages:
    """Return the message classes that read data points. Raises InvalidConfigError where the package is not installed."""
    try:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, NumberDataPoint
    except ImportError as exc:
        raise InvalidConfigError(MISSING) from exc
    return Messages(NumberDataPoint, HistogramDataPoint)


def unpack(data: Bytes, compression_type: int, *, max_bytes: int) -> memoryview:
    """The metrics as protobuf. Raises RequestError: INVALID_RECORD."""
    try:
        return memoryview(decompress(CompressionType(compression_type), data, max_bytes=MOST_UNPACKED * max_bytes))
    except TriologError as exc:
        raise RequestError(f"the metrics cannot be decompressed: {exc}", ErrorCode.INVALID_RECORD) from exc


def point_steps(plain: memoryview) -> Generator[None, None, list[Point]]:
    """The numbers that a client sends; of histograms their counts and sums. Raises RequestError: INVALID_RECORD."""
    walk, points = _Walk(), list[Point]()
    try:
        for resource in (yield from walk.messages([plain], RESOURCE_METRICS)):
            for scope in (yield from walk.messages([resource], SCOPE_METRICS)):
                for metric in (yield from walk.messages([scope], METRICS)):
                    yield from _metric_steps(walk, metric, points)
    except RequestError:
        raise
    except Exception as exc:  # IndexError and UnicodeDecodeError, or protobuf's DecodeError, which is not to be imported here
        raise RequestError(f"the metrics cannot be read: {exc}", ErrorCode.INVALID_RECORD) from exc
    return points


Fields = list[tuple[int, Any]]
"""(number, a number or the bytes) of each."""


@attrs.define(eq=False, repr=False)
class _Walk:
    """Over the messages of one push."""

    _left: int = MAX_FIELDS

    def messages(self, whole: Iterable[memoryview], number: int) -> Generator[None, None, list[memoryview]]:
        """The messages in a field of messages."""
        found: list[memoryview] = []
        for data in whole:
            fields = yield from self.fields(data)
            found += [value for each, value in fields if each == number and isinstance(value, memoryview)]
        return found

    def fields(self, data: memoryview) -> Generator[None, None, Fields]:
        """All fields of a message. Raises IndexError where it is cut off."""
        found: Fields = []
        at, end = 0, len(data)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise RequestError(f"the metrics have more than {MAX_FIELDS} fields", ErrorCode.INVALID_RECORD)
            if not self._left % FIELDS_PER_PAUSE:
                yield
            tag, at = _varint(data, at)
            kind = tag & 7
            value: Any
            if kind == VARINT:
                value, at = _varint(data, at)
            else:
                size, at = _varint(data, at) if kind == MESSAGE else (FIXED[kind], at)
                value = data[at : at + size]
                at += size
            found.append((tag >> 3, value))
        if at > end:
            raise IndexError("a message is cut off")
        return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise IndexError("a varint has more than 10 bytes")


def _metric_steps(walk: _Walk, metric: memoryview, points: list[Point]) -> Generator[None, None, None]:
    classes, name = load_otlp(), ""
    kind, parts = 0, list[memoryview]()
    for number, value in (yield from walk.fields(metric)):
        if number == NAME:
            name = bytes(value[: 4 * MAX_NAME_CHARS]).decode(errors="replace")[:MAX_NAME_CHARS]
        elif number in (GAUGE, SUM, HISTOGRAM):
            parts = [*parts, value] if number == kind else [value]
            kind = number
    if not kind:
        return
    fields: Fields = []
    for part in parts:
        fields += yield from walk.fields(part)
    is_delta = kind != GAUGE and any(number == TEMPORALITY and value == DELTA for number, value in fields)
    data_points = [value for number, value in fields if number == DATA_POINTS]
    for count, data in enumerate(data_points, 1):
        if len(data) > MAX_POINT_BYTES:
            raise RequestError(f"a data point has more than {MAX_POINT_BYTES} bytes", ErrorCode.INVALID_RECORD)
        if kind == HISTOGRAM:
            point = classes.histogram.FromString(bytes(data))
            attributes = _attributes(point)
            points.append(Point(f"{name}.count", attributes, float(point.count), is_delta))
            points.append(Point(f"{name}.sum", attributes, float(point.sum), is_delta))
        else:
            point = classes.number.FromString(bytes(data))
            which = point.WhichOneof("value")
            if which is not None:
                points.append(Point(name, _attributes(point), float(getattr(point, which)), is_delta))
        if not count % POINTS_PER_PAUSE:
            yield


def _attributes(point: Any) -> str:
    told = []
    for each in point.attributes[:MAX_ATTRIBUTES]:
        which = each.value.WhichOneof("value")
        told.append(f"{each.key}={getattr(each.value, which) if which else ''}"[:MAX_NAME_CHARS])
    return ",".join(sorted(told))
