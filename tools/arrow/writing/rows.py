"""Maps table columns to key, value, timestamp and headers of records, and each record to a partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...client.sending.key_hashes import partitions_for_keys
from ..report import ArrowError
from .encoders import Encoder, encoder_of

_RAW: Final = ("key", "value", "timestamp", "headers")
_REFUSALS: Final = (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException)


@attrs.define(eq=False, repr=False)
class RowShape:
    """The mapping from rows to records. Owner: one write."""

    name: str
    partitions: int
    key: str | None
    value: str | None
    timestamp: str | None
    headers: str | None
    partition: int | str | None
    encode: Encoder | None
    _turn: int = 0

    def records(self, first: int, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """For each partition the columns that `encode_batches` takes. ArrowError names the rows that cannot be written."""
        try:
            columns = self._columns(rows)
            records = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            numbers = self._numbers(first, rows, columns.get("key"))
        except _REFUSALS as exc:
            reason = " ".join(str(exc).split())
            raise ArrowError(f"{self.name}: rows {first} to {first + rows.num_rows - 1}: {reason}") from exc
        if isinstance(numbers, int):
            yield numbers, records
            return
        order = np.argsort(numbers, kind="stable")
        found, begins = np.unique(numbers[order], return_index=True)
        records = records.take(pa.array(order))
        for number, begin, end in zip(found.tolist(), begins.tolist(), [*begins[1:].tolist(), len(order)], strict=True):
            yield number, records.slice(begin, end - begin)

    def _columns(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        if self.value is None:
            assert self.encode is not None
            value = self.encode(rows)
        else:
            value = rows.column(self.value)
            if pa.types.is_struct(value.type) and self.encode is not None:
                fields = pa.RecordBatch.from_arrays(value.flatten(), fields=list(value.type))
                value = pc.if_else(value.is_valid(), self.encode(fields), pa.scalar(None, pa.binary()))
        columns = {"value": value}
        if self.key is not None:
            columns["key"] = _key(rows.column(self.key))
        if self.timestamp is not None:
            columns["timestamp"] = _times(rows.column(self.timestamp))
        if self.headers is not None:
            columns["headers"] = rows.column(self.headers)
        return columns

    def _numbers(self, first: int, rows: pa.RecordBatch, keys: pa.Array | None) -> Any:
        """Of the partition for all rows, or for each."""
        count = self.partitions
        if isinstance(self.partition, int):
            return self.partition
        self._turn = (self._turn + 1) % count  # rows without a key stay together for a piece
        if isinstance(self.partition, str):
            column = rows.column(self.partition).cast(pa.int64())
            numbers = column.fill_null(self._turn).to_numpy()
            wrong = np.flatnonzero((numbers < 0) | (numbers >= count))
            if wrong.size:
                row = int(wrong[0])
                raise ArrowError(f"{self.name}: row {first + row}: partition {numbers[row]}, the topic has 0 to {count - 1}")
            return numbers
        if keys is None or count == 1:
            return self._turn if count > 1 else 0
        numbers = partitions_for_keys(keys, count)
        return np.where(keys.is_null().to_numpy(zero_copy_only=False), self._turn, numbers) if keys.null_count else numbers


def row_shape(
    name: str,
    schema: pa.Schema,
    partitions: int,
    *,
    key: str | None,
    value: str | None,
    timestamp: str | None,
    partition: int | str | None,
    value_format: str,
    value_schema: Any,
) -> RowShape:
    """ArrowError for a column that is not there, a partition that is not, a format that is unknown."""
    headers = None
    if value_format == "raw":
        key, value, timestamp, headers = (
            asked or (usual if usual in schema.names else None)
            for asked, usual in zip((key, value, timestamp, None), _RAW, strict=True)
        )
        if value is None:
            raise ArrowError(f"{name} has no column value for format='raw'. Name one, or use json, msgpack or avro")
    for column in (key, value, timestamp, partition):
        if isinstance(column, str) and column not in schema.names:
            raise ArrowError(f"{name} has no column {column}, only {', '.join(schema.names)}")
    if isinstance(partition, int) and not 0 <= partition < partitions:
        raise ArrowError(f"partition is {partition}, the topic has 0 to {partitions - 1}")
    encode = None if value_format == "raw" else encoder_of(value_format, value_schema)
    return RowShape(name, partitions, key, value, timestamp, headers, partition, encode)


def _key(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _key(column.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _times(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("ms"))
    return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column
