"""`read`: topics as a stream of Arrow record batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ...protocol.types import Isolation
from .bounds import Bound, Bounds, Time
from .report import ArrowError, Report
from .schema import decoded_name
from .sources import DAMAGED, OpenSource, ReadOptions, Source, Span, address_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..client.login import LoginConfig
    from ..client.tls import TlsConfig
    from ..schemas.registry_values import RegistryValues
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
    start_timestamp: Time = None,
    end_timestamp: Time = None,
    partitions: Sequence[int] | None = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    damaged: Literal["warn", "skip", "raise"] = "warn",
    skip_gaps: bool | None = None,
    login: LoginConfig | None = None,
    tls: TlsConfig | None = None,
    timeout_ms: int = 60_000,
    values: Literal["utf8", "json", "msgpack", "avro", "registry"] | None = None,
    schema: Any = None,
    registry: str | None = None,
    flatten: bool = False,
    errors: Literal["raise", "null"] = "raise",
    sample: int = SAMPLE,
    report: Report | None = None,
) -> pa.RecordBatchReader:
    """The records of some topics, as they are now: by topic, partition and offset, in batches of some MiB.

    `source` is `HOST:PORT` of a server's native protocol, a log directory (triolog's or Kafka's), or an embedded broker.
    `start` is inclusive and `end` exclusive: an offset, offsets by partition, or a datetime with a zone; without an end it is
    where the log ends now. `start_timestamp` and `end_timestamp` are the same in ms. `columns` says which columns, in which
    order; what is not asked for is not decoded. `partitions` are numbers, of every topic.

    `isolation` read_committed leaves out aborted transactions and all from the first open one on. Damaged batches in files are
    left out with a warning, or without (`damaged="skip"`), or are an error (`"raise"`). Offsets that a server took out as
    damaged are passed over with `skip_gaps`, an error without, and with None what the topic's gap.policy says. `login` and
    `tls` are for servers that ask for them, which are waited for `timeout_ms` each time.

    `values` says what the column value is decoded from: text, or objects that become structs, of a `schema`: a
    `pyarrow.Schema` or struct type, for Avro its schema as JSON text or what that means. Without one json and msgpack have the
    fields of the first values, `sample` of them. With `flatten` the fields become columns in place of value, which is there
    as bytes when `columns` names it. `values="registry"` decodes each value by the schema whose id it begins with, from the
    schema registry at the URL `registry`, and has the fields of the decoded JSON. Values that do not parse are an error that
    says how many there are and where, or null with `errors="null"`. `report` is told how much was read and what was left out.

    Raises ArrowError for what cannot be read, when it is asked for or when the stream comes there, in one line.
    """
    import pyarrow as pa

    from .shape import decoded_shape, plain_shape, sampler

    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise ArrowError("no topic given")
    if damaged not in DAMAGED:
        raise ArrowError(f"damaged is {damaged!r}, expected {', '.join(DAMAGED)}")
    try:
        level = Isolation(isolation)
    except ValueError:
        raise ArrowError(f"isolation is {isolation!r}, expected read_committed or read_uncommitted") from None
    bounds = Bounds.of(start, end, start_timestamp, end_timestamp)
    options = ReadOptions(isolation=level, damaged=damaged, skip_gaps=skip_gaps, login=login, tls=tls, timeout_ms=timeout_ms)
    opened = open_source(source, options)
    try:
        if values is None:
            if schema is not None or flatten:
                raise ArrowError("schema and flatten need decoded values. Set values")
            if registry is not None:
                raise ArrowError('registry needs values="registry"')
            shape = plain_shape(columns)
            spans = opened.spans(names, partitions, bounds)
        else:
            spans = opened.spans(names, partitions, bounds)
            some = sampler(lambda span, asked: opened.read(span, asked, bounds), spans, max(1, sample))
            decoder = None if registry is None else registry_at(registry)
            shape = decoded_shape(columns, values, schema, some, flatten=flatten, errors=errors, registry=decoder)
    except BaseException:
        opened.close()
        raise
    reading = Reading(opened, spans, bounds, shape, report or Report())
    return pa.RecordBatchReader.from_batches(shape.schema, reading.batches())


def registry_at(url: str) -> RegistryValues:
    """Return the decoder of a schema registry, whose packages are loaded here. Raises ArrowError for what is no URL."""
    from ..schemas.registry_values import RegistryValues

    try:
        return RegistryValues.of(url)
    except ValueError as exc:
        raise ArrowError(f"registry is {_without_password(url)!r}: {exc}") from None


def _without_password(url: str) -> str:
    return url.rpartition("@")[2]


@attrs.define(eq=False, repr=False)
class Reading:
    """A read of an open source. Owner: the consumer of its batches, whose iterators close the source at their end."""

    source: OpenSource
    spans: list[Span]
    bounds: Bounds
    shape: Shape
    report: Report
    warns: bool = True
    """Values that are null for they did not parse are a log line behind their partition."""

    def __del__(self) -> None:
        self.source.close()  # nobody has begun to read

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of it, once."""
        asked = tuple(decoded_name(name) for name in self.shape.asked)
        with closing(self.source):
            for span in self.spans:
                for rows in self.source.read(span, asked, self.bounds):
                    self.report.rows += rows.num_rows
                    self.report.log_bytes = self.source.log_bytes()
                    yield self.shape.made_of(rows, span, self.report)
                if self.warns:
                    self.shape.warn(span, self.report)
                self.report.log_bytes = self.source.log_bytes()


def open_source(source: Source, options: ReadOptions) -> OpenSource:
    """A directory where there is one of that name, else a server. ArrowError for neither."""
    if isinstance(source, (str, os.PathLike)) and Path(source).is_dir():
        from .directory import DirectorySource

        return DirectorySource(os.fspath(source), options)
    address = address_of(source)
    from .server import ServerSource

    return ServerSource(address, options)
