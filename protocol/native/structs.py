"""Messages and the structs inside them: frozen values that are declared (`declaration`), read and written (`codec`)."""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import attrs

from .codec import make_reader, make_writer
from .declaration import keys_of, wire
from .fields import Body

T = TypeVar("T", bound="Struct")


class Struct:
    """A map of the protocol as a value."""

    __slots__ = ()

    keys: ClassVar[frozenset[str]]
    """Those that its map may have."""

    def to_body(self) -> Body:
        """What msgpack packs. The writer is made when the first of a class is written, and takes the place of this method."""
        cls: Any = type(self)
        cls.to_body = make_writer(cls)
        return self.to_body()


class Message(Struct):
    """The body of a request or of an answer."""

    __slots__ = ()

    api: ClassVar[str]
    is_request: ClassVar[bool]

    @classmethod
    def from_body(cls, body: Body) -> Self:
        """Read what msgpack yielded; FieldError for what is wrong in it, unknown keys inside a request too. The reader is made
        when the first of a class is read, and takes the place of this method."""
        owner: Any = cls
        owner.from_body = make_reader(owner, in_request=cls.is_request, checks_keys=False)
        return cls.from_body(body)


class RequestMessage(Message):
    """What a client asks."""

    __slots__ = ()

    is_request = True


class ResponseMessage(Message):
    """What a server answers."""

    __slots__ = ()

    is_request = False


@dataclass_transform(eq_default=True, frozen_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Make a declaration a frozen, slotted class."""
    made: Any = attrs.frozen(cls)
    made.keys = keys_of(made)
    made.to_body = Struct.to_body  # its base's writer would leave out what is its own
    return made  # type: ignore[no-any-return]
