"""What is wrong with a body, and how it is said: with the key's path, what was found and what was expected.

A body is what msgpack yields (None, bool, int, float, str, bytes, list, dict). Types are compared exactly: a bool is no int.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .. import errors

Body = dict[str, Any]

MISSING: Final[Any] = object()
"""In place of a value: its key is not there."""

SHOWN_CHARS: Final = 40
"""How much of an unexpected value is repeated in a message; it came from outside and may be of any size."""


class FieldError(errors.InvalidRequestError):
    """A key that is missing, unknown or holds the wrong thing. `path` is where, as in `partitions[3].topic`."""

    def __init__(self, path: str, complaint: str) -> None:
        super().__init__(f"{path} {complaint}")
        self.path = path
        self.complaint = complaint

    def within(self, prefix: str) -> FieldError:
        """This complaint as it reads one map further out."""
        return FieldError(f"{prefix}.{self.path}" if self.path else prefix, self.complaint)


def unexpected(path: str, value: object, expected: str) -> FieldError:
    """The complaint about a value that is MISSING or wrong."""
    found = "missing" if value is MISSING else describe_value(value)
    return FieldError(path, f"is {found}, expected {expected}")


def describe_value(value: object) -> str:
    """A value from outside for a message: its msgpack type and, where that is short, the value."""
    if value is None:
        return "nil"
    if isinstance(value, bytes):
        return f"bin of {len(value)} bytes"
    if isinstance(value, list | tuple):
        return f"array of {len(value)}"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    if isinstance(value, str):
        return f"str {value!r}" if len(value) <= SHOWN_CHARS else f"str of {len(value)} characters"
    return f"{type(value).__name__} {value!r:.{SHOWN_CHARS}}"


def check_keys(body: Mapping[str, object], known: frozenset[str]) -> None:
    """Refuse unknown keys by name."""
    if not body.keys() <= known:
        unknown = sorted(repr(key)[:SHOWN_CHARS] for key in body.keys() - known)
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise FieldError("", f"has unknown key {shown}; known: {', '.join(sorted(known))}")


def check_count(path: str, count: int, max_count: int, what: str = "entries") -> None:
    """Refuse an array or a map of more than `max_count`."""
    if count > max_count:
        raise FieldError(path, f"has {count} {what}, expected at most {max_count}")
