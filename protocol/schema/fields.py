"""Declares structures of Kafka's protocol as classes whose fields state their type on the wire and their versions.

    @struct
    class TopicRequest:
        name: str = wire(STRING)
        topic_id: bytes = wire(UUID, "10+")
        partitions: list[PartitionRequest] = wire([PartitionRequest], nullable="2+")
        rack: str | None = wire(STRING, "12+", nullable="12+", tag=0)

Fields stand in the order of the wire. A field that a version does not have is at its default after reading and is left out
when written. The instances are plain slotted values; `codec` reads and writes them. Source: Kafka's message schema files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast, dataclass_transform

import attrs

from ..limits import INT16_MAX
from .lean import Slot, lean, slots_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Primitive(NamedTuple):
    """A type of the wire. `format` is struct's letter when it has a fixed size."""

    name: str
    default: Any
    format: str = ""


BOOL: Final = Primitive("bool", False, "?")
INT8: Final = Primitive("int8", 0, "b")
INT16: Final = Primitive("int16", 0, "h")
UINT16: Final = Primitive("uint16", 0, "H")
INT32: Final = Primitive("int32", 0, "i")
UINT32: Final = Primitive("uint32", 0, "I")
INT64: Final = Primitive("int64", 0, "q")
FLOAT64: Final = Primitive("float64", 0.0, "d")
UUID: Final = Primitive("uuid", bytes(16), "16s")
"""16 raw bytes: nobody on the hot path wants an object."""
STRING: Final = Primitive("string", "")
BYTES: Final = Primitive("bytes", b"")
RECORDS: Final = Primitive("records", None)
"""Bytes that are handed through: read as a view of the request, written without a copy. None is null."""

Element = Primitive | type
"""What a field or the elements of an array are: a primitive or another structure."""


class Entity(NamedTuple):
    """The kind of entity that a value names, from `entityType` in Kafka's schema files, and its primitive on the wire."""

    name: str
    primitive: Primitive


class Versions(NamedTuple):
    """From `first` to `last`, both included; none when `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def both(self, other: Versions) -> Versions:
        """The versions that are in both ranges."""
        return Versions(max(self.first, other.first), min(self.last, other.last))

    @property
    def are_none(self) -> bool:
        return self.last < self.first

    @classmethod
    def parse(cls, text: str) -> Versions:
        """`3+`, `0-2`, `5` or `none`. Raises ValueError."""
        if text == "none":
            return cls(0, -1)
        first, dash, last = text.partition("-")
        if first.endswith("+") and not dash:
            return cls(int(first[:-1]), INT16_MAX)
        return cls(int(first), int(last if dash else first))


@attrs.frozen(kw_only=True)
class Field:
    """A field of a structure."""

    name: str
    element: Element
    entity: Entity | None
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    make_default: Callable[[], Any]


def wire(
    kind: Element | Entity | list[Any],
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Any = ...,
    shown: bool = True,
) -> Any:
    """A field of a structure: a primitive, what an entity is written as, a structure, or a list of one of them for an array.

    `tag`: the field stands among the tagged ones (KIP-482), and is written only when it is not at its default. `default`: what
    it is where a version lacks it; `...`, as when nothing is said, is the type's own: 0, empty, or its fields' defaults. A
    field with a default may be left out by those who make an instance. `shown`: whether a `repr` has the value.
    """
    is_array = isinstance(kind, list)
    kind = kind[0] if isinstance(kind, list) else kind
    entity = kind if isinstance(kind, Entity) else None
    element = kind.primitive if isinstance(kind, Entity) else kind
    factory: Any = None
    if default is ...:
        default, factory = _default_of(element, is_array=is_array, is_nullable=nullable != "none")
    described = (element, entity, is_array, Versions.parse(versions), Versions.parse(nullable), tag)
    return Slot(default if factory is None else attrs.Factory(factory), shown, described)


def _default_of(element: Element, *, is_array: bool, is_nullable: bool) -> tuple[Any, Any]:
    """(default, factory) as Kafka has them: an empty array, a structure at its own defaults, unless it may be null and is
    said to be so."""
    if is_array:
        return None, list
    if isinstance(element, Primitive):
        return element.default, None
    return (None, None) if is_nullable else (None, element)


@dataclass_transform(eq_default=True, kw_only_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Make a declaration a slotted class with a constructor, which readers pass over. All fields have defaults, for versions
    that lack them; the type checker wants those named that are not declared with one."""
    made: type[T] = lean(cls, is_frozen=False)
    return made


def cached(make: F) -> F:
    """Keep the results of a function of classes indefinitely: there are only so many. As `functools.cache`, but callers are
    checked against the function's own parameters."""
    return cast(F, cache(make))


def fields_of(cls: type, version: int) -> Sequence[Field]:
    """The fields that a version has, in the order of the wire; tagged ones too."""
    return [field for field in all_fields(cls) if version in field.versions]


def all_fields(cls: type) -> Sequence[Field]:
    """Every field of a structure, whatever its version."""
    return [_field(slot) for slot in slots_of(cls)]


def _field(slot: Slot) -> Field:
    element, entity, is_array, versions, nullable, tag = slot.wire
    default = slot.default
    return Field(
        name=slot.name,
        element=element,
        entity=entity,
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        tag=tag,
        make_default=getattr(default, "factory", lambda: default),
    )


def has_more_elements(value: Any, most: int) -> bool:
    """Return whether all arrays of a message together have more than `most` elements. It counts no further."""
    return _counted(value, most) > most


def _counted(value: Any, most: int) -> int:
    count = 0
    for name, is_array, has_arrays in _arrays_of(type(value)):
        found = getattr(value, name)
        if not found:
            continue
        if is_array:
            count += len(found)
        if has_arrays:
            for each in found if is_array else (found,):
                if count > most:
                    return count
                count += _counted(each, most - count)
    return count


@cached
def _arrays_of(cls: type) -> tuple[tuple[str, bool, bool], ...]:
    """(field, whether it is an array, whether its structures have arrays) of each field that is or has arrays."""
    found = []
    for field in all_fields(cls):
        has_arrays = isinstance(field.element, type) and bool(_arrays_of(field.element))
        if field.is_array or has_arrays:
            found.append((field.name, field.is_array, has_arrays))
    return tuple(found)
