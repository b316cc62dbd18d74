"""What a server has promised, and whether a log read back keeps it. The model of the tests with SIGKILL.

Producers note every record before they send it and every acknowledgement as it comes; `check` compares a log that was read
from its start with that, and with what was read before: what was readable once stays where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import attrs
from triolog.protocol.types import Record


class Sent(NamedTuple):
    """A record as it was sent. `key` is unique: producer and number."""

    timestamp: int
    key: bytes
    value: bytes


@attrs.define(eq=False)
class PartitionModel:
    """One partition's promises. Changed by producers' threads under the lock."""

    sent: dict[bytes, Sent] = attrs.field(factory=dict)
    acknowledged: dict[int, Sent] = attrs.field(factory=dict)
    readable: list[Record] = attrs.field(factory=list)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def send(self, records: Sequence[Sent]) -> None:
        with self._lock:
            self.sent.update((record.key, record) for record in records)

    def acknowledge(self, base_offset: int, records: Sequence[Sent]) -> None:
        """The server answered that these records are from `base_offset` on."""
        with self._lock:
            for offset, record in enumerate(records, base_offset):
                other = self.acknowledged.setdefault(offset, record)
                assert other is record, f"offset {offset} was given to {other.key!r} and to {record.key!r}"

    def check(self, records: Sequence[Record], high_watermark: int) -> None:
        """The log as it was read after a restart keeps every promise; from now on it is one itself."""
        assert [record.offset for record in records] == list(range(len(records))), "the log has gaps or repeats offsets"
        assert high_watermark == len(records), f"high watermark {high_watermark}, {len(records)} records are readable"
        assert list(records[: len(self.readable)]) == self.readable, "what was readable before has changed"
        lost = [offset for offset in self.acknowledged if offset >= len(records)]
        assert not lost, f"acknowledged and lost: offsets {sorted(lost)[:10]} of {len(lost)}, the log ends at {len(records)}"
        for offset, record in self.acknowledged.items():
            assert _content(records[offset]) == record, f"offset {offset} was acknowledged for {record.key!r}"
        keys = [record.key for record in records]
        assert len(set(keys)) == len(keys), "a record is there twice, and none was sent twice"
        for found in records:
            assert found.key is not None
            assert _content(found) == self.sent[found.key], f"offset {found.offset} holds what nobody sent"
        self._check_order(records)
        self.readable = list(records)

    def _check_order(self, records: Sequence[Record]) -> None:
        latest: dict[bytes, int] = {}
        for record in records:
            assert record.key is not None
            producer, _, number = record.key.partition(b":")
            assert int(number) > latest.get(producer, -1), f"producer {producer!r}: {number!r} after {latest[producer]}"
            latest[producer] = int(number)


def _content(record: Record) -> Sent:
    assert record.key is not None
    assert record.value is not None
    return Sent(record.timestamp, record.key, record.value)
