"""Query parameters of a request, checked when they are read. Every error names the parameter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from ...protocol.limits import INT32_MAX, INT64_MAX
from .errors import BadParameterError

MAX_PARAMETERS: Final = 50
MAX_TEXT_CHARS: Final = 1000
EXACT: Final = 2**53
"""From here on JavaScript's numbers leave integers out."""


def exact(number: int) -> int | str:
    """An offset or a time for JSON: as a string where a number would not be exact."""
    return number if -EXACT < number < EXACT else str(number)


class Parameters:
    """The parameters of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    @classmethod
    def parse(cls, query: str) -> Parameters:
        """Raises BadParameterError."""
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
        except ValueError as exc:
            raise BadParameterError("query", f"it cannot be read: {exc}") from None
        return cls(dict(pairs))

    def check_known(self, names: Collection[str]) -> None:
        """Raises BadParameterError for the first other one."""
        for name in self._values:
            if name not in names:
                known = f"there are {', '.join(sorted(names))}" if names else "there are none here"
                raise BadParameterError(name[:100], f"no such parameter; {known}")

    def text(self, name: str, default: str = "", *, max_chars: int = MAX_TEXT_CHARS) -> str:
        value = self._values.get(name, default)
        if len(value) > max_chars:
            raise BadParameterError(name, f"of more than {max_chars} characters")
        return value

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        value = self._values.get(name) or default
        if value not in choices:
            raise BadParameterError(name, f"{value[:100]!r} is none of {', '.join(choices)}")
        return value

    def integer(self, name: str, default: Any = None, *, least: int = 0, most: int = INT32_MAX) -> Any:
        """An integer within bounds; the default where it is missing or empty."""
        value = self._values.get(name, "")
        if not value:
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not least <= int(value) <= most:
            raise BadParameterError(name, f"{value[:100]!r} is no integer from {least} to {most}")
        return int(value)

    def offset(self, name: str) -> int | None:
        """An offset; None where it is missing."""
        found: int | None = self.integer(name, most=INT64_MAX)
        return found

    def flag(self, name: str) -> bool:
        return self.choice(name, ("0", "1"), "0") == "1"
