"""What clients of a server that is killed did and were told, judged by the checker of the simulated worlds.

Every record carries its producer and number, and is noted before it is sent. What was read is noted too: it stays where it is.
Histories are changed by the threads of producers, under a lock, and checked while none runs.

A partition as readers get it from a server, whole. Every record says in a header which one of those that were sent it is.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import attrs
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Bytes, Isolation, Record, TopicPartition

from tests.simulation.checker import check
from tests.simulation.history import KEY_MARK, TOMBSTONE_MARK, Acknowledged, Event, Found, Polled, Send, Sent, Stored
from tests.support.wire_client import WireClient


class Numbered(NamedTuple):
    """A record to be sent: the `number`-th of a producer. A history knows its key and whether it deletes that by its id."""

    producer: str
    number: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def id(self) -> str:
        """Unique among all records of a run."""
        key = "" if self.key is None else f"{KEY_MARK}{self.key.decode()}"
        return f"{self.producer}:{self.number}{key}{TOMBSTONE_MARK if self.value is None else ''}"

    def to_build(self) -> tuple[int, Bytes | None, Bytes | None, tuple[tuple[str, bytes], ...]]:
        """What `build_batch` takes."""
        return self.timestamp, self.key, self.value, ((ID_HEADER, self.id.encode()),)


@attrs.define(eq=False)
class KillHistory:
    """Owner: the run."""

    events: list[Event] = attrs.field(factory=list)
    _sent: dict[str, Numbered] = attrs.field(factory=dict)
    _latest: dict[tuple[TopicPartition, bool], Stored] = attrs.field(factory=dict)
    """The last reading of each partition for each isolation level."""
    _began: float = attrs.field(factory=time.monotonic)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def add(self, kind: type[Event], who: str, **said: Any) -> None:
        """Note an event of now."""
        with self._lock:
            self.events.append(kind(at_ms=self._now_ms(), who=who, **said))

    def send(self, where: TopicPartition, records: Sequence[Numbered], *, transaction: str | None = None) -> None:
        """Call it before they are on their way."""
        with self._lock:
            self._sent.update((record.id, record) for record in records)
        producer = records[0].producer
        sent = tuple(Sent(record.id, record.timestamp) for record in records)
        self.add(Send, producer, partition=where, producer=producer, records=sent, transaction=transaction)

    def acknowledge(self, where: TopicPartition, base_offset: int, records: Sequence[Numbered]) -> None:
        """The server answered that these records are from `base_offset` on."""
        ids = tuple(record.id for record in records)
        self.add(Acknowledged, records[0].producer, partition=where, ids=ids, base_offset=base_offset)

    def read(self, where: TopicPartition, log: StoredLog, *, is_committed: bool = False) -> None:
        """A reader got all of a partition."""
        end = log.last_stable_offset if is_committed else log.high_watermark
        said = {"partition": where, "is_committed": is_committed, "records": tuple(self._found(log.records))}
        self.add(Polled, f"reading {len(self.events)}", position=log.log_start_offset, next_position=end, **said)
        stored = {"start_offset": log.log_start_offset, "end_offset": end, "size_bytes": log.batch_bytes}
        self._latest[where, is_committed] = Stored(at_ms=self._now_ms(), who="reader", **stored, **said)

    def forget(self, where: TopicPartition) -> None:
        """The topic was deleted: nothing of it is there any more."""
        for is_committed in (False, True):
            self._latest.pop((where, is_committed), None)

    def check(self) -> None:
        """Every promise is kept, as far as the last readings say."""
        anomalies = check([*self.events, *self._latest.values()])
        assert not anomalies, "\n".join(f"{kind}: {detail}" for kind, detail in anomalies[:20])

    def _now_ms(self) -> float:
        return (time.monotonic() - self._began) * 1000

    def _found(self, records: Iterable[Record]) -> Iterable[Found]:
        """A record with another key or value than it was sent with is one that nobody has sent."""
        for record in records:
            name = id_of(record)
            sent = self._sent.get(name)
            is_whole = sent is not None and (record.key, record.value) == (sent.key, sent.value)
            yield Found(record.offset, name if is_whole else f"{name}, but {record}", record.timestamp)


ID_HEADER: Final = "id"
MOST_READINGS: Final = 50


def id_of(record: Record) -> str:
    """Which record that was sent this is."""
    ((name, found),) = record.headers
    assert name == ID_HEADER, record
    assert found is not None, record
    return found.decode()


@attrs.frozen(kw_only=True)
class StoredLog:
    """A partition as an uncommitted reader sees it, from the log start offset to the high watermark."""

    records: tuple[Record, ...]
    control_offsets: tuple[int, ...]
    batch_bytes: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int

    def check_dense(self) -> None:
        """Every offset from the log start on has a record, or a transaction marker."""
        found = sorted([*(record.offset for record in self.records), *self.control_offsets])
        expected = range(self.log_start_offset, self.high_watermark)
        assert found == list(expected), f"{expected} lacks offsets {sorted(set(expected) - set(found))[:10]}"


def read_stored_log(client: WireClient, topic: str, partition: int) -> StoredLog:
    """Read all of a partition, again until two readings agree: retention and compaction may come between two fetches."""
    before = None
    for _ in range(MOST_READINGS):
        try:
            found = _read(client, topic, partition)
        except RequestError as exc:
            if exc.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            continue
        if found == before:
            return found
        before = found
    raise AssertionError(f"{topic}-{partition} has changed {MOST_READINGS} times while nobody wrote, at last to {before}")


def _read(client: WireClient, topic: str, partition: int) -> StoredLog:
    """Batches without records, which compaction leaves behind, are passed over."""
    entry = client.fetch(topic, partition, _log_start_offset(client, topic, partition))
    start = offset = entry.log_start_offset
    records: list[Record] = []
    control: list[int] = []
    size = 0
    while offset < entry.high_watermark:
        entry = client.fetch(topic, partition, offset)
        begun = offset
        for header, batch in iter_batches(entry.records):  # type: ignore[arg-type]
            size += len(batch)
            offset = header.last_offset + 1
            found = [record for record in _records_of(bytes(batch)) if record.offset >= start]
            if header.is_control:
                control += [record.offset for record in found]
            else:
                records += found
        if offset == begun:
            break
    return StoredLog(
        records=tuple(records),
        control_offsets=tuple(control),
        batch_bytes=size,
        log_start_offset=start,
        high_watermark=entry.high_watermark,
        last_stable_offset=entry.last_stable_offset,
    )


@functools.lru_cache(maxsize=20_000)
def _records_of(batch: bytes) -> tuple[Record, ...]:
    """What these bytes say, whenever they are read: a run reads a batch some dozens of times, and takes it apart once."""
    return tuple(iter_records(batch))


def _log_start_offset(client: WireClient, topic: str, partition: int) -> int:
    return client.partition_metadata(topic)[partition].log_start_offset


def read_committed(client: WireClient, topic: str, partition: int) -> StoredLog:
    """What a committed reader gets of a partition that is not written to."""
    whole = read_stored_log(client, topic, partition)
    found: list[Record] = []
    offset = whole.log_start_offset
    while True:
        entry = client.fetch(topic, partition, offset, isolation=Isolation.READ_COMMITTED, format=messages.Format.RECORDS)
        found += entry.records  # type: ignore[arg-type]
        if entry.next_offset in (offset, entry.last_stable_offset):
            assert entry.next_offset == entry.last_stable_offset, f"reading stops at {offset}: {entry}"
            return attrs.evolve(whole, records=tuple(found))
        offset = entry.next_offset
