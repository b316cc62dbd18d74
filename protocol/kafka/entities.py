"""What the values in Kafka's messages stand for. From where a message has them it is derived what a request is about, and which
lists of it its answer repeats. The first four are entity types of Kafka's schema files, the others are our own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ..schema.fields import INT8, INT32, INT64, STRING, UUID, Entity, Field, all_fields
from .apis import Api

TOPIC_NAME: Final = Entity("topicName", STRING)
GROUP_ID: Final = Entity("groupId", STRING)
TRANSACTIONAL_ID: Final = Entity("transactionalId", STRING)
PRODUCER_ID: Final = Entity("producerId", INT64)

TOPIC_ID: Final = Entity("topicId", UUID)
PARTITION: Final = Entity("partition", INT32)
COORDINATOR_KEY: Final = Entity("coordinatorKey", STRING)
"""A group or a transactional id, as `key_type` says."""
RESOURCE_TYPE: Final = Entity("resourceType", INT8)
RESOURCE_NAME: Final = Entity("resourceName", STRING)
USER_NAME: Final = Entity("userName", STRING)

ITSELF: Final = ""
"""In place of a field: the element is a plain value."""
FORGOTTEN: Final = "forgotten_topics_data"
"""What a fetch asks for no more: it is not about that."""


def lists_naming(api: Api, cls: type, entities: Collection[Entity], path: str = "") -> Iterator[tuple[str, Field]]:
    """The lists of a structure whose elements are one of the entities or have it as a field, with their paths: `a.b` is every b
    of every a, or of the one that there is."""
    for field in api.fields_of(cls):
        if field.name == FORGOTTEN:
            continue
        inner = api.fields_of(field.element) if isinstance(field.element, type) else ()
        is_named = field.entity in entities or any(each.entity in entities and not each.is_array for each in inner)
        if field.is_array and is_named:
            yield path + field.name, field
        elif isinstance(field.element, type):
            yield from lists_naming(api, field.element, entities, f"{path}{field.name}.")


def paths_to(api: Api, cls: type, entity: Entity, path: str = "") -> Iterator[str]:
    """The paths of all fields that stand for an entity, also inside lists."""
    for field in api.fields_of(cls):
        if field.entity is entity:
            yield path + field.name
        elif isinstance(field.element, type):
            yield from paths_to(api, field.element, entity, f"{path}{field.name}.")


_names: Final[dict[type, Mapping[Entity, str]]] = {}


def names_of(cls: type) -> Mapping[Entity, str]:
    """Entities that a structure names -> the field with the name. Lists inside it are not looked at."""
    names = _names.get(cls)
    if names is None:
        fields = [each for each in all_fields(cls) if not each.is_array]
        names = _names[cls] = {each.entity: each.name for each in fields if each.entity is not None}
    return names


def name_in(element: Any, entity: Entity) -> Any:
    """What an element of a list names: a structure in a field, a string by itself."""
    return element if isinstance(element, str) else getattr(element, names_of(type(element))[entity])


def values_at(value: Any, path: str) -> Iterator[Any]:
    """The values at a path: of a list its elements, of None nothing."""
    name, _, rest = path.partition(".")
    found = getattr(value, name, None)
    for each in found if isinstance(found, list) else () if found is None else (found,):
        if rest:
            yield from values_at(each, rest)
        else:
            yield each
