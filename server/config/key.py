"""Declares a configuration key: of topics, of groups, of subscriptions to client metrics, or of the server.

Each key is declared once, with its type, default, range, explanation, Kafka's name for it and where it may change. A class of
settings declares keys at its fields (`int_key` and its like; `keys_of` collects them). A table declares them by name (`named`).
Parsing, checks, descriptions, changes and the pages of documentation all read this declaration.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX

MAX_NAME_CHARS: Final = 255
MAX_VALUE_CHARS: Final = INT16_MAX
SECURITY: Final = "security"
UNITS: Final = {"_ms": "ms", "_bytes": "bytes", "_per_second": "bytes/s"}
"""By the end of a key's name."""
_DECLARED: Final = "key"

E = TypeVar("E", bound=enum.Enum)


def as_text(value: Any, *, nothing: str = "-", empty: str = "-") -> str:
    """A value as people and files have it."""
    if value is None or value is attrs.NOTHING:
        return nothing
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return ",".join(map(str, value)) or empty
    return str(value)


@attrs.frozen(kw_only=True)
class ConfigKey:
    """A configuration key: the reader and the writer of its values, and all its documentation."""

    name: str = ""
    """Of a key of the server: in its file, and, upper-cased after TRIOLOG_, in the environment."""
    type: str
    """Kafka's name of it where Kafka has the key."""
    default: Any = None
    read: Callable[[Any], Any]
    """From text or a TOML value. Raises ValueError."""
    write: Callable[[Any], str] = as_text
    doc: str
    unit: str = ""
    valid: str = ""
    shown: str | None = None
    """The default as documentation has it, where that is not `default`."""
    section: str = ""
    broker_name: str = ""
    """What Kafka calls the broker's key that is this one, or that this one follows; empty where there is none."""
    live: bool = False
    """Of a key of the server: it may change while it runs (SIGHUP)."""
    internal: bool = False
    """Of a key of topics: it may be changed of the server's own topics, too."""
    strict: tuple[int, int] | None = None
    """The range on a server that is not `lenient`, both ends inclusive, where it is a smaller one."""

    @property
    def attribute(self) -> str:
        """The field of a class of settings that holds it."""
        return self.name.replace(".", "_")

    @property
    def default_text(self) -> str:
        return self.write(self.default) if self.shown is None else self.shown

    def parse(self, what: str, text: str) -> Any:
        """Raises InvalidConfigError naming the key, the value and what would be valid. `what`: has the configuration."""
        try:
            return self.read(text)
        except ValueError as exc:
            raise InvalidConfigError(f"{what} configuration {self.name}={text!r}: {exc}") from exc


def check_sizes(overrides: Mapping[str, Any], before: Mapping[str, str] | None = None) -> None:
    """Raises InvalidConfigError for names and values that are too long to be kept (Kafka: ConfigurationControlManager).
    `before`: what is kept already, and stays as it is."""
    for name, text in overrides.items():
        if before is not None and before.get(name) == text:
            continue
        if len(name) > MAX_NAME_CHARS:
            raise InvalidConfigError(f"a configuration key has at most {MAX_NAME_CHARS} characters, this one has {len(name)}")
        if isinstance(text, str) and len(text) > MAX_VALUE_CHARS:
            raise InvalidConfigError(
                f"{name}: the configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_CHARS} bytes."
            )


def number_reader(low: int, high: int) -> Callable[[Any], int]:
    """Reads a whole number, both ends of the range inclusive, from text or from TOML."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{value!r} is not a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"{number} is not in {low}..{high}")
        return number

    return read


def read_switch(value: Any) -> bool:
    """From text or from TOML. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return str(value).lower() == "true"


def text(value: Any) -> str:
    """Raises ValueError, which does not repeat what is in a table or a list: it may be secret."""
    if not isinstance(value, str) or not value:
        shown = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
        raise ValueError(f"{shown} is not text")
    return value


def paths(value: Any) -> tuple[str, ...]:
    """Raises ValueError."""
    paths = value.split(",") if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise ValueError(f"{value!r} is not a list of directories")
    return tuple(paths)


def one_of(kind: type[E]) -> Callable[[Any], E]:
    """Reads an enum's values, whatever their case."""

    def read(value: Any) -> E:
        try:
            return kind(str(value).lower())
        except ValueError:
            raise ValueError(f"{value!r} is not one of {', '.join(each.value for each in kind)}") from None

    return read


