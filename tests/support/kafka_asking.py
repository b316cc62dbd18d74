"""Requests of Kafka's protocol, by the names of their APIs and of their fields."""

from __future__ import annotations

from typing import Any

from triolog.protocol.schema.fields import all_fields

from tests.support.kafka_wire import BY_NAME


def ask(api: str, **fields: Any) -> Any:
    """The request of an API. A dict stands for a structure in it; fields that are left out have their defaults."""
    return _made(BY_NAME[api].request, fields)


def _made(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_made(kind, each) for each in value]
    if not isinstance(value, dict):
        return value
    kinds = {field.name: field.element for field in all_fields(kind)}
    return kind(**{name: _made(kinds[name], each) for name, each in value.items()})
