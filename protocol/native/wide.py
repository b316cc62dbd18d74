"""Requests of many entries, read in steps: others may have their turn in between.

What is read here lies in the body as a tuple, which msgpack never yields, and is taken as it is by the request's `from_body`.
What is wrong otherwise is left to `from_body` to say.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, Final

from .codec import Reader, can_be_read_before, make_reader
from .declaration import Field, fields_of
from .fields import Body, FieldError, unexpected
from .kinds import Kind, Steps
from .messages import RequestMessage, checked_request, decode_request

ENTRIES_PER_PAUSE: Final = 64
"""At 3 us each."""
VALUES_PER_ENTRY: Final = 16
"""Values of an entry's own array or map that take as long as an entry."""


def decode_steps(api: str, version: int, body: Body) -> Generator[None, None, RequestMessage]:
    """`messages.decode_request` in steps. The body is used up."""
    request = checked_request(api, version, body)
    try:
        yield from _read_ahead(request, body)
    except FieldError as exc:
        raise exc.within(api) from None
    return decode_request(api, version, body)


@cache
def _fields_with_steps(cls: type) -> Sequence[Field]:
    return [field for field in fields_of(cls) if can_be_read_before(field)]


def _read_ahead(cls: type, body: Body) -> Steps:
    """Puts what can be read in steps into a map as tuples."""
    for field in _fields_with_steps(cls):
        values = body.get(field.name)
        if type(values) is not list:
            continue
        if isinstance(field.shape, Kind) and field.shape.read_steps is not None:
            body[field.name] = yield from field.shape.read_steps(values, field.name)
        elif isinstance(field.shape, list) and len(values) <= field.max_count:
            read = make_reader(field.shape[0], in_request=True, checks_keys=True)
            body[field.name] = yield from _entries(field.shape[0], values, field.name, read)


def _entries(cls: type, values: list[Any], key: str, decode: Reader) -> Generator[None, None, tuple[Any, ...]]:
    """What `codec.read_entries` would return. Takes the entries out of the list while it goes, so that there is not much to
    give back at the end."""
    read: list[Any] = []
    steps = 0
    try:
        for index, entry in enumerate(values):
            if type(entry) is not dict:
                raise unexpected("", entry, "map")
            steps += 1 + sum(len(each) for each in entry.values() if type(each) in (list, dict)) // VALUES_PER_ENTRY
            yield from _read_ahead(cls, entry)
            read.append(decode(entry))
            values[index] = None
            if steps >= ENTRIES_PER_PAUSE:
                steps = 0
                yield
    except FieldError as exc:
        raise exc.within(f"{key}[{len(read)}]") from None
    return tuple(read)