def number(default: Any, doc: str, *, low: int = 0, high: int = INT64_MAX, kind: str = "", **more: Any) -> ConfigKey:
    """A whole number, both ends of the range inclusive."""
    return ConfigKey(
        type=kind or ("int" if high <= INT32_MAX else "long"),
        default=default,
        read=number_reader(low, high),
        doc=doc,
        valid=f"{low}.." + ("" if high == INT64_MAX else str(high)),
        **more,
    )


def ratio(default: float, doc: str, **more: Any) -> ConfigKey:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{value} is not in 0..1")
        return value

    return ConfigKey(type="double", default=default, read=read, doc=doc, valid="0..1", **more)


def switch(default: bool, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(type="boolean", default=default, read=read_switch, doc=doc, valid="true, false", **more)


def choice(
    default: Any,
    choices: Mapping[str, Any] | type[enum.Enum],
    doc: str,
    *,
    former: Mapping[str, Any] | None = None,
    **more: Any,
) -> ConfigKey:
    """Return a key whose value is one of these names. `former`: names that are read and not written."""
    if not isinstance(choices, Mapping):
        choices = {each.value: each for each in choices}
    names = {value: name for name, value in choices.items()}
    read_as = {**(former or {}), **choices}

    def read(text: str) -> Any:
        if text not in read_as:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return read_as[text]

    return ConfigKey(
        type="string", default=default, read=read, write=names.__getitem__, doc=doc, valid=", ".join(choices), **more
    )


def list_of(read: Callable[[str], tuple[str, ...]], default: tuple[str, ...], doc: str, valid: str, **more: Any) -> ConfigKey:
    """Texts with commas between them."""
    return ConfigKey(type="list", default=default, read=read, write=",".join, doc=doc, valid=valid, **more)


def named(keys: Mapping[str, ConfigKey]) -> dict[str, ConfigKey]:
    """A table of keys, each with the name under which it stands there."""
    return {name: attrs.evolve(key, name=name) for name, key in keys.items()}


def field(key: ConfigKey) -> Any:
    """A field that is a key, with the key's default."""
    return attrs.field(default=key.default, metadata={_DECLARED: key})


def described(kind: str, read: Callable[[Any], Any], doc: str, **more: Any) -> dict[str, Any]:
    """Metadata of a field that is a key and has a default of its own."""
    return {_DECLARED: ConfigKey(type=kind, read=read, doc=doc, **more)}


def int_key(default: Any, doc: str, **more: Any) -> Any:
    return field(number(default, doc, **more))


def bool_key(default: bool, doc: str, **more: Any) -> Any:
    return field(switch(default, doc, **more))


def enum_key(default: enum.Enum, doc: str, **more: Any) -> Any:
    """A field with one of an enum's values."""
    return field(ConfigKey(type="string", default=default, read=one_of(type(default)), doc=doc, **more))


def text_key(doc: str, *, kind: str = "string", **more: Any) -> Any:
    """A field with a text that is not empty, or None."""
    return field(ConfigKey(type=kind, default=None, read=text, doc=doc, **more))


def word_key(default: str, doc: str, **more: Any) -> Any:
    """A field with a text that is not empty."""
    return field(ConfigKey(type="string", default=default, read=text, doc=doc, **more))


def parsed_key(parse: Callable[[str], Any], kind: str, doc: str, **more: Any) -> Any:
    """A field with what `parse` makes of a text, or None."""
    return field(ConfigKey(type=kind, default=None, read=lambda value: parse(text(value)), doc=doc, **more))


def keys_of(settings: type[attrs.AttrsInstance], separator: str = "_") -> dict[str, ConfigKey]:
    """The keys that a class of settings declares, by name, in the order of its fields. `separator`: between words of a name."""
    return named({key.name: key for field in attrs.fields(settings) if (key := _declared(field, separator)) is not None})


def _declared(field: attrs.Attribute[Any], separator: str) -> ConfigKey | None:
    key: ConfigKey | None = field.metadata.get(_DECLARED)
    if key is None:
        return None
    return attrs.evolve(
        key,
        name=key.name or field.name.replace("_", separator),
        default=field.default,
        unit=key.unit or next((unit for end, unit in UNITS.items() if field.name.endswith(end)), ""),
    )
