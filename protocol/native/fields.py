"""Reading a body key by key: each reader returns a checked value or raises FieldError with the key's path.

Works on what msgpack yields (None, bool, int, float, str, bytes, list, dict). Types are compared exactly, so a bool is
no int. Requests also refuse keys they do not know; answers do not, because a newer server may add some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from .. import errors, limits

Body = dict[str, Any]
T = TypeVar("T")

REQUIRED: Final[Any] = object()
"""In place of a default: the key has to be there."""

MAX_CONFIG_KEYS: Final = 1_000
MAX_CONFIG_KEY_CHARS: Final = 255
"""Above any configuration key there is; which ones exist, the configuration says."""

SHOWN_CHARS: Final = 40
"""How much of an unexpected value is repeated in a message; it came from outside and may be of any size."""


class FieldError(errors.InvalidRequestError):
    """A key that is missing, unknown or holds the wrong thing. `path` is where, as in `partitions[3].topic`."""

    def __init__(self, path: str, complaint: str) -> None:
        super().__init__(f"{path} {complaint}")
        self.path = path
        self.complaint = complaint

    def within(self, prefix: str) -> FieldError:
        """The same complaint seen from one map further out."""
        return FieldError(f"{prefix}.{self.path}" if self.path else prefix, self.complaint)


def unexpected(path: str, value: object, expected: str) -> FieldError:
    """The complaint about a value that is there and wrong."""
    return FieldError(path, f"is {describe(value)}, expected {expected}")


def describe(value: object) -> str:
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


def integer(body: Body, key: str, minimum: int, maximum: int, default: int = REQUIRED) -> int:
    """An int within inclusive bounds."""
    value = body.get(key, default)
    if type(value) is int and minimum <= value <= maximum:
        return value
    raise _wrong(key, value, f"int from {minimum} to {maximum}")


def int32(body: Body, key: str, minimum: int = 0, default: int = REQUIRED) -> int:
    """An int from `minimum` to 2^31 - 1: partitions, counts, durations in ms."""
    return integer(body, key, minimum, limits.INT32_MAX, default)


def int64(body: Body, key: str, minimum: int = 0, default: int = REQUIRED) -> int:
    """An int from `minimum` to 2^63 - 1: offsets, timestamps, sizes."""
    return integer(body, key, minimum, limits.INT64_MAX, default)


def boolean(body: Body, key: str, default: bool = REQUIRED) -> bool:
    """A bool."""
    value = body.get(key, default)
    if type(value) is bool:
        return value
    raise _wrong(key, value, "bool")


def string(body: Body, key: str, max_chars: int) -> str:
    """A required str of 1 to `max_chars` characters."""
    value = body.get(key, REQUIRED)
    if type(value) is str and 0 < len(value) <= max_chars:
        return value
    raise _wrong(key, value, f"str of 1 to {max_chars} characters")


def optional_string(body: Body, key: str, max_chars: int) -> str | None:
    """A str that may be empty, nil or absent."""
    value = body.get(key)
    if value is None or (type(value) is str and len(value) <= max_chars):
        return value
    raise _wrong(key, value, f"nil or str of at most {max_chars} characters")


def binary(body: Body, key: str) -> bytes:
    """Required bytes, of any number."""
    value = body.get(key, REQUIRED)
    if type(value) is bytes:
        return value
    raise _wrong(key, value, "bin")


def choice(body: Body, key: str, choices: Mapping[str, T], default: str = REQUIRED) -> T:
    """What the str at `key` stands for."""
    value = body.get(key, default)
    if type(value) is str and value in choices:
        return choices[value]
    raise _wrong(key, value, f"one of {', '.join(map(repr, choices))}")


def topic(body: Body, key: str = "topic") -> str:
    """A topic's name; whether it is a legal one the log manager says."""
    return string(body, key, limits.MAX_TOPIC_NAME_CHARS)


def map_at(body: Body, key: str, default: Body = REQUIRED) -> Body:
    """A map."""
    value = body.get(key, default)
    if type(value) is dict:
        return value
    raise _wrong(key, value, "map")


def string_map(body: Body, key: str, default: Body = REQUIRED) -> dict[str, str]:
    """A map of str to str, such as a topic's configuration, of at most MAX_CONFIG_KEYS keys."""
    value = map_at(body, key, default)
    if len(value) > MAX_CONFIG_KEYS:
        raise FieldError(key, f"has {len(value)} keys, expected at most {MAX_CONFIG_KEYS}")
    for name, text in value.items():
        if type(name) is not str or type(text) is not str:
            raise unexpected(f"{key}[{describe(name)}]", text, "str under a str")
    return value


def topics(body: Body, key: str) -> tuple[str, ...]:
    """An array of topic names."""
    return strings(body, key, limits.MAX_PARTITIONS_PER_REQUEST, limits.MAX_TOPIC_NAME_CHARS)


def strings(body: Body, key: str, max_count: int, max_chars: int, default: list[str] = REQUIRED) -> tuple[str, ...]:
    """An array of at most `max_count` str of 1 to `max_chars` characters."""
    values = array(body, key, max_count, default)
    for index, value in enumerate(values):
        if type(value) is not str or not 0 < len(value) <= max_chars:
            raise unexpected(f"{key}[{index}]", value, f"str of 1 to {max_chars} characters")
    return tuple(values)


def array(body: Body, key: str, max_count: int, default: list[Any] = REQUIRED) -> list[Any]:
    """An array of at most `max_count` entries."""
    value = body.get(key, default)
    if type(value) is not list:
        raise _wrong(key, value, "array")
    if len(value) > max_count:
        raise FieldError(key, f"has {len(value)} entries, expected at most {max_count}")
    return value


def entries(
    body: Body, key: str, decode: Callable[[Body], T], max_count: int = limits.MAX_PARTITIONS_PER_REQUEST
) -> tuple[T, ...]:
    """An array of maps, each through `decode`; an error names the entry's index."""
    if type(read := body.get(key)) is tuple:  # before, see `wide`
        return read
    values = array(body, key, max_count)
    decoded: list[T] = []
    try:
        for entry in values:
            if type(entry) is not dict:
                raise unexpected("", entry, "map")
            decoded.append(decode(entry))
    except FieldError as exc:
        raise exc.within(f"{key}[{len(decoded)}]") from None
    return tuple(decoded)


def names(*keys: str) -> frozenset[str]:
    """The keys a map may have."""
    return frozenset(keys)


def _wrong(key: str, value: object, expected: str) -> FieldError:
    if value is REQUIRED:
        return FieldError(key, f"is missing, expected {expected}")
    return unexpected(key, value, expected)
