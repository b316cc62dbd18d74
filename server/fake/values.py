"""Records and questions as JSON. Bytes that are UTF-8 are text; others are in base64, under a name that ends in `_base64`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from ...protocol.types import Record
from ..broker import PlainRecord

RECORD_FIELDS: Final = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "timestamp_ms", "partition", "offset"}
)
"""Fields of a record to be appended. `partition` and `offset`, which records that were read have, are ignored."""


class BadRequestError(ValueError):
    """A request has a field that cannot be understood."""


def some(value: object, fields: str) -> dict[str, Any]:
    """Some fields of a value, by their names."""
    return {name: getattr(value, name) for name in fields.split()}


def put_bytes(told: dict[str, Any], name: str, value: bytes | None) -> None:
    """Put bytes into a JSON object: as text where they are UTF-8, else in base64."""
    try:
        told[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        assert value is not None
        told[f"{name}_base64"] = base64.b64encode(value).decode()


def bytes_of(told: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes in a field of a JSON object; None where there are none. Raises BadRequestError."""
    if (encoded := told.get(f"{name}_base64")) is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError) as exc:
            raise BadRequestError(f"{name}_base64 is not base64: {exc}") from None
    value = told.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    raise BadRequestError(f"{name} is {value!r}, expected text, null, or {name}_base64")


def told_record(record: Record, partition: int) -> dict[str, Any]:
    """A record that was read, as a JSON object."""
    told: dict[str, Any] = {"partition": partition, "offset": record.offset, "timestamp_ms": record.timestamp}
    put_bytes(told, "key", record.key)
    put_bytes(told, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Any] = {"name": name}
        put_bytes(header, "value", value)
        headers.append(header)
    return {**told, "headers": headers}


def plain_record(told: Any) -> PlainRecord:
    """A record that is to be appended: text alone, or an object with key, value, headers and timestamp_ms. Raises
    BadRequestError."""
    if isinstance(told, str):
        return None, None, told.encode(), ()
    if not isinstance(told, Mapping):
        raise BadRequestError(f"a record is text or an object, not {told!r}")
    if unknown := told.keys() - RECORD_FIELDS:
        fields = ", ".join(sorted(RECORD_FIELDS))
        raise BadRequestError(f"{', '.join(sorted(unknown))}: no such field of a record. Use {fields}")
    headers = told.get("headers") or []
    pairs = headers.items() if isinstance(headers, Mapping) else [_header(each) for each in headers]
    return (
        whole_number(told, "timestamp_ms"),
        bytes_of(told, "key"),
        bytes_of(told, "value"),
        tuple(
            (str(name), bytes_of(value if isinstance(value, Mapping) else {"value": value}, "value")) for name, value in pairs
        ),
    )


def _header(told: Any) -> tuple[Any, Any]:
    if not isinstance(told, Mapping) or not isinstance(told.get("name"), str):
        raise BadRequestError(f"a header is an object with a name, not {told!r}")
    return told["name"], told


def yes_or_no(told: Mapping[str, Any], name: str) -> bool | None:
    """A boolean field; None where it is missing. Raises BadRequestError."""
    value = told.get(name)
    if value is None or isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise BadRequestError(f"{name} is {value!r}, expected true or false")


def whole_number(told: Mapping[str, Any], name: str) -> int | None:
    """A field with a whole number; None where it is missing. Raises BadRequestError."""
    value = told.get(name)
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRequestError(f"{name} is {value!r}, expected a whole number") from None
