"""One configuration key of topics: its type, how it is read and written, what is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX

MAX_NAME_CHARS: Final = 255
MAX_VALUE_CHARS: Final = INT16_MAX


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


def number(name: str, default: int, doc: str, *, unit: str = "", low: int = 0, high: int = INT64_MAX) -> ConfigKey:
    return ConfigKey(
        name=name,
        type="int" if high <= INT32_MAX else "long",
        default=default,
        read=number_reader(low, high),
        write=str,
        doc=doc,
        unit=unit,
        valid=f"{low}.." + ("" if high == INT64_MAX else str(high)),
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
    return ConfigKey(
        name=name, type="boolean", default=default, read=read_switch, write=write_switch, doc=doc, valid="true, false"
    )


def write_switch(value: bool) -> str:
    return str(value).lower()


def choice(
    name: str, default: Any, choices: Mapping[str, Any], doc: str, *, former: Mapping[str, Any] | None = None
) -> ConfigKey:
    """`former`: names that are read and not written."""
    names = {value: text for text, value in choices.items()}
    read_as = {**(former or {}), **choices}

    def read(text: str) -> Any:
        if text not in read_as:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return read_as[text]

    return ConfigKey(
        name=name, type="string", default=default, read=read, write=names.__getitem__, doc=doc, valid=", ".join(choices)
    )
