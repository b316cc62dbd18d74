"""Makes a declaration a slotted class whose methods all such classes share.

A server imports hundreds of messages before it listens, and readers fill most instances without a constructor. What attrs
compiles for each class costs most of that time and memory. Here a constructor is compiled when it is first called, and
comparison, hash and repr read the fields. `attrs.fields`, `attrs.evolve`, `attrs.asdict` and `attrs.has` work: they look for
`__attrs_attrs__` (attrs, "Extending").
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import attrs

from .source import Source


class Slot(NamedTuple):
    """A field of a class, with the names that attrs has for the same. The declaration's value is one without a name."""

    default: Any
    """attrs.NOTHING for a field that must be given, a value, or an attrs.Factory."""
    repr: bool
    """Whether a `repr` has the value."""
    wire: Any
    """How the field is written. The package that declares it knows more."""
    name: str = ""
    alias: str = ""
    """The argument of the constructor: the name again."""
    init: bool = True
    """Whether the constructor has the argument."""


SLOTS: Final = "__attrs_attrs__"


def lean(cls: type, *, is_frozen: bool) -> Any:
    """Return the class with a slot for each field that it or its base declares; its own fields are behind those of its base.
    Positional arguments of its constructor are in that order. A frozen one raises attrs.exceptions.FrozenInstanceError when a
    field is set, and can be hashed."""
    own = {name: value for name, value in vars(cls).items() if isinstance(value, Slot)}
    inherited: tuple[Slot, ...] = getattr(cls, SLOTS, ())
    before = {each.name for each in inherited}
    body = {name: value for name, value in vars(cls).items() if name not in own and name not in ("__dict__", "__weakref__")}
    body |= _FROZEN if is_frozen else _SHARED
    body["__qualname__"] = cls.__qualname__
    body["__slots__"] = tuple(name for name in own if name not in before)
    body[SLOTS] = slots = (
        *(each for each in inherited if each.name not in own),
        *(value._replace(name=name, alias=name) for name, value in own.items()),
    )
    body["__match_args__"] = tuple([slot.name for slot in slots])
    return type(cls)(cls.__name__, cls.__bases__, body)


def slots_of(cls: type) -> tuple[Slot, ...]:
    """Return the fields of a class, in the order of its constructor. Raises AttributeError for another class."""
    found: tuple[Slot, ...] = getattr(cls, SLOTS)
    return found


def _init(self: Any, *values: Any, **named: Any) -> None:
    """Compile the constructor, which takes the place of this one, and call it."""
    cls: Any = type(self)
    cls.__init__ = _make_init(cls)
    cls.__init__(self, *values, **named)


def _make_init(cls: type) -> Any:
    source, parameters, lines = Source(), [], []
    nothing = source.constant(attrs.NOTHING)
    for slot in slots_of(cls):
        name, value = slot.name, slot.name
        if slot.default is attrs.NOTHING:
            parameters.append(name)
        elif isinstance(slot.default, attrs.Factory):  # type: ignore[arg-type]
            parameters.append(f"{name}={nothing}")
            value = f"{source.constant(slot.default.factory)}() if {name} is {nothing} else {name}"
        else:
            parameters.append(f"{name}={source.constant(slot.default)}")
        lines.append(f"{source.constant(getattr(cls, name).__set__)}(self, {value})")
    with source.block(f"def __init__({', '.join(['self', *parameters])}):"):
        source.add(*(lines or ["pass"]))
    made = source.function("__init__", f"<constructor of {cls.__name__}>")
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, slot.name) for slot in slots_of(type(value))])


def _is_equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash((type(self), _values(self)))


def _told(self: Any) -> str:
    shown = (slot.name for slot in slots_of(type(self)) if slot.repr)
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _refuse_change(self: Any, name: str, value: Any = None) -> None:
    raise attrs.exceptions.FrozenInstanceError


def _restore(self: Any, state: tuple[None, dict[str, Any]]) -> None:
    """Set the slots: pickle and copy call this with their values."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


_SHARED: Final = {"__init__": _init, "__eq__": _is_equal, "__hash__": None, "__repr__": _told}
_FROZEN: Final = _SHARED | {
    "__hash__": _hash,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
    "__setstate__": _restore,
}
