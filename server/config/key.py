"""One configuration key of topics: its type, how it is read and written, what is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ...protocol.limits import INT32_MAX, INT64_MAX


@attrs.frozen(kw_only=True)
class ConfigKey:
    """One topic key: how its text is read and written, and what people are told about it."""

    name: str
    type: str
    default: Any
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    doc: str
    unit: str = ""
    valid: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def number(name: str, default: int, doc: str, *, unit: str = "", low: int = 0, high: int = INT64_MAX) -> ConfigKey:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"{value} is not in {low}..{high}")
        return value

    valid = f"{low}.." + ("" if high == INT64_MAX else str(high))
    kind = "int" if high <= INT32_MAX else "long"
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        read=read,
        write=str,
        doc=doc,
        unit=unit,
        valid=valid,
    )


def ratio(name: str, default: float, doc: str) -> ConfigKey:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{value} is not in 0..1")
        return value

    return ConfigKey(name=name, type="double", default=default, read=read, write=str, doc=doc, valid="0..1")


def switch(name: str, default: bool, doc: str) -> ConfigKey:
    def read(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() == "true"

    return ConfigKey(
        name=name,
        type="boolean",
        default=default,
        read=read,
        write=lambda value: str(value).lower(),
        doc=doc,
        valid="true, false",
    )


def choice(name: str, default: Any, choices: Mapping[str, Any], doc: str) -> ConfigKey:
    names = {value: text for text, value in choices.items()}

    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return choices[text]

    return ConfigKey(
        name=name, type="string", default=default, read=read, write=names.__getitem__, doc=doc, valid=", ".join(choices)
    )
