"""A structure with every kind of field that a declaration can have, for tests of the schema itself."""

from __future__ import annotations

from triolog.protocol.schema.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    struct,
    wire,
)
from triolog.protocol.types import Bytes

FIRST_FLEXIBLE = 2
LAST_VERSION = 3


@struct
class Leaf:
    number: int = wire(INT32, default=-1)
    late: int = wire(INT64, "3+", default=-1)


@struct
class Inner:
    name: str = wire(STRING)
    leaves: list[Leaf] = wire([Leaf])
    names: list[str] | None = wire([STRING], nullable="1+", default=None)
    leaf: Leaf | None = wire(Leaf, nullable="1+", default=...)
    tagged_leaf: Leaf = wire(Leaf, "2+", tag=0, default=...)


@struct
class Empty:
    """No field in any version; flexible ones have at least the count of tagged fields."""


@struct
class Everything:
    flag: bool = wire(BOOL)
    int8: int = wire(INT8)
    int16: int = wire(INT16)
    uint16: int = wire(UINT16)
    int32: int = wire(INT32)
    uint32: int = wire(UINT32)
    int64: int = wire(INT64)
    float64: float = wire(FLOAT64)
    uuid: bytes = wire(UUID)
    text: str = wire(STRING)
    null_text: str | None = wire(STRING, nullable="1+")
    blob: bytes = wire(BYTES)
    null_blob: bytes | None = wire(BYTES, nullable="1+")
    records: Bytes | None = wire(RECORDS)
    early: int = wire(INT32, "0-1", default=7)
    numbers: list[int] = wire([INT32])
    null_numbers: list[int] | None = wire([INT64], nullable="0+")
    shorts: list[int] = wire([INT16])
    uuids: list[bytes] = wire([UUID])
    texts: list[str] = wire([STRING])
    inner: Inner = wire(Inner)
    inners: list[Inner] = wire([Inner], "1+")
    null_inners: list[Inner] | None = wire([Inner], "1+", nullable="1+")
    empties: list[Empty] = wire([Empty], "2+")
    last: int = wire(INT8)
    tagged_text: str | None = wire(STRING, "2+", nullable="2+", tag=1, default=None)
    tagged_number: int = wire(INT64, "2+", tag=0, default=-1)
    tagged_inner: Inner = wire(Inner, "3+", tag=3, default=...)
    tagged_numbers: list[int] = wire([INT32], "3+", tag=2, default=...)
    tagged_records: Bytes | None = wire(RECORDS, "3+", tag=200, default=...)


@struct
class Small:
    """Without records, so that it is read from bytes."""

    text: str = wire(STRING)
    null_text: str | None = wire(STRING, nullable="0+")
    blob: bytes = wire(BYTES)
    numbers: list[int] = wire([INT32])
    leaves: list[Leaf] = wire([Leaf])
    tagged: str = wire(STRING, tag=0, default=...)
