"""A request of every API in every version that is served, with one entry in every array, so that no part is passed over."""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.apis import Api
from triolog.protocol.kafka.messages.records import ProduceRequest
from triolog.protocol.schema.fields import RECORDS, STRING, Element, Field, Primitive, fields_of

from tests.support.logs import batch

NAME: Final = "first"
"""Of every topic, group, transactional id, member and key."""


def filled(cls: type, version: int) -> Any:
    """An instance: strings are NAME, records a batch, numbers as a version has them where it lacks the field."""
    return cls(**{field.name: _value(field, version) for field in fields_of(cls, version) if field.tag is None})


def requests_of(api: Api) -> list[tuple[Any, int]]:
    """(body, version), an empty one and a filled one of each version."""
    cls = api.request
    versions = range(api.lowest_read, api.highest + 1)
    requests = [(body, version) for version in versions for body in (cls(), filled(cls, version))]
    for body, _ in requests:
        if isinstance(body, ProduceRequest):
            body.acks = -1  # with 0 there is no answer
    return requests


def _value(field: Field, version: int) -> Any:
    one = _element(field.element, version)
    return [one] if field.is_array else one


def _element(element: Element, version: int) -> Any:
    if not isinstance(element, Primitive):
        return filled(element, version)
    if element is RECORDS:
        return batch()
    return NAME if element is STRING else element.default
