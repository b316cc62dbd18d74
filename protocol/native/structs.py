"""Messages and the structs inside them: classes whose fields declare the keys of a map, read and written by compiled functions.

    @struct
    class MemberRequest(RequestMessage):
        group: str = wire(name(255))
        offsets: tuple[Offset, ...] = wire([Offset])
        reason: str | None = wire(note(), default=None)

In a request a key with a default may be absent, and unknown keys are refused by name. In a response every key is present, and
unknown ones are skipped, because a newer server may send more; defaults are for the code that builds one.

The functions are source made from the declaration, compiled once. A reader checks every value in place, without a call for
those that are no more than a type and bounds, and fills the slots of a value without its constructor, which would cost half of
the time. A writer is one expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, ClassVar, Final, NoReturn, Self, TypeVar, dataclass_transform

import attrs

from .. import limits
from ..errors import RequestError
from ..schema.lean import Slot, lean, slots_of
from ..schema.source import Source
from ..types import TopicPartition
from .kinds import (
    ERROR,
    INT32,
    MAP,
    MISSING,
    TOPIC,
    Body,
    FieldError,
    Kind,
    check_count,
    check_keys,
    describe_value,
    unexpected,
)

Reader = Callable[[Body], Any]
Writer = Callable[[Any], Body]


def read_entries(values: list[Any], key: str, *, read: Reader, max_count: int) -> tuple[Any, ...]:
    """An array of maps; an error names the entry's index."""
    check_count(key, len(values), max_count)
    entries: list[Any] = []
    try:
        for entry in values:
            if type(entry) is not dict:
                raise unexpected("", entry, "map")
            entries.append(read(entry))
    except FieldError as exc:
        raise exc.within(f"{key}[{len(entries)}]") from None
    return tuple(entries)


def _read_map(values: Mapping[Any, Any], key: str, *, read: Reader) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{key}[{describe_value(name)}]"
        if type(name) is not str or type(value) is not dict:
            raise unexpected(path, value, "map under a str")
        try:
            made[name] = read(value)
        except FieldError as exc:
            raise exc.within(path) from None
    return made


def _read_struct(value: Body, key: str, *, read: Reader) -> Any:
    try:
        return read(value)
    except FieldError as exc:
        raise exc.within(key) from None


def _refuse_alternatives(body: Body, names: tuple[str, ...]) -> NoReturn:
    found = [name for name in names if name in body]
    raise FieldError("", f"has {' and '.join(found) or 'none'} of {', '.join(names)}, expected one")


_CALLED: Final = {
    "check_keys": check_keys,
    "unexpected": unexpected,
    "refuse_alternatives": _refuse_alternatives,
    "MISSING": MISSING,
    "new": object.__new__,
}


@cache
def make_reader(cls: type, *, in_request: bool, checks_keys: bool) -> Reader:
    """Compile the reader that makes a struct of a map. It raises FieldError for invalid values, and for unknown keys with
    `checks_keys`."""
    source = Source(names=dict(_CALLED))
    fields = fields_of(cls)
    with source.block("def read(body):"):
        if checks_keys:
            known = source.constant(keys_of(cls))
            with source.block(f"if not body.keys() <= {known}:"):
                source.add(f"check_keys(body, {known})")
        source.add("get = body.get")
        alternatives = tuple(field.name for field in fields if field.alternative)
        values = {}
        for field in fields:
            if alternatives[:1] == (field.name,):
                there = " + ".join(f"({name!r} in body)" for name in alternatives)
                with source.block(f"if {there} != 1:"):
                    source.add(f"refuse_alternatives(body, {alternatives})")
            values[field.name] = _read_field(source, field, in_request)
        source.add(f"made = new({source.constant(cls)})")
        for name, value in values.items():
            source.add(f"{source.constant(getattr(cls, name).__set__)}(made, {value})")
        source.add("return made")
    return source.function("read", f"<reader of {cls.__name__}>")


