"""Lean classes do what attrs' own do."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.schema.lean import Slot, lean, slots_of

NAMES = ("first", "second", "third", "fourth")
DEFAULTS = (attrs.NOTHING, 7, None, "x", attrs.Factory(list))


def both(fields: list[tuple[str, Any]], *, is_frozen: bool, bases: tuple[type, type] = (object, object)) -> tuple[Any, Any]:
    """(lean, made by attrs): the same class twice."""
    ours = type("Both", (bases[0],), {"__slots__": ()} | {name: Slot(default, True, None) for name, default in fields})
    theirs = {"__annotations__": dict.fromkeys([name for name, _ in fields], Any)}
    for name, default in fields:
        theirs[name] = attrs.field(default=default)
    make = attrs.frozen if is_frozen else attrs.define
    return lean(ours, is_frozen=is_frozen), make(type("Both", (bases[1],), theirs))


def called(call: Any, *values: Any, **named: Any) -> tuple[type | None, str]:
    """The error's class, and what the value shows."""
    try:
        return None, repr(call(*values, **named))
    except TypeError as exc:
        return type(exc), str(exc).rpartition("__init__")[2]


def required_first(fields: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return sorted(fields, key=lambda field: field[1] is not attrs.NOTHING)


FIELDS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(DEFAULTS)), unique_by=lambda field: field[0]).map(
    required_first
)
VALUES = st.integers(0, 2)


@given(
    FIELDS,
    st.booleans(),
    st.lists(VALUES, max_size=5),
    st.dictionaries(st.sampled_from((*NAMES, "unknown")), VALUES),
    st.data(),
)
def test_what_attrs_does(fields: Any, is_frozen: bool, values: Any, named: Any, data: Any) -> None:
    ours, theirs = both(fields, is_frozen=is_frozen)
    for _ in range(2):  # the first call compiles the constructor
        assert called(ours, *values, **named) == called(theirs, *values, **named)
    given_values = data.draw(st.fixed_dictionaries({name: VALUES for name, _ in fields}))
    other_values = data.draw(st.fixed_dictionaries({name: VALUES for name, _ in fields}))
    one, other = ours(**given_values), ours(**other_values)
    assert (one == other) is (theirs(**given_values) == theirs(**other_values)) is not (one != other)
    assert one != theirs(**given_values)
    assert attrs.has(ours)
    assert [field.name for field in attrs.fields(ours)] == [field.name for field in attrs.fields(theirs)]
    assert attrs.asdict(one) == given_values
    assert attrs.evolve(one, **other_values) == other
    assert attrs.evolve(one) == one == copy.copy(one) == copy.deepcopy(one)
    assert not hasattr(one, "__dict__")
    if is_frozen:
        assert hash(one) == hash(ours(**given_values))
        for name, _ in fields:
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                setattr(one, name, 1)
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                delattr(one, name)
    else:
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
        for name, value in other_values.items():
            setattr(one, name, value)
        assert one == other


@given(FIELDS, FIELDS, st.booleans(), st.booleans())
def test_a_class_with_a_base(of_base: Any, own: Any, is_frozen: bool, base_is_used: bool) -> None:
    own = [(name, 7 if default is attrs.NOTHING else default) for name, default in own]
    bases = both(of_base, is_frozen=is_frozen)
    if base_is_used:
        bases[0](**{name: 0 for name, _ in of_base})
    ours, theirs = both(own, is_frozen=is_frozen, bases=bases)
    assert [slot.name for slot in slots_of(ours)] == [field.name for field in attrs.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    required = [name for name, default in of_base if default is attrs.NOTHING and name not in dict(own)]
    named = {name: number for number, name in enumerate(required)}
    assert called(ours, **named) == called(theirs, **named)
    assert called(ours) == called(theirs)
    assert bases[0](**{name: 0 for name, _ in of_base}) != ours(**named)


@partial(lean, is_frozen=True)
class Kept:
    """Can be found by pickle."""

    name: str = Slot(attrs.NOTHING, True, None)
    secret: str = Slot("", False, None)
    names: list[str] = Slot(attrs.Factory(list), True, None)

    def shout(self) -> str:
        return self.name.upper()


def test_pickle_and_copies_keep_a_frozen_value() -> None:
    kept = Kept("a", secret="b")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(kept, protocol)) == kept


def test_what_the_declaration_has_stays() -> None:
    kept, other = Kept("a", secret="b"), Kept("c")
    assert (kept.shout(), Kept.__doc__, Kept.__module__, Kept.__qualname__) == (
        "A",
        "Can be found by pickle.",
        __name__,
        "Kept",
    )
    assert repr(kept) == "Kept(name='a', names=[])"
    assert kept.names is not other.names
