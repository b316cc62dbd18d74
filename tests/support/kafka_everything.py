"""A structure with every kind of field that a declaration can have, for tests of the schema itself."""

from __future__ import annotations

from triolog.protocol.schema import fields as f
from triolog.protocol.types import Bytes

FIRST_FLEXIBLE = 2
LAST_VERSION = 3


@f.struct
class Leaf:
    number: int = f.wire(f.INT32, default=-1)
    late: int = f.wire(f.INT64, "3+", default=-1)


@f.struct
class Inner:
    name: str = f.wire(f.STRING)
    leaves: list[Leaf] = f.wire([Leaf])
    names: list[str] | None = f.wire([f.STRING], nullable="1+", default=None)
    leaf: Leaf | None = f.wire(Leaf, nullable="1+", default=...)
    tagged_leaf: Leaf = f.wire(Leaf, "2+", tag=0, default=...)


@f.struct
class Empty:
    """No field in any version; flexible ones have at least the count of tagged fields."""


@f.struct
class Everything:
    flag: bool = f.wire(f.BOOL)
    int8: int = f.wire(f.INT8)
    int16: int = f.wire(f.INT16)
    uint16: int = f.wire(f.UINT16)
    int32: int = f.wire(f.INT32)
    uint32: int = f.wire(f.UINT32)
    int64: int = f.wire(f.INT64)
    float64: float = f.wire(f.FLOAT64)
    uuid: bytes = f.wire(f.UUID)
    text: str = f.wire(f.STRING)
    null_text: str | None = f.wire(f.STRING, nullable="1+")
    blob: bytes = f.wire(f.BYTES)
    null_blob: bytes | None = f.wire(f.BYTES, nullable="1+")
    records: Bytes | None = f.wire(f.RECORDS)
    early: int = f.wire(f.INT32, "0-1", default=7)
    numbers: list[int] = f.wire([f.INT32])
    null_numbers: list[int] | None = f.wire([f.INT64], nullable="0+")
    shorts: list[int] = f.wire([f.INT16])
    uuids: list[bytes] = f.wire([f.UUID])
    texts: list[str] = f.wire([f.STRING])
    inner: Inner = f.wire(Inner)
    inners: list[Inner] = f.wire([Inner], "1+")
    null_inners: list[Inner] | None = f.wire([Inner], "1+", nullable="1+")
    empties: list[Empty] = f.wire([Empty], "2+")
    last: int = f.wire(f.INT8)
    tagged_text: str | None = f.wire(f.STRING, "2+", nullable="2+", tag=1, default=None)
    tagged_number: int = f.wire(f.INT64, "2+", tag=0, default=-1)
    tagged_inner: Inner = f.wire(Inner, "3+", tag=3, default=...)
    tagged_numbers: list[int] = f.wire([f.INT32], "3+", tag=2, default=...)
    tagged_records: Bytes | None = f.wire(f.RECORDS, "3+", tag=200, default=...)


@f.struct
class Small:
    """Without records, so that it is read from bytes."""

    text: str = f.wire(f.STRING)
    null_text: str | None = f.wire(f.STRING, nullable="0+")
    blob: bytes = f.wire(f.BYTES)
    numbers: list[int] = f.wire([f.INT32])
    leaves: list[Leaf] = f.wire([Leaf])
    tagged: str = f.wire(f.STRING, tag=0, default=...)
