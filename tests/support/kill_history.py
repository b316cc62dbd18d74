"""What clients of a server that is killed did and were told, judged by the checker of the simulated worlds.

Every record carries its producer and number, and is noted before it is sent. What was read is noted too: it stays where it is.
Histories are changed by the threads of producers, under a lock, and checked while none runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import attrs
from triolog.protocol.types import Bytes, Record, TopicPartition

from tests.simulation.checker import check
from tests.simulation.history import KEY_MARK, TOMBSTONE_MARK, Acknowledged, Event, Found, Polled, Send, Sent, Stored
from tests.support.stored_log import ID_HEADER, StoredLog, id_of


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
