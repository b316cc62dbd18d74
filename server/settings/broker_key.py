"""How a field of `BrokerConfig` is declared as a key of the server, and how values of each kind are read."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from ..config.key import number_reader, read_switch

E = TypeVar("E", bound=enum.Enum)

SECURITY: Final = "security"
UNITS: Final = {"_ms": "ms", "_bytes": "bytes", "_per_second": "bytes/s"}
"""By the end of a key's name."""
_DECLARED: Final = "key"


@attrs.frozen(kw_only=True)
class BrokerKey:
    """One key of the server: its name in the file (and, upper-cased after TRIOLOG_, in the environment)."""

    name: str
    type: str
    read: Callable[[Any], Any]
    """From a TOML value, or the text of a variable or an argument. Raises ValueError."""
    doc: str
    default: str
    """As documentation shows it; `-` for none."""
    unit: str = ""
    section: str = ""


@attrs.frozen(kw_only=True)
class _Declared:
    type: str
    read: Callable[[Any], Any]
    doc: str
    shown: str | None
    name: str | None
    section: str


def described(
    kind: str, read: Callable[[Any], Any], doc: str, *, shown: str | None = None, name: str | None = None, section: str = ""
) -> dict[str, Any]:
    """Metadata of a field that is a key. `shown`: the default for people, where it is not the field's; `name`: the key's, where
    it is not the field's."""
    return {_DECLARED: _Declared(type=kind, read=read, doc=doc, shown=shown, name=name, section=section)}


def keys_of(config: type[attrs.AttrsInstance]) -> tuple[BrokerKey, ...]:
    """The keys that a class of settings declares, in the order of its fields."""
    return tuple(_key(field) for field in attrs.fields(config) if _DECLARED in field.metadata)


def _key(field: attrs.Attribute[Any]) -> BrokerKey:
    told = field.metadata[_DECLARED]
    return BrokerKey(
        name=told.name or field.name,
        type=told.type,
        read=told.read,
        doc=told.doc,
        default=_shown(field.default) if told.shown is None else told.shown,
        unit=next((unit for end, unit in UNITS.items() if field.name.endswith(end)), ""),
        section=told.section,
    )


def _shown(default: Any) -> str:
    if default is None or default == () or default is attrs.NOTHING:
        return "-"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, enum.Enum):
        return str(default.value)
    return ",".join(default) if isinstance(default, tuple) else str(default)


# ---- fields ----------------------------------------------------------------------------------------------------------------


def int_key(default: Any, doc: str, *, low: int, high: int, shown: str | None = None, section: str = "") -> Any:
    """A field with a whole number, both ends of the range inclusive."""
    return attrs.field(default=default, metadata=described("int", number_reader(low, high), doc, shown=shown, section=section))


def bool_key(default: bool, doc: str, *, section: str = "") -> Any:
    """A field that is true or false."""
    return attrs.field(default=default, metadata=described("bool", read_switch, doc, section=section))


def enum_key(default: E, doc: str, *, section: str = "") -> Any:
    """A field with one of an enum's values."""
    return attrs.field(default=default, metadata=described("string", one_of(type(default)), doc, section=section))


def text_key(doc: str, *, kind: str = "string", shown: str | None = None, section: str = "") -> Any:
    """A field with a text that is not empty, or None."""
    return attrs.field(default=None, metadata=described(kind, text, doc, shown=shown, section=section))


def parsed_key(parse: Callable[[str], Any], kind: str, doc: str, *, shown: str | None = None) -> Any:
    """A field with what `parse` makes of a text, or None."""
    return attrs.field(default=None, metadata=described(kind, lambda value: parse(text(value)), doc, shown=shown))


# ---- reading ---------------------------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Raises ValueError, which does not repeat what is in a table or a list: it may be secret."""
    if not isinstance(value, str) or not value:
        shown = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
        raise ValueError(f"{shown} is not a text")
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
            raise ValueError(f"{value!r} is none of {', '.join(each.value for each in kind)}") from None

    return read
