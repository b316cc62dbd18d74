"""A struct's keys as a table for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .. import limits
from .declaration import Field, fields_of
from .fields import MISSING
from .kinds import Kind
from .structs import Message


class KeyRow(NamedTuple):
    """One key of a message or of a struct inside it."""

    path: str
    """As in `partitions[].topic`."""
    expected: str
    may_be_absent: bool


def key_rows(message: type[Message]) -> list[KeyRow]:
    """Every key in the order of the wire, those of a struct behind the key that it stands under."""
    return list(_rows(message, "", message.is_request))


def key_table(message: type[Message]) -> str:
    """The keys as a table in Markdown, a `?` behind those that may be absent."""
    rows = [f"| `{row.path}`{'?' if row.may_be_absent else ''} | {row.expected} |" for row in key_rows(message)]
    return "\n".join(["| key | value |", "|---|---|", *rows])


def _rows(cls: type, prefix: str, in_request: bool) -> Iterator[KeyRow]:
    for field in sorted(fields_of(cls), key=lambda field: field.last):
        path = f"{prefix}{field.name}"
        if not field.flat:
            yield KeyRow(path, _expected(field), field.may_be_absent(in_request=in_request))
        if (inner := _inner(field)) is not None:
            struct, suffix = inner
            yield from _rows(struct, prefix if field.flat else f"{path}{suffix}.", in_request)


def _inner(field: Field) -> tuple[type, str] | None:
    """The struct that stands under a key, and what the path has behind it; None when it is no struct."""
    shape = field.shape
    if isinstance(shape, Kind):
        return None
    if isinstance(shape, list):
        return shape[0], "[]"
    return (shape[str], "[name]") if isinstance(shape, dict) else (shape, "")


def _expected(field: Field) -> str:
    if isinstance(field.shape, Kind):
        expected = field.shape.expected
    elif isinstance(field.shape, list):
        expected = "array of " + ("maps" if field.max_count == limits.INT32_MAX else f"at most {field.max_count:,} maps")
    else:
        expected = "map"
    return expected if field.nil is MISSING or expected.startswith("nil") else f"nil or {expected}"
