"""Requests with symbols in them, and record batches whose bytes depend on what a broker chose."""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, CompressionType

from tests.support.record_batches import RecordTuple, patched

from .names import Names, Symbol
from .times import Times

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
