"""How a map of the protocol is declared: a class whose fields say what stands under their keys.

    @struct
    class MemberRequest(RequestMessage):
        api = "member"
        group: str = wire(name(255))
        offsets: tuple[Offset, ...] = wire([Offset])
        reason: str | None = wire(note(), default=None)

In a request a key with a default may be absent, and unknown keys are refused by name. In an answer every key is there, and
unknown ones are skipped, because a newer server may say more; defaults are for those who make one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from .. import limits
from .fields import MISSING
from .kinds import Kind

Shape = Kind | type | list[type] | dict[type[str], type]
"""A value that is no struct, a struct, an array of structs, a map of structs by str."""

_METADATA: Final = "wire"


@attrs.frozen(kw_only=True)
class Field:
    """One key of a struct; `wire` says what the rest means."""

    name: str = ""
    default: Any = None
    """As attrs has it: attrs.NOTHING, a value or an attrs.Factory."""
    shape: Shape
    nullable: bool
    later: bool
    last: bool
    flat: bool
    alternative: bool
    left_out: bool
    max_count: int

    @property
    def nil(self) -> Any:
        """What a message holds when the key is nil or absent; MISSING: it must not be nil."""
        return None if self.nullable else self.shape.nil if isinstance(self.shape, Kind) else MISSING

    def may_be_absent(self, *, in_request: bool) -> bool:
        """Whether its reader does without the key."""
        has_default: bool = self.default is not attrs.NOTHING
        return self.nil is not MISSING or self.later or (in_request and has_default)


def wire(
    shape: Shape,
    *,
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    nullable: bool = False,
    later: bool = False,
    last: bool = False,
    flat: bool = False,
    alternative: bool = False,
    left_out: bool = False,
    max_count: int = limits.MAX_PARTITIONS_PER_REQUEST,
    shown: bool = True,
) -> Any:
    """A field of a struct.

    `nullable`: nil and a key that is absent are None. `later`: answers of servers that are older than the key lack it. `last`:
    written behind the others, where records can be sent as a buffer of their own. `flat`: the keys of this struct stand among
    those of the outer one. `alternative`: exactly one of a struct's alternatives is there, the others are None. None
    of a `left_out` is written by leaving the key out: servers that are older than its being nullable refuse nil.
    `max_count`: of an array's entries. `shown`: whether a `repr` has the value.
    """
    options = Field(
        shape=shape,
        nullable=nullable,
        later=later,
        last=last,
        flat=flat,
        alternative=alternative,
        left_out=left_out,
        max_count=max_count,
    )
    default = default if factory is None else attrs.Factory(factory)
    return attrs.field(default=default, repr=shown, metadata={_METADATA: options})


def fields_of(cls: type) -> Sequence[Field]:
    """In the order of the constructor."""
    return [
        attrs.evolve(attribute.metadata[_METADATA], name=attribute.name, default=attribute.default)
        for attribute in attrs.fields(cls)
    ]


def keys_of(cls: type) -> frozenset[str]:
    """The keys that a map of this struct may have."""
    keys: set[str] = set()
    for field in fields_of(cls):
        keys |= keys_of(field.shape) if field.flat and isinstance(field.shape, type) else {field.name}
    return frozenset(keys)
