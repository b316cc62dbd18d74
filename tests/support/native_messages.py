"""Strategies for every message of the native protocol, read off its declarations, and for the stream it travels in."""

from __future__ import annotations

import enum
import re
import typing
from functools import cache
from itertools import pairwise
from typing import Any, Final

from hypothesis import strategies as st
from triolog.protocol import limits
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import kinds, messages
from triolog.protocol.native.calls import connections, fetch, lookups, produce
from triolog.protocol.native.structs import Field, fields_of
from triolog.protocol.types import Record

SHORTEST_NAME_CHARS: Final = 64
"""What fits into every array of names."""
INT64: Final = st.integers(0, limits.INT64_MAX)
TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=12)
BYTES_OR_NULL: Final = st.none() | st.binary(max_size=20)
HEADERS: Final = st.lists(st.tuples(TEXT, BYTES_OR_NULL), max_size=3).map(tuple)
BATCHES: Final = st.binary(max_size=40) | st.integers(1000, 70_000).map(bytes)
PLAIN_RECORDS: Final = st.builds(messages.PlainRecord, st.none() | INT64, BYTES_OR_NULL, BYTES_OR_NULL, HEADERS)
RECORDS: Final = st.builds(Record, INT64, st.integers(-1, limits.INT64_MAX), BYTES_OR_NULL, BYTES_OR_NULL, HEADERS)
MSGPACK_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | TEXT | st.binary(max_size=20),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(TEXT, values, max_size=4),
    max_leaves=12,
)


class ComparableError(RequestError):
    """An error that equals another with the same code and message, so that whole messages can be compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestError) and (self.code, self.message) == (other.code, other.message)

    __hash__ = RequestError.__hash__


ERRORS: Final = st.none() | st.builds(ComparableError, TEXT, st.sampled_from(ErrorCode))


def tuples_of(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


def names(max_chars: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), min_size=1, max_size=min(max_chars, limits.MAX_TOPIC_NAME_CHARS))


SPECIAL: Final[tuple[tuple[kinds.Kind, st.SearchStrategy[Any]], ...]] = (
    (produce.ACKS, st.sampled_from([0, 1, -1])),
    (produce.RECORDS, BATCHES | tuples_of(PLAIN_RECORDS)),
    (fetch.RECORDS, BATCHES | tuples_of(RECORDS)),
    (fetch.ABORTED, tuples_of(st.tuples(INT64, INT64))),
    (connections.APIS, st.dictionaries(TEXT, st.tuples(INT64, INT64), max_size=3)),
    (lookups.TIMESTAMP, st.integers(-3, limits.INT64_MAX)),
    (kinds.CONFIG, st.dictionaries(TEXT, TEXT, max_size=3)),
    (kinds.MAP, st.dictionaries(TEXT, MSGPACK_VALUES, max_size=3)),
    (kinds.ERROR, ERRORS),
    (kinds.NUMBER, st.floats(allow_nan=False)),
    (kinds.BOOL, st.booleans()),
    (kinds.BINARY, BATCHES),
    (kinds.SECRET, st.binary(max_size=50)),
    (kinds.STRING, TEXT),
)
"""Values of kinds that do not say in words what they hold."""


def _of_kind(kind: kinds.Kind, hint: Any) -> st.SearchStrategy[Any]:
    for special, strategy in SPECIAL:
        if kind is special:
            return strategy
    for choices in (hint, *typing.get_args(hint)):
        if isinstance(choices, type) and issubclass(choices, enum.Enum):
            return st.sampled_from(choices)
    if bounds := re.fullmatch(r"int from (-?\d+) to (\d+)", kind.expected):
        return st.integers(int(bounds[1]), int(bounds[2]))
    if longest := re.fullmatch(r"str of 1 to (\d+) characters", kind.expected):
        return names(int(longest[1]))
    if kind.expected.startswith("nil or str of at most"):
        return TEXT
    assert kind.expected == "array", kind
    return tuples_of(names(SHORTEST_NAME_CHARS))


def _of_field(field: Field, hint: Any) -> st.SearchStrategy[Any]:
    shape = field.shape
    if isinstance(shape, list):
        found: st.SearchStrategy[Any] = tuples_of(of_struct(shape[0]))
    elif isinstance(shape, dict):
        found = st.dictionaries(TEXT, of_struct(shape[str]), max_size=3)
    elif isinstance(shape, kinds.Kind):
        found = _of_kind(shape, hint)
    else:
        found = of_struct(shape)
    return st.none() | found if field.nil is None else found


@cache
def of_struct(cls: type) -> st.SearchStrategy[Any]:
    """Values of a struct: all its fields are drawn, and of its alternatives exactly one."""
    hints, fields = typing.get_type_hints(cls), fields_of(cls)
    drawn = {field.name: _of_field(field, hints[field.name]) for field in fields if not field.alternative}
    alternatives = [field for field in fields if field.alternative]
    if not alternatives:
        return st.builds(cls, **drawn)
    return st.one_of(
        st.builds(cls, **drawn, **{field.name: _of_field(field, hints[field.name]).filter(lambda value: value is not None)})
        for field in alternatives
    )


REQUESTS: Final = {api: of_struct(cls) for api, cls in messages.REQUESTS.items()}
RESPONSES: Final = {api: of_struct(cls) for api, cls in messages.RESPONSES.items()}


@st.composite
def split(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream in pieces, some of them empty-handed: cut anywhere."""
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    bounds = [0, *cuts, len(stream)]
    return [stream[start:stop] for start, stop in pairwise(bounds) if stop > start]