def _read_field(source: Source, field: Field, in_request: bool) -> str:
    """Lines that read a field; answers the variable that has it."""
    value, key = source.variable(), repr(field.name)
    if field.flat and isinstance(field.shape, type):
        read = make_reader(field.shape, in_request=in_request, checks_keys=False)
        source.add(f"{value} = {source.constant(read)}(body)")
        return value
    kind = _kind_of(field, in_request)
    branches = []
    if field.nil is not MISSING:
        branches.append((f"{value} is None", f"{value} = {source.constant(field.nil)}"))
    elif field.may_be_absent(in_request=in_request):
        branches.append((f"{value} is MISSING", f"{value} = {_default(source, field)}"))
    if can_be_read_before(field):
        branches.append((f"type({value}) is tuple", "pass"))
    if kind.test:
        branches.append((f"not ({kind.test.format(v=value)})", f"raise unexpected({key}, {value}, {kind.expected!r})"))
    if kind.read is not None:
        branches.append(("", f"{value} = {source.constant(kind.read)}({value}, {key})"))
    if field.left_out:  # seldom there, and then a call less
        source.add(f"{value} = body[{key}] if {key} in body else None")
    else:
        source.add(f"{value} = get({key})" if field.nil is not MISSING else f"{value} = get({key}, MISSING)")
    word = "if"
    for condition, line in branches:
        if condition or word == "elif":
            with source.block(f"{word} {condition}:" if condition else "else:"):
                source.add(line)
        else:
            source.add(line)
        word = "elif"
    return value


def can_be_read_before(field: Field) -> bool:
    """Return whether `decode_steps` reads the field in steps. Its value is a tuple then, which msgpack never yields and
    the reader accepts unchecked."""
    return isinstance(field.shape, list) or (isinstance(field.shape, Kind) and field.shape.read_steps is not None)


def _kind_of(field: Field, in_request: bool) -> Kind:
    """Return the kind that checks and reads a field, structs too."""
    shape = field.shape
    if isinstance(shape, Kind):
        return shape
    if isinstance(shape, list):
        read = make_reader(shape[0], in_request=in_request, checks_keys=in_request)
        read_array = partial(read_entries, read=read, max_count=field.max_count)
        return Kind(expected="array", test="type({v}) is list", read=read_array)
    if isinstance(shape, dict):
        read = make_reader(shape[str], in_request=in_request, checks_keys=in_request)
        return attrs.evolve(MAP, read=partial(_read_map, read=read))
    read = make_reader(shape, in_request=in_request, checks_keys=in_request)
    return attrs.evolve(MAP, read=partial(_read_struct, read=read))


def _default(source: Source, field: Field) -> str:
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return f"{source.constant(default.factory)}()"
    return source.constant(default)


@cache
def make_writer(cls: type) -> Writer:
    """Compile the writer that makes of a struct the map that msgpack packs."""
    source = Source()
    with source.block("def write(self):"):
        source.add(f"return {{{_items(source, cls, 'self')}}}")
    return source.function("write", f"<writer of {cls.__name__}>")


def _items(source: Source, cls: type, struct: str) -> str:
    """The inside of a dict display."""
    items = []
    for field in sorted(fields_of(cls), key=lambda field: field.last):
        value = f"{struct}.{field.name}"
        if field.flat and isinstance(field.shape, type):
            items.append(_items(source, field.shape, value))
        elif field.alternative or field.left_out:
            written = _written(source, field, value)
            items.append(f"**({{}} if {value} is None else {{{field.name!r}: {written}}})")
        else:
            items.append(f"{field.name!r}: {_written(source, field, value)}")
    return ", ".join(items)


def _written(source: Source, field: Field, value: str) -> str:
    """An expression: what msgpack packs of a field."""
    shape = field.shape
    if isinstance(shape, Kind):
        written = shape.write.format(v=value) if isinstance(shape.write, str) else f"{source.constant(shape.write)}({value})"
    elif isinstance(shape, list):
        each = source.variable()
        written = f"[{{{_items(source, shape[0], each)}}} for {each} in {value}]"
    elif isinstance(shape, dict):
        key, each = source.variable(), source.variable()
        written = f"{{{key}: {{{_items(source, shape[str], each)}}} for {key}, {each} in {value}.items()}}"
    else:
        written = f"{{{_items(source, shape, value)}}}"
    return written if written == value or field.nil is not None else f"None if {value} is None else {written}"


Shape = Kind | type | list[type] | dict[type[str], type]
"""A value that is no struct, a struct, an array of structs, a map of structs by str."""


