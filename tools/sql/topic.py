"""A topic as a table: its columns, where it begins and ends for one question, and scans of it.

| column | |
|---|---|
| topic, partition, offset, timestamp_type, headers | as `triolog.tools.arrow` has them |
| timestamp | TIMESTAMP WITH TIME ZONE; null where a record has none |
| key, value | BLOB, the bytes of the record |
| every field of the values | one with the name of another column, in whatever case, is `value.NAME` |

DuckDB takes it for a dataset of Arrow: it asks for the schema, and for each scan names the columns that it uses and the
conditions that it leaves to the scan. A topic that stands twice in a question is read twice, up to the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as pads

from ..arrow.bounds import Bounds
from ..arrow.reading import Reading, open_source
from ..arrow.report import ArrowError, Report
from ..arrow.schema import COLUMNS, record_type
from ..arrow.shape import decoded_shape, plain_shape, sampler
from ..arrow.sources import Source, Span
from ..arrow.values.parsers import Parser, parser_of
from .conditions import Ranges, ranges_of
from .options import SqlOptions

_TIME: Final = pa.timestamp("us", "UTC")
"""DuckDB has microseconds. It would cut its constants down to milliseconds, and find other rows, were they the column's."""
_ORDER: Final = ("partition", "offset", "timestamp", "topic", "timestamp_type", "key", "value", "headers")
_FIRST: Final = 3
"""Of these stand before the fields of the values. DuckDB asks for the first column where it only counts: that is no field."""
_FROM: Final = Bounds.of(None, None, None, None)


@attrs.define(eq=False, repr=False)
class Scan:
    """The request of one scan, and the records that it has read. Owner: the scan."""

    topic: str
    columns: tuple[str, ...]
    condition: str | None
    ranges: Ranges
    spans: tuple[Span, ...] = ()
    """Offsets that are read, as the indexes have them."""
    there: tuple[Span, ...] = ()
    """All that there is."""
    report: Report = attrs.field(factory=Report)
    rows: int = 0
    """Handed to DuckDB."""
    shape: Any = None
    failure: BaseException | None = None

    def warn(self) -> None:
        """Log which values did not parse and are null. DuckDB's threads, which scan, are none that may."""
        for span in self.spans if self.shape is not None else ():
            self.shape.warn(span, self.report)


