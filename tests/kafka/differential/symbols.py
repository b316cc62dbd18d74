"""Values that a broker chooses by itself, and times of its clock, under names that are the same for both brokers; requests with
such symbols in them, and record batches whose bytes depend on them.

Values are numbered as they appear, times named by the request in whose window they lie. Within one request a broker may look at
its clock more than once, as Kafka does for each partition: so times of one request are equal, if the broker has told them as
times of an append. One that it has not told has another name, so that a batch whose time is not the one that was answered is
noticed by the millisecond; and so is every time that belongs to another request, or to none.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import attrs
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, CompressionType

from tests.support.record_batches import RecordTuple, patched

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


APPENDED: Final = "append time of request"
UNTOLD: Final = "time within request"
BETWEEN: Final = "a time between requests"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define(eq=False)
class Times:
    """The windows of one broker's requests: (first, last) milliseconds, no two of which overlap. Requests are numbered alike on
    both sides, since both are asked the same."""

    clock: Callable[[], int] = now_ms
    _starts: list[int] = attrs.field(factory=list)
    _ends: list[int] = attrs.field(factory=list)
    _told: dict[int, set[int]] = attrs.field(factory=dict)
    """Times of appends that were answered, by the request in whose window they lie."""

    def begin(self) -> None:
        """A request comes next. Its window begins with a millisecond that is nobody else's."""
        while (now := self.clock()) <= (self._ends[-1] if self._ends else 0):
            """Not yet."""
        self._starts.append(now)
        self._ends.append(now)

    def extend(self) -> None:
        """The request is answered, or what the broker does behind its answer is done."""
        self._ends[-1] = self.clock()

    def tell(self, value: int) -> Any:
        """The name of a time that was answered as that of an append; one that the script made as it is."""
        number = self._request(value)
        if number is not None:
            self._told.setdefault(number, set()).add(value)
        return self.name(value)

    def name(self, value: int, *, is_of_append: bool = True) -> Any:
        """The name of any time; one that the script made as it is. That one which is no append's is the same as an append's of
        that request is chance."""
        if not self._starts or not self._starts[0] <= value <= self._ends[-1]:
            return value
        number = self._request(value)
        if number is None:
            return BETWEEN
        return Symbol(APPENDED if is_of_append and value in self._told.get(number, ()) else UNTOLD, number)

    def value(self, symbol: Symbol, milliseconds: int) -> int:
        """A time to look for: the first of a request's appends, or some milliseconds behind its last."""
        told = self._told[symbol.number]
        return max(told) + milliseconds if milliseconds else min(told)

    def _request(self, value: int) -> int | None:
        number = bisect_right(self._starts, value) - 1
        return number if number >= 0 and value <= self._ends[number] else None


FLAWS: Final = (
    *("crc", "cut", "magic 1", "magic 3", "no records", "count", "delta", "control", "two", "codec 5"),
    *("garbage", "length", "short"),
)
"""What can be wrong with a batch; `Batch.bytes` has the particulars."""


@attrs.frozen(kw_only=True)
class After:
    """The time of a request's appends, or some milliseconds behind it."""

    symbol: Symbol
    milliseconds: int


@attrs.frozen(kw_only=True)
class Batch:
    """A record batch to be."""

    records: tuple[RecordTuple, ...]
    codec: CompressionType = CompressionType.NONE
    producer: Symbol | int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    sequence: int = NO_SEQUENCE
    transactional: bool = False
    flaw: str = ""
    leader_epoch: int = -1

    def __repr__(self) -> str:
        times = [timestamp for timestamp, *_ in self.records]
        return (
            f"<{len(self.records)} records {times[:4]} {self.codec.name} producer {self.producer}/{self.epoch}/{self.sequence}"
            f"{' transactional' if self.transactional else ''} {self.flaw}>"
        )

    def bytes(self, names: Names) -> bytes:
        """As it goes to the broker that chose these names."""
        producer = names.value(self.producer) if isinstance(self.producer, Symbol) else self.producer
        whole = build_batch(
            self.records,
            compression_type=self.codec,
            producer_id=producer,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=self.transactional,
            partition_leader_epoch=self.leader_epoch,
        )
        return _flawed(whole, self.flaw, len(self.records))


def _flawed(batch: bytes, flaw: str, count: int) -> bytes:
    match flaw:
        case "crc":
            return batch[:-1] + bytes([batch[-1] ^ 1])
        case "cut":
            return batch[:-3]
        case "magic 1" | "magic 3":
            return batch[:16] + bytes([int(flaw[-1])]) + batch[17:]
        case "no records":
            return b""
        case "count":
            return patched(batch, records_count=count + 1)
        case "delta":
            return patched(batch, last_offset_delta=count)
        case "control":
            return patched(batch, attributes=batch[22] | 0x20)
        case "two":
            return batch + batch
        case "codec 5":
            return patched(batch, attributes=batch[22] & ~7 | 5)
        case "garbage":
            return patched(batch[:61] + b"\x55" * (len(batch) - 61))
        case "length":
            return batch[:8] + struct.pack(">i", 20) + batch[12:]
        case "short":
            return batch[:8] + struct.pack(">i", 13) + batch[12:]
    return batch


def resolved(value: Any, names: Names, times: Times) -> Any:
    """A request for the broker that chose these names and times."""
    if isinstance(value, Symbol):
        return names.value(value)
    if isinstance(value, After):
        return times.value(value.symbol, value.milliseconds)
    if isinstance(value, Batch):
        return value.bytes(names)
    if isinstance(value, list):
        return [resolved(each, names, times) for each in value]
    if attrs.has(type(value)):
        return type(value)(
            **{field.name: resolved(getattr(value, field.name), names, times) for field in attrs.fields(type(value))}
        )
    return value
