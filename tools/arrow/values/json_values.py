"""JSON objects as structs, by Arrow's own parser, many at once.

Values are joined with line feeds and parsed as one text. Each begins with a brace and ends with one, and no object can go on
from a closing brace over a line feed to an opening one; so as many objects as values means one object for each.
"""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

MAX_INFERRED_DEPTH: Final = 128
_SPACE: Final = b" \t\r\n"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_OPENING: Final = np.frombuffer(b"[{", np.uint8)
_CLOSING: Final = np.frombuffer(b"]}", np.uint8)


class JsonParser:
    """Objects with the fields of a struct; other fields are passed over, those that are missing are null."""

    how = "JSON objects of this schema"

    def __init__(self, kind: pa.StructType) -> None:
        self.type = kind
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(list(kind)), newlines_in_values=True, unexpected_field_behavior="ignore"
        )

    def parse(self, values: pa.Array) -> pa.Array:
        """A struct for each object."""
        table = _read(values, self._options).select(self.type.names).combine_chunks()
        found = pa.StructArray.from_arrays([_one(column) for column in table.columns], fields=list(self.type))
        found.validate(full=True)  # text that is no UTF-8
        return found


def infer_json(values: pa.Array) -> pa.StructType:
    """The type that a sample of objects has in common; what is none is left out. ValueError when there is nothing in common.

    Fields that are null in the whole sample become strings. Values that nest deeper than MAX_INFERRED_DEPTH are left out: types
    as deep as they are end the process, in Arrow and in whatever takes them from it.
    """
    options = pj.ParseOptions(newlines_in_values=True)
    shallow = [not is_deeper(value, MAX_INFERRED_DEPTH) for value in values.to_pylist()]
    if not all(shallow):
        values = values.filter(pa.array(shallow))
        if not len(values):
            raise ValueError(f"they nest deeper than {MAX_INFERRED_DEPTH} levels")
    try:
        table = _read(values, options)
    except ValueError:
        objects = pa.array([value for value in values.to_pylist() if _is_object(value)], pa.binary())
        if not len(objects):
            raise
        table = _read(objects, options)
    return pa.struct([pa.field(field.name, without_null(field.type)) for field in table.schema])


def _read(values: pa.Array, options: pj.ParseOptions) -> pa.Table:
    text = _joined(_braced(values))
    if (np.frombuffer(text, np.uint8) == 0).any():
        raise ValueError("it contains a zero byte")
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 10)),
        parse_options=options,
    )
    if table.num_rows != len(values):
        raise ValueError(f"{table.num_rows} objects, expected one in each of {len(values)} values")
    return table


def _braced(values: pa.Array) -> pa.Array:
    """All of them from brace to brace."""
    if _are_braced(values):
        return values
    stripped = pa.array([value.strip(_SPACE) for value in values.to_pylist()], pa.binary())
    if not _are_braced(stripped):
        raise ValueError("this is not a JSON object")
    return stripped


def _are_braced(values: pa.Array) -> bool:
    begins, ends = pc.starts_with(values, pattern="{"), pc.ends_with(values, pattern="}")
    return bool(pc.all(pc.and_(begins, ends)).as_py())


def _joined(values: pa.Array) -> pa.Buffer:
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    return pc.binary_join(whole, b"\n")[0].as_buffer()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def is_deeper(value: bytes, depth: int) -> bool:
    """Return whether a JSON text nests deeper than `depth`."""
    if value.count(b"[") + value.count(b"{") <= depth:
        return False
    text = np.frombuffer(_STRING.sub(b"", value), np.uint8)
    steps = np.isin(text, _OPENING).astype(np.int64) - np.isin(text, _CLOSING)
    return int(steps.cumsum().max(initial=0)) > depth


def without_null(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, without_null(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(without_null(kind.value_type))
    return kind