class TopicTable(pads.Dataset):  # type: ignore[misc]
    """A topic as a table for one query. Owner: the query."""

    def __init__(self, source: Source, topic: str, options: SqlOptions, scans: list[Scan], schema: Any) -> None:
        self._source = source
        self._topic = topic
        self._options = options
        self._scans = scans
        self._kind, _ = options.of_topic(topic)
        self.note = ""
        """Why the values have no fields."""
        opened = open_source(source, options.reading())
        try:
            self._there = tuple(opened.spans((topic,), None, _FROM))
            sample = sampler(lambda span, asked: opened.read(span, asked, _FROM), self._there, options.sample)
            self._fields = self._fields_of(schema, sample)
        finally:
            opened.close()
        self._names = _names([field.name for field in self._fields])
        fields = [(name, self._fields.field(field).type) for name, field in self._names.items()]
        records = [(name, _TIME if name == "timestamp" else record_type(name)) for name in _ORDER]
        self._schema = pa.schema([*records[:_FIRST], *fields, *records[_FIRST:]])

    @property
    def schema(self) -> pa.Schema:
        """Of all columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> _Scanner:  # noqa: A002
        """A scan of the columns, of the rows for which the expression holds."""
        chosen = tuple(self._schema.names if columns is None else columns)
        numbers = [span.name.partition for span in self._there]
        ranges = ranges_of(filter, self._schema, numbers)
        scan = Scan(self._topic, chosen, None if filter is None else str(filter), ranges, there=self._there)
        self._scans.append(scan)
        schema = pa.schema([self._schema.field(name) for name in chosen])
        return _Scanner(pa.RecordBatchReader.from_batches(schema, self._batches(scan, filter)), schema)

    def _fields_of(self, schema: Any, sample: Any) -> pa.StructType:
        kind = self._kind
        if kind == "raw":
            return pa.struct([])
        registry = self._options.registry
        if kind == "auto":
            values = sample()
            if registry is not None and _has_schema_id(values):
                self._kind = "registry"
                return self._parser_of("registry", None, lambda: values).type
            try:
                parser = parser_of("json", None, lambda: values)
            except ArrowError as exc:
                self._kind = "raw"
                self.note = f"topic {self._topic}: {exc}" if len(values) else f"topic {self._topic} is empty. Give a schema"
                return pa.struct([])
            self._kind = "json"
            return parser.type
        return self._parser_of(kind, schema, sample).type

    def _parser_of(self, kind: str, schema: Any, sample: Any) -> Parser:
        try:
            return parser_of(kind, schema, sample, self._options.registry)
        except ArrowError as exc:
            raise ArrowError(f"topic {self._topic}: {exc}") from exc

    def _batches(self, scan: Scan, condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        try:
            for rows in self._read(scan, condition):
                scan.rows += rows.num_rows
                yield rows
        except GeneratorExit:
            raise
        except BaseException as exc:
            scan.failure = exc
            raise

    def _read(self, scan: Scan, condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        bounds = self._bounds(scan.ranges)
        if bounds is None:
            return
        columns, numbers = self._used(scan, condition), sorted(name.partition for name in bounds.named())  # type: ignore[union-attr]
        opened = open_source(self._source, self._options.reading())
        try:
            scan.spans = tuple(opened.spans((self._topic,), numbers, bounds))
            shape = self._shape(columns)
        except BaseException:
            opened.close()
            raise
        scan.shape = shape
        batches = Reading(opened, list(scan.spans), bounds, shape, scan.report, warns=False).batches()
        try:
            for rows in batches:
                table = self._as_table(rows, columns)
                if condition is not None:
                    yield from _filtered(table, condition, scan.columns)
                else:
                    yield from table.select(list(scan.columns)).to_batches()
        finally:
            batches.close()  # type: ignore[attr-defined]

    def _bounds(self, ranges: Ranges) -> Bounds | None:
        """None for nothing. Both ends of each partition stand there, so that all scans end at the same offsets."""
        low: dict[tuple[str, int], int] = {}
        high: dict[tuple[str, int], int] = {}
        for span in self._there:
            first, end = max(span.low, ranges.low), min(span.high, ranges.high)
            if span.name.partition in ranges.partitions and first < end:
                name = (span.name.topic, span.name.partition)
                low[name], high[name] = first, end
        start, stop = ranges.start_timestamp, ranges.end_timestamp
        if not low or (start is not None and stop is not None and stop <= start):
            return None
        return Bounds.of(low, high, start, stop)

    def _used(self, scan: Scan, condition: pc.Expression | None) -> tuple[str, ...]:
        """The columns of a scan, and those that its condition may look at."""
        if condition is None:
            return scan.columns
        text = str(condition)
        used = tuple(name for name in self._schema.names if name in scan.columns or name in text)
        try:
            _filter(pa.table({name: pa.array([], self._schema.field(name).type) for name in used}), condition).read_all()
        except (pa.ArrowInvalid, KeyError):
            return tuple(self._schema.names)
        return used

    def _shape(self, columns: Sequence[str]) -> Any:
        fields = {self._names[name] for name in columns if name in self._names}
        asked = [name for name in COLUMNS if name in columns or (name == "offset" and "timestamp" in columns)]
        if not fields:
            return plain_shape(asked)
        flat = [f"value.{field}" if field in COLUMNS else field for field in self._fields.names if field in fields]
        return decoded_shape(
            [*asked, *flat],
            self._kind,
            self._schema_of_values(),
            lambda: pa.array([]),
            flatten=True,
            errors=self._options.errors,
            registry=self._options.registry,
        )

    def _schema_of_values(self) -> Any:
        return self._options.of_topic(self._topic)[1] if self._kind == "avro" else self._fields

    def _as_table(self, rows: pa.RecordBatch, columns: Sequence[str]) -> pa.Table:
        arrays = []
        for name in columns:
            field = self._names.get(name)
            if field is not None:
                arrays.append(rows.column(f"value.{field}" if field in COLUMNS else field))
            else:
                arrays.append(self._time(rows) if name == "timestamp" else rows.column(name))
        return pa.Table.from_arrays(arrays, schema=pa.schema([self._schema.field(name) for name in columns]))

    def _time(self, rows: pa.RecordBatch) -> pa.Array:
        times = rows.column("timestamp")
        try:
            found = times.cast(_TIME)
        except pa.ArrowInvalid as exc:
            row = next(row for row, time in enumerate(times.view(pa.int64()).to_pylist()) if time * 1000 > 2**63 - 1)
            where = f"{self._topic} offset {rows.column('offset')[row]}"
            raise ArrowError(f"{where}: its timestamp, {times[row].value} ms, is outside of DuckDB's range") from exc
        first = pc.min(times.view(pa.int64())).as_py()
        return (
            pc.if_else(pc.less(times.view(pa.int64()), 0), pa.scalar(None, _TIME), found)
            if first is not None and first < 0
            else found
        )


def _has_schema_id(values: pa.Array) -> bool:
    from ..schemas.registry_values import schema_id_of  # with the packages of the extra

    return any(schema_id_of(value) is not None for value in values.to_pylist())


@attrs.frozen
class _Scanner:
    """The scanner interface that DuckDB expects."""

    reader: pa.RecordBatchReader
    projected_schema: pa.Schema

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, once."""
        return self.reader


def _names(fields: Sequence[str]) -> dict[str, str]:
    """Of each field the name of its column: names differ for DuckDB only when they do in lower case, too."""
    taken, names = {name.lower() for name in COLUMNS}, {}
    numbers: dict[str, int] = {}
    for field in fields:
        name = field if field and field.lower() not in taken else f"value.{field}"
        base, number = name, numbers.get(name.lower(), 1)
        while name.lower() in taken:
            number += 1
            name = f"{base}_{number}"
        numbers[base.lower()] = number
        taken.add(name.lower())
        names[name] = field
    return names


def _filter(table: pa.Table, condition: pc.Expression) -> pa.RecordBatchReader:
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("filter", acero.FilterNodeOptions(condition)),
    ]
    return acero.Declaration.from_sequence(steps).to_reader(use_threads=False)


def _filtered(table: pa.Table, condition: pc.Expression, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for rows in _filter(table, condition):
        if rows.num_rows:
            yield rows.select(list(columns))
