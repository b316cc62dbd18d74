"""What fields stand for, against kio's types, which are made from `entityType` in Kafka's schemas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from triolog.protocol.kafka.apis import GROUP_ID, PRODUCER_ID, TOPIC_NAME, TRANSACTIONAL_ID
from triolog.protocol.schema.fields import Entity, Primitive, fields_of

from tests.support.kafka_oracles import ORACLES, kio_element, kio_name, kio_schema
from tests.support.kafka_values import MESSAGES

KAFKAS: Final = {
    "TopicName": TOPIC_NAME,
    "GroupId": GROUP_ID,
    "TransactionalId": TRANSACTIONAL_ID,
    "ProducerId": PRODUCER_ID,
}


def entities_here(cls: type, version: int, path: str = "") -> Iterator[tuple[str, Entity]]:
    for field in fields_of(cls, version):
        if not isinstance(field.element, Primitive):
            yield from entities_here(field.element, version, f"{path}{field.name}.")
        elif field.entity in KAFKAS.values():
            yield path + field.name, field.entity


def entities_of_kio(schema: Any, path: str = "") -> Iterator[tuple[str, Entity]]:
    for field in dataclasses.fields(schema):
        name = path + kio_name(field)
        if (inner := kio_element(field)) is not None:
            yield from entities_of_kio(inner, f"{name}.")
        yield from ((name, entity) for kind, entity in KAFKAS.items() if f"types.{kind}" in str(field.type))


def test_fields_stand_for_what_kafkas_schema_says() -> None:
    seen: set[Entity] = set()
    for message in filter(ORACLES["kio"].knows, MESSAGES):
        here = dict(entities_here(message.cls, message.version))
        assert here == dict(entities_of_kio(kio_schema(message))), message
        seen |= set(here.values())
    assert seen == set(KAFKAS.values())
