"""What a server owes to its partitions' readers after a kill, by what may be taken: nothing, old records, superseded ones.

Every record carries its producer and number in a header, and is noted before it is sent. An acknowledgement and a read are
promises: that record stays at that offset, with those bytes, and the offset is nobody else's. `check` compares a whole
partition, read after a restart, with all promises so far. Models are changed by the threads of loads, under a lock, and
checked while no load runs.

| model | which promised records may be missing |
|---|---|
| `KeptModel` | none; offsets are dense |
| `RetainedModel` | those below the log start offset, which lies where retention and delete_records may have put it |
| `CompactedModel` | those whose key has a later record, which is there or is a tombstone |
| `TransactedModel` | none; in a compacted log those of aborted transactions |
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import NamedTuple

import attrs
from triolog.protocol.types import Bytes

from tests.support.stored_log import ID_HEADER, StoredLog, id_of


class Numbered(NamedTuple):
    """A record to be sent: the `number`-th of a producer."""

    producer: str
    number: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def id(self) -> bytes:
        """Unique among all records of a run."""
        return b"%s:%d" % (self.producer.encode(), self.number)

    def to_build(self) -> tuple[int, Bytes | None, Bytes | None, tuple[tuple[str, bytes], ...]]:
        """What `build_batch` takes."""
        return self.timestamp, self.key, self.value, ((ID_HEADER, self.id),)


@attrs.define(eq=False)
class LogModel:
    """One partition's records: sent, and promised at an offset."""

    name: str
    sent: dict[bytes, Numbered] = attrs.field(factory=dict)
    promised: dict[int, bytes] = attrs.field(factory=dict)
    """Ids by offset."""
    offsets: dict[bytes, int] = attrs.field(factory=dict)
    """The same by id."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def send(self, records: Sequence[Numbered]) -> None:
        """Call it before they are on their way."""
        with self._lock:
            self.sent.update((record.id, record) for record in records)

    def acknowledge(self, base_offset: int, records: Sequence[Numbered]) -> None:
        """The server answered that these records are from `base_offset` on."""
        with self._lock:
            for offset, record in enumerate(records, base_offset):
                self._promise(offset, record.id)

    def _promise(self, offset: int, record_id: bytes) -> None:
        other = self.promised.setdefault(offset, record_id)
        assert other == record_id, f"{self.name}: offset {offset} was given to {other!r} and to {record_id!r}"
        before = self.offsets.setdefault(record_id, offset)
        assert before == offset, f"{self.name}: {record_id!r} is at offset {before} and at offset {offset}"

    def check(self, log: StoredLog) -> None:
        """Every promise is kept; what was read is a promise itself from now on."""
        self._check_offsets(log)
        latest: dict[str, int] = {}
        for record in log.records:
            sent = self.sent.get(id_of(record))
            assert sent is not None, f"{self.name}: nobody sent {record}"
            found = (record.timestamp, record.key, record.value)
            assert found == (sent.timestamp, sent.key, sent.value), f"{self.name}: {record} was sent as {sent}"
            before = latest.get(sent.producer, -1)
            assert sent.number > before, f"{self.name}: {sent.id!r} at offset {record.offset} is behind number {before}"
            latest[sent.producer] = sent.number
            self._promise(record.offset, sent.id)
        there = {record.offset for record in log.records}
        self.check_missing(log, {offset: self.sent[gone] for offset, gone in self.promised.items() if offset not in there})

    def _check_offsets(self, log: StoredLog) -> None:
        offsets = [record.offset for record in log.records]
        assert all(a < b for a, b in itertools.pairwise(offsets)), f"{self.name}: offsets do not ascend: {offsets}"
        if offsets:
            assert log.log_start_offset <= offsets[0], self.name
            assert offsets[-1] < log.high_watermark, self.name
        end = max(self.promised, default=-1) + 1
        assert log.high_watermark >= end, f"{self.name} ends at {log.high_watermark}; offset {end - 1} was acknowledged"

    def check_missing(self, log: StoredLog, missing: dict[int, Numbered]) -> None:
        """`missing`: promised and not there, by offset."""
        raise NotImplementedError

    def check_dense(self, log: StoredLog) -> None:
        """Every offset from the log start on has a record, or a transaction marker."""
        found = sorted([*(record.offset for record in log.records), *log.control_offsets])
        expected = list(range(log.log_start_offset, log.high_watermark))
        gaps = sorted(set(expected) - set(found))[:10]
        assert found == expected, f"{self.name}: {log.log_start_offset}..{log.high_watermark} lacks offsets {gaps}"


class KeptModel(LogModel):
    """Nothing may be missing."""

    def check_missing(self, log: StoredLog, missing: dict[int, Numbered]) -> None:
        assert not missing, f"{self.name}: lost {sorted(missing)[:10]} of {len(missing)}"
        assert log.log_start_offset == 0, self.name
        self.check_dense(log)


@attrs.define(eq=False)
class RetainedModel(LogModel):
    """What lies below the log start offset is gone.

    The log start offset is at least `deleted_before`, and a batch boundary above that only for one of the reasons: by size
    when `retention_bytes` (-1: never) still stay, by time when nothing below it is `fresh_ms` or younger (None: never), by
    request up to `asked_before`.
    """

    retention_bytes: int = -1
    fresh_ms: int | None = None
    asked_before: int = 0
    """The largest offset that delete_records was asked for."""
    deleted_before: int = 0
    """The largest one that it has answered."""

    def ask_delete(self, before_offset: int) -> None:
        """Call it before the request is on its way."""
        self.asked_before = max(self.asked_before, before_offset)

    def answered_delete(self, log_start_offset: int) -> None:
        """What delete_records answered."""
        assert log_start_offset <= max(self.promised) + 1, f"{self.name}: records were deleted up to {log_start_offset}"
        self.deleted_before = max(self.deleted_before, log_start_offset)

    def check_missing(self, log: StoredLog, missing: dict[int, Numbered]) -> None:
        start = log.log_start_offset
        lost = sorted(offset for offset in missing if offset >= start)
        assert not lost, f"{self.name}: lost {lost[:10]} of {len(lost)}, the log starts at {start}"
        self.check_dense(log)
        assert start >= self.deleted_before, f"{self.name}: starts at {start}, {self.deleted_before} was answered"
        if start <= self.asked_before:
            return
        by_size = 0 <= self.retention_bytes <= log.batch_bytes
        below = [self.sent[gone].timestamp for offset, gone in self.promised.items() if offset < start]
        by_time = self.fresh_ms is not None and max(below, default=-1) < self.fresh_ms
        assert by_size or by_time, (
            f"{self.name}: starts at {start}, {log.batch_bytes} bytes are left of retention.bytes={self.retention_bytes}, "
            f"the youngest below is of {max(below, default=-1)}, records are fresh from {self.fresh_ms} on, "
            f"delete_records was asked for {self.asked_before}"
        )


class CompactedModel(LogModel):
    """Of each key the latest record stays. Keys belong to one producer each, so numbers are the order."""

    def check_missing(self, log: StoredLog, missing: dict[int, Numbered]) -> None:
        there: dict[bytes | None, int] = {}
        for record in log.records:
            there[record.key] = self.sent[id_of(record)].number
        tombstones: dict[bytes | None, int] = {}
        for sent in self.sent.values():
            if sent.value is None:
                tombstones[sent.key] = max(sent.number, tombstones.get(sent.key, -1))
        for offset, gone in missing.items():
            latest = there.get(gone.key)
            if latest is None:
                assert tombstones.get(gone.key, -1) >= gone.number, f"{self.name}: {gone.id!r} at {offset} has no successor"
            else:
                assert latest > gone.number, f"{self.name}: of key {gone.key!r} number {latest} is there, {gone.number} is not"


@attrs.define(eq=False)
class TransactedModel(LogModel):
    """Records of transactions, each with a key of its own. `aborted`: ids that no committed reader may see."""

    is_compacted: bool = False
    aborted: set[bytes] = attrs.field(factory=set)

    def check_missing(self, log: StoredLog, missing: dict[int, Numbered]) -> None:
        lost = {offset: gone for offset, gone in missing.items() if not (self.is_compacted and gone.id in self.aborted)}
        assert not lost, f"{self.name}: lost {sorted(lost)[:10]} of {len(lost)}"
        assert log.log_start_offset == 0, self.name
        if not self.is_compacted:
            self.check_dense(log)
