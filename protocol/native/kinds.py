"""The values that can be under a key of a message: how each is checked, read, written, and named in a refusal.

A body is what msgpack yields (None, bool, int, float, str, bytes, list, dict). Types are compared exactly: a bool is not an
int. A refusal names the path of the key, the value found and the value expected. The error entry `[code, name, message]` is one
kind.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import attrs

from .. import errors, limits
from ..errors import ErrorCode, RequestError
from ..types import NO_OFFSET

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
        raise FieldError("", f"has unknown key {shown}. Known: {', '.join(sorted(known))}")


def check_count(path: str, count: int, max_count: int, what: str = "entries") -> None:
    """Refuse an array or a map of more than `max_count`."""
    if count > max_count:
        raise FieldError(path, f"has {count} {what}, expected at most {max_count}")


ErrorEntry = tuple[int, str, str]

_CLASSES: Final[dict[ErrorCode, type[RequestError]]] = {
    error_class.default_code: error_class
    for error_class in vars(errors).values()
    if isinstance(error_class, type)
    and issubclass(error_class, RequestError)
    and error_class is not RequestError
    and "default_code" in vars(error_class)  # others say more than an entry holds
}
_NAMES: Final = {code.value: code.name for code in ErrorCode}


def encode_error(error: RequestError | None) -> ErrorEntry | None:
    """Return the `error` entry for this exception; None for None."""
    if error is None:
        return None
    code = int(error.code)
    return code, _NAMES[code], error.message


def decode_error(entry: object, where: str = "error") -> RequestError | None:
    """The exception an entry stands for, of the class that has this code.

    A code that this version does not know becomes UNKNOWN_SERVER_ERROR with the server's code and name in its message.
    """
    if entry is None:
        return None
    if not (type(entry) is list and [type(part) for part in entry] == [int, str, str]):
        raise unexpected(where, entry, "nil or [code: int, name: str, message: str]")
    code, name, message = entry
    try:
        known = ErrorCode(code)
    except ValueError:
        return RequestError(f"{message} (error {code} {name}, unknown to this client)")
    return _CLASSES.get(known, RequestError)(message, known)


Steps = Generator[None, None, Any]
"""Pauses wherever others may have their turn, and returns what was made."""

MAX_CONFIG_KEYS: Final = 1_000
MAX_CONFIG_KEY_CHARS: Final = 255
"""Above any configuration key there is; which ones exist, the configuration says."""


@attrs.frozen(kw_only=True)
class Kind:
    """A type of values on the wire. `{v}` in source is the value."""

    expected: str
    test: str = ""
    """Source: whether a value is right. Nothing: `read` says so."""
    read: Callable[[Any, str], Any] | None = None
    """(a value that passed the test, its key) -> what a message holds. Raises FieldError with the key in its path."""
    read_steps: Callable[[Any, str], Steps] | None = None
    """`read` in steps, for what may be large; returns a tuple. It leaves alone what is not an array."""
    write: str | Callable[[Any], Any] = "{v}"
    """Source, or a function: what msgpack packs."""
    nil: Any = MISSING
    """What a message holds when the key is nil or absent; MISSING: it must be neither."""


def integer(minimum: int, maximum: int) -> Kind:
    """An int within inclusive bounds."""
    return Kind(expected=f"int from {minimum} to {maximum}", test=f"type({{v}}) is int and {minimum} <= {{v}} <= {maximum}")


INT16: Final = integer(0, limits.INT16_MAX)
INT32: Final = integer(0, limits.INT32_MAX)
"""Partitions, counts, durations in ms."""
UINT32: Final = integer(0, limits.UINT32_MAX)
INT64: Final = integer(0, limits.INT64_MAX)
"""Offsets, timestamps, sizes."""
INT64_OR_NONE: Final = integer(NO_OFFSET, limits.INT64_MAX)
"""-1 when it is not known."""

NUMBER: Final = Kind(
    expected="number", test="type({v}) is float or type({v}) is int", read=lambda value, key: float(value), write="{v}"
)
"""A float, also sent as an int."""
BOOL: Final = Kind(expected="bool", test="type({v}) is bool")
BINARY: Final = Kind(expected="bin", test="type({v}) is bytes")


def _read_secret(value: Any, key: str) -> bytes:
    if type(value) is not bytes:
        raise FieldError(key, "is missing or not bin")
    return value


SECRET: Final = Kind(expected="bin", read=_read_secret)
"""Bytes that no message repeats, whatever came in their place."""
MAP: Final = Kind(expected="map", test="type({v}) is dict")
STRING: Final = Kind(expected="str", test="type({v}) is str")
"""Of any length."""
ERROR: Final = Kind(
    expected="nil or [code: int, name: str, message: str]",
    read=decode_error,
    write=encode_error,
    nil=None,
)


def name(max_chars: int) -> Kind:
    """A str of 1 to `max_chars` characters."""
    return Kind(expected=f"str of 1 to {max_chars} characters", test=f"type({{v}}) is str and 0 < len({{v}}) <= {max_chars}")


TOPIC: Final = name(limits.MAX_TOPIC_NAME_CHARS)
"""A topic's name; whether it is a legal one the log manager says."""


def note(max_chars: int = limits.MAX_STRING_CHARS) -> Kind:
    """A str that may be empty, nil or absent."""
    return Kind(
        expected=f"nil or str of at most {max_chars} characters",
        test=f"type({{v}}) is str and len({{v}}) <= {max_chars}",
        nil=None,
    )


TEXT: Final = attrs.evolve(note(), nil="")
"""A str that may be empty, and is when it is nil or absent."""


def choice(choices: type[enum.Enum]) -> Kind:
    """A member, by the str that is its value."""
    members = {member.value: member for member in choices}
    expected = f"one of {', '.join(map(repr, members))}"

    def read(value: Any, key: str) -> enum.Enum:
        if type(value) is not str or value not in members:
            raise unexpected(key, value, expected)
        return members[value]

    return Kind(expected=expected, read=read, write="{v}.value")


def names(max_chars: int, max_count: int = limits.MAX_PARTITIONS_PER_REQUEST) -> Kind:
    """An array of at most `max_count` str of 1 to `max_chars` characters."""
    expected = f"str of 1 to {max_chars} characters"

    def read(values: list[Any], key: str) -> tuple[str, ...]:
        check_count(key, len(values), max_count)
        for index, value in enumerate(values):
            if type(value) is not str or not 0 < len(value) <= max_chars:
                raise unexpected(f"{key}[{index}]", value, expected)
        return tuple(values)

    return Kind(expected="array", test="type({v}) is list", read=read, write="list({v})")


TOPICS: Final = names(limits.MAX_TOPIC_NAME_CHARS)


def _read_config(value: dict[Any, Any], key: str) -> dict[str, str]:
    check_count(key, len(value), MAX_CONFIG_KEYS, "keys")
    for config_key, text in value.items():
        if type(config_key) is not str or type(text) is not str:
            raise unexpected(f"{key}[{describe_value(config_key)}]", text, "str under a str")
    return value


CONFIG: Final = Kind(expected="map", test="type({v}) is dict", read=_read_config)
"""A topic's configuration: str under str, of at most MAX_CONFIG_KEYS keys."""
