"""`read`: topics as a stream of Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ...protocol.types import Isolation
from .bounds import Bound, Bounds
from .errors import ArrowError
from .opening import open_source
from .report import Report
from .schema import decoded_name
from .sources import DAMAGED, OpenSource, ReadOptions, Source, Span

if TYPE_CHECKING:
    import pyarrow as pa

    from ..client.login import LoginConfig
    from ..client.tls import TlsConfig
    from .shape import Shape

SAMPLE: Final = 10_000
"""Values that are looked at for a schema: 2 MB of flights."""


def read(
    source: Source,
    topics: str | Iterable[str],
    start: Bound = None,
    end: Bound = None,
    columns: Sequence[str] | None = None,
    *,
    start_timestamp: int | datetime | None = None,
    end_timestamp: int | datetime | None = None,
    partitions: Sequence[int] | None = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    damaged: Literal["warn", "skip", "raise"] = "warn",
    skip_gaps: bool | None = None,
    login: LoginConfig | None = None,
    tls: TlsConfig | None = None,
    timeout_ms: int = 60_000,
    values: Literal["utf8", "json", "msgpack", "avro"] | None = None,
    schema: Any = None,
    flatten: bool = False,
    errors: Literal["raise", "null"] = "raise",
    sample: int = SAMPLE,
    report: Report | None = None,
) -> pa.RecordBatchReader:
    """The records of some topics, as they are now: by topic, partition and offset, in batches of some MiB.

    Args:
        source: `HOST:PORT` of a server's native protocol, a log directory (triolog's or Kafka's), or an embedded broker.
        topics: One name or several.
        start: The first record: an offset, offsets by partition, or a datetime with a zone; inclusive.
        end: The end, in the same ways; exclusive. Without one it is where the log ends now.
        columns: Which columns, in which order; what is not asked for is not decoded.
        start_timestamp: The first timestamp, in ms or as a datetime; inclusive.
        end_timestamp: The end of the timestamps; exclusive.
        partitions: Only these numbers, of every topic.
        isolation: `read_committed` leaves out aborted transactions and all from the first open one on.
        damaged: What happens at damaged batches in files: they are left out with a warning, or without, or are an error.
        skip_gaps: Whether offsets that a server took out as damaged are passed over; None: as the topic's gap.policy says.
        login: Who reads, at a server with logins.
        tls: How the connection to a server is encrypted.
        timeout_ms: How long a server is waited for, each time.
        values: What the column value is decoded from: text, or objects that become structs.
        schema: Of the objects: a `pyarrow.Schema` or struct type; for Avro its schema, as JSON text or what that means. Without
            one `json` and `msgpack` have the fields of the first values.
        flatten: The fields of the objects become columns in place of value.
        errors: Values that do not parse are an error that says how many there are and where, or null, with a warning.
        sample: How many values tell the schema.
        report: Is told how much was read and what was left out.

    Raises:
        ArrowError: For what cannot be read, when it is asked for or when the stream comes there. One line.
    """
    import pyarrow as pa

    from .shape import decoded_shape, plain_shape, sampler

    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise ArrowError("no topic is named")
    if damaged not in DAMAGED:
        raise ArrowError(f"damaged is {damaged!r}, expected {', '.join(DAMAGED)}")
    try:
        level = Isolation(isolation)
    except ValueError:
        raise ArrowError(f"isolation is {isolation!r}, expected read_committed or read_uncommitted") from None
    bounds = Bounds.of(start, end, start_timestamp, end_timestamp)  # type: ignore[arg-type]
    options = ReadOptions(isolation=level, damaged=damaged, skip_gaps=skip_gaps, login=login, tls=tls, timeout_ms=timeout_ms)
    opened = open_source(source, options)
    try:
        if values is None:
            if schema is not None or flatten:
                raise ArrowError("schema and flatten are for values that are decoded; say how with values")
            shape = plain_shape(columns)
            spans = opened.spans(names, partitions, bounds)
        else:
            spans = opened.spans(names, partitions, bounds)
            some = sampler(lambda span, asked: opened.read(span, asked, bounds), spans, max(1, sample))
            shape = decoded_shape(columns, values, schema, some, flatten=flatten, errors=errors)
    except BaseException:
        opened.close()
        raise
    reading = _Reading(opened, spans, bounds, shape, report or Report())
    return pa.RecordBatchReader.from_batches(shape.schema, reading.batches())


@attrs.define(eq=False)
class _Reading:
    """One read. Owner: the reader that was handed out, by its generator."""

    source: OpenSource
    spans: list[Span]
    bounds: Bounds
    shape: Shape
    report: Report

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of it, once."""
        asked = tuple(decoded_name(name) for name in self.shape.asked)
        with closing(self.source):
            for span in self.spans:
                for rows in self.source.read(span, asked, self.bounds):
                    self.report.rows += rows.num_rows
                    self.report.log_bytes = self.source.log_bytes()
                    yield self.shape.made_of(rows, span, self.report)
                self.shape.warn(span, self.report)
                self.report.log_bytes = self.source.log_bytes()
