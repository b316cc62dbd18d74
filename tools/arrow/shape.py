"""From the columns that the decoder gives to those that were asked for: order, and decoded values.

With `flatten` the fields of the values are columns themselves; one that has the name of a column is called `value.NAME`, and
`value` is there only when it is asked for by name, as the record has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from .report import ArrowError, Report, ValuesError
from .schema import COLUMNS, checked_columns, decoded_name, record_type
from .sources import Span
from .values.parsers import Parser, Sample, decode_values, narrowed, parser_of

if TYPE_CHECKING:
    from ..schemas.registry_values import RegistryValues

LOGGER: Final = logging.getLogger(__name__)


@attrs.frozen
class Shape:
    """The form of the batches that a read returns: schema, decoded columns, parser."""

    schema: pa.Schema
    asked: tuple[str, ...]
    """Of the record's columns, those that the decoder is asked for."""
    parser: Parser | None = None
    fields: dict[str, str] = attrs.field(factory=dict)
    """Of columns that are fields of the value, which one each is."""
    raises: bool = True

    def made_of(self, rows: pa.RecordBatch, span: Span, report: Report) -> pa.RecordBatch:
        """The rows in this shape. ValuesError as `raises` has it."""
        columns = dict(zip(self.asked, rows.columns, strict=True))
        if self.parser is not None:
            decoded, bad = decode_values(self.parser, columns["value"])
            if bad:
                self._refuse(columns["offset"], bad, span, report)
            if self.fields:
                cells = dict(zip(decoded.type.names, decoded.flatten(), strict=True))
                columns |= {name: cells[field] for name, field in self.fields.items()}
            else:
                columns["value"] = decoded
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _refuse(self, offsets: pa.Array, bad: Sequence[Any], span: Span, report: Report) -> None:
        assert self.parser is not None
        row, reason = bad[0]
        first = offsets[row].as_py()
        if self.raises:
            raise ValuesError(*span.name, first, len(bad), len(offsets) - row, self.parser.how, reason)
        report.add_bad(span.name, len(bad), first, reason)

    def warn(self, span: Span, report: Report) -> None:
        """Log one warning after a partition in which values did not parse."""
        if self.parser is not None and (bad := report.bad_values.get(span.name)) is not None:
            LOGGER.warning(
                "%s: %d values are null because they are not %s, the first at offset %d: %s",
                *(span.name, bad.count, self.parser.how, bad.first_offset, bad.reason),
            )


def plain_shape(columns: Sequence[str] | None) -> Shape:
    """Values as they are. ArrowError for columns that are not there."""
    chosen = checked_columns(columns, COLUMNS)
    return Shape(pa.schema([(name, record_type(name)) for name in chosen]), chosen)


def decoded_shape(
    columns: Sequence[str] | None,
    values: str,
    schema: Any,
    sample: Sample,
    *,
    flatten: bool,
    errors: str,
    registry: RegistryValues | None = None,
) -> Shape:
    """Values decoded. ArrowError for columns that are not there, and what `parser_of` raises."""
    if errors not in ("raise", "null"):
        raise ArrowError(f"errors is {errors!r}, expected raise or null")
    if flatten and values == "utf8":
        raise ArrowError('values="utf8" has no fields to flatten')
    if not flatten:
        checked_columns(columns, COLUMNS)
    parser = parser_of(values, schema, sample, registry)
    types = {name: record_type(name) for name in COLUMNS if name != "value" or not flatten}
    fields: dict[str, str] = {}
    if flatten:
        fields = {(f"value.{field.name}" if field.name in COLUMNS else field.name): field.name for field in parser.type}
        types |= {name: parser.type.field(field).type for name, field in fields.items()}
        if columns is not None:
            types["value"] = record_type("value")
    else:
        types["value"] = parser.type
    chosen = checked_columns(columns, tuple(types))
    fields = {name: field for name, field in fields.items() if name in chosen}
    is_decoded = bool(fields) if flatten else "value" in chosen
    if fields:
        parser = narrowed(parser, list(fields.values()))
    asked = [name for name in chosen if name in COLUMNS]
    if is_decoded:
        asked += [name for name in ("value", "offset") if name not in asked]
    result_schema = pa.schema([(name, types[name]) for name in chosen])
    return Shape(result_schema, tuple(asked), parser if is_decoded else None, fields, errors == "raise")


def sampler(read: Callable[[Span, tuple[str, ...]], Any], spans: Sequence[Span], count: int) -> Sample:
    """Reads up to `count` values, from the beginning of each span as many."""

    def sample() -> pa.Array:
        parts: list[pa.Array] = []
        filled = [span for span in spans if span.low < span.high]
        for number, span in enumerate(filled, 1):
            left = count * number // len(filled) - sum(map(len, parts))
            batches = read(span, (decoded_name("value"),))
            for rows in batches:
                part = rows.column(0).drop_null()[: max(0, left)]
                parts.append(part)
                if (left := left - len(part)) <= 0:
                    break
            batches.close()
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    return sample