@attrs.frozen(kw_only=True)
class Field:
    """A key of a struct; `wire` documents the other fields."""

    name: str = ""
    default: Any = None
    """As attrs has it: attrs.NOTHING, a value or an attrs.Factory."""
    shape: Shape
    nullable: bool = False
    later: bool = False
    last: bool = False
    flat: bool = False
    alternative: bool = False
    left_out: bool = False
    max_count: int = limits.MAX_PARTITIONS_PER_REQUEST

    @property
    def nil(self) -> Any:
        """Return the value of the field when the key is nil or absent; MISSING when it must not be nil."""
        return None if self.nullable else self.shape.nil if isinstance(self.shape, Kind) else MISSING

    def may_be_absent(self, *, in_request: bool) -> bool:
        """Return whether the reader accepts a map without the key."""
        has_default: bool = self.default is not attrs.NOTHING
        return self.nil is not MISSING or self.later or (in_request and has_default)


def wire(
    shape: Shape,
    *,
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    shown: bool = True,
    **options: Any,
) -> Any:
    """A field of a struct.

    `nullable`: nil and a key that is absent are None. `later`: answers of servers that are older than the key lack it. `last`:
    written behind the others, where records can be sent as a buffer of their own. `flat`: the keys of this struct stand among
    those of the outer one. `alternative`: exactly one of a struct's alternatives is there, the others are None. None
    of a `left_out` is written by leaving the key out: servers that are older than its being nullable refuse nil.
    `max_count`: of an array's entries. `shown`: whether a `repr` has the value.
    """
    default = default if factory is None else attrs.Factory(factory)
    return Slot(default, shown, Field(shape=shape, **options))


def fields_of(cls: type) -> Sequence[Field]:
    """In the order of the constructor."""
    return [attrs.evolve(slot.wire, name=slot.name, default=slot.default) for slot in slots_of(cls)]


def keys_of(cls: type) -> frozenset[str]:
    """The keys that a map of this struct may have."""
    keys: set[str] = set()
    for field in fields_of(cls):
        keys |= keys_of(field.shape) if field.flat and isinstance(field.shape, type) else {field.name}
    return frozenset(keys)


T = TypeVar("T", bound="Struct")


class Struct:
    """A map of the protocol as a value."""

    __slots__ = ()

    keys: ClassVar[frozenset[str]]
    """Those that its map may have."""

    def to_body(self) -> Body:
        """Return the map that msgpack packs. The first call for a class compiles its writer, which replaces this method."""
        cls: Any = type(self)
        cls.to_body = make_writer(cls)
        return self.to_body()


class Message(Struct):
    """The body of a request or of an answer."""

    __slots__ = ()

    api: ClassVar[str]
    """The name of its call, which the table of calls in `messages` gives it."""
    is_request: ClassVar[bool]

    @classmethod
    def from_body(cls, body: Body) -> Self:
        """Read what msgpack yielded; FieldError for what is wrong in it, unknown keys inside a request too. The reader is made
        when the first of a class is read, and takes the place of this method."""
        owner: Any = cls
        owner.from_body = make_reader(owner, in_request=cls.is_request, checks_keys=False)
        return cls.from_body(body)


class RequestMessage(Message):
    """A request of a client."""

    __slots__ = ()

    is_request = True


class ResponseMessage(Message):
    """A response of a server."""

    __slots__ = ()

    is_request = False


@dataclass_transform(eq_default=True, frozen_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Make a declaration a frozen, slotted class."""
    made = lean(cls, is_frozen=True)
    made.keys = keys_of(made)
    made.to_body = Struct.to_body  # its base's writer would leave out what is its own
    return made  # type: ignore[no-any-return]


@struct
class Partition(Struct):
    """The start of every entry about one partition: its topic and number."""

    topic: str = wire(TOPIC)
    partition: int = wire(INT32)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@struct
class PartitionAnswer(Partition):
    """With an error the rest of it means nothing."""

    error: RequestError | None = wire(ERROR, default=None)


@struct
class TopicAnswer(Struct):
    """With an error the rest of it means nothing."""

    name: str = wire(TOPIC)
    error: RequestError | None = wire(ERROR, default=None)
