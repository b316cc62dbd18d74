"""One key of the server, and how values of each kind are read."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

E = TypeVar("E", bound=enum.Enum)


@attrs.frozen(kw_only=True)
class BrokerKey:
    """One key of the server: its name in the file (and, upper-cased after TRIOLOG_, in the environment)."""

    name: str
    type: str
    read: Callable[[Any], Any]
    doc: str
    default: str
    unit: str = ""


def number(name: str, default: int, doc: str, *, unit: str = "", low: int, high: int) -> BrokerKey:
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

    return BrokerKey(name=name, type="int", read=read, doc=doc, default=str(default), unit=unit)


def switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return str(value).lower() == "true"


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a text")
    return value


def paths(value: Any) -> tuple[str, ...]:
    paths = value.split(",") if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise ValueError(f"{value!r} is not a list of directories")
    return tuple(paths)


def one_of(kind: type[E]) -> Callable[[Any], E]:
    def read(value: Any) -> E:
        try:
            return kind(str(value).lower())
        except ValueError:
            raise ValueError(f"{value!r} is none of {', '.join(each.value for each in kind)}") from None

    return read
