"""The errors that this package raises for requests it cannot fulfil; each message is one line."""

from __future__ import annotations

from ...protocol.errors import TriologError


class ArrowError(TriologError):
    """A question that cannot be answered: a topic, column or range that is not there, values or rows that do not fit."""


class ValuesError(ArrowError):
    """Values that do not parse, with `errors="raise"`. They are counted in the Arrow batch where the first one was found."""

    def __init__(self, topic: str, partition: int, offset: int, count: int, values: int, how: str, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition} offset {offset}: {reason}; {count} of {values} values from there on are no {how}. "
            'errors="null" gives null for such values'
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.count = count
