"""Records and questions as JSON. Bytes that are UTF-8 are text; others are in base64, under a name that ends in `_base64`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ...protocol.types import Record
from ..broker import PlainRecord


class BadRequestError(ValueError):
    """What a peer sent means nothing here."""


def put_bytes(told: dict[str, Any], name: str, value: bytes | None) -> None:
    """Say bytes under a name."""
    try:
        told[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        assert value is not None
        told[f"{name}_base64"] = base64.b64encode(value).decode()


def bytes_of(told: Mapping[str, Any], name: str) -> bytes | None:
    """Bytes that were said under a name; None where none were. Raises BadRequestError."""
    if (encoded := told.get(f"{name}_base64")) is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError) as exc:
            raise BadRequestError(f"{name}_base64 is not base64: {exc}") from None
    value = told.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    raise BadRequestError(f"{name} is {value!r}, expected text, null, or {name}_base64")


def record_as_json(record: Record, partition: int) -> dict[str, Any]:
    """A record that was read."""
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
    headers = told.get("headers") or []
    pairs = headers.items() if isinstance(headers, Mapping) else [(each.get("name"), each) for each in headers]
    return (
        whole_number(told, "timestamp_ms"),
        bytes_of(told, "key"),
        bytes_of(told, "value"),
        tuple(
            (str(name), bytes_of(value if isinstance(value, Mapping) else {"value": value}, "value")) for name, value in pairs
        ),
    )


def whole_number(told: Mapping[str, Any], name: str) -> int | None:
    """Raises BadRequestError."""
    value = told.get(name)
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRequestError(f"{name} is {value!r}, expected a whole number") from None
