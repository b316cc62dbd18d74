"""Values that a broker chooses by itself, under names that are the same for both brokers: numbered as they appear."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import attrs

TOPIC: Final = "topic id"
PRODUCER: Final = "producer id"
MEMBER: Final = "member id"
SESSION: Final = "session id"
CLUSTER: Final = "cluster id"

MADE_UP_ID: Final = b"made up by test:"
"""A topic id that no broker has chosen."""
MADE_UP_PRODUCER: Final = 10**15
MADE_UP_MEMBER: Final = "made-up-member"
INSTANCES: Final = ("a", "b", "c")
"""Members that choose their ids themselves."""
NO_VALUES: Final[frozenset[Any]] = frozenset(
    {"", None, -1, 0, bytes(16), MADE_UP_ID, MADE_UP_PRODUCER, MADE_UP_MEMBER, *INSTANCES}
)
"""What stands for nothing, or comes from the script: compared as it is. Producer ids may be 0, see `Names.symbol`."""


@attrs.frozen(repr=False)
class Symbol:
    """One such value. In a request it stands for what that broker chose."""

    kind: str
    number: int

    def __repr__(self) -> str:
        return f"<{self.kind} {self.number}>"


@attrs.define(eq=False)
class Names:
    """What one broker has chosen so far."""

    _symbols: dict[tuple[str, Any], Symbol] = attrs.field(factory=dict)
    _values: dict[Symbol, Any] = attrs.field(factory=dict)
    _numbers: dict[str, Iterator[int]] = attrs.field(factory=dict)

    def symbol(self, kind: str, value: Any) -> Any:
        """The symbol of a value, a new one when it appears for the first time; values that nobody chose as they are."""
        if value in NO_VALUES and not (kind == PRODUCER and value == 0):
            return value
        if (kind, value) not in self._symbols:
            symbol = Symbol(kind, next(self._numbers.setdefault(kind, count())))
            self._symbols[kind, value] = symbol
            self._values[symbol] = value
        return self._symbols[kind, value]

    def known(self, kind: str, value: Any) -> Symbol | None:
        """The symbol of a value that has appeared."""
        return self._symbols.get((kind, value))

    def value(self, symbol: Symbol) -> Any:
        """What this broker has chosen. KeyError when it has not, though the other one has."""
        return self._values[symbol]
