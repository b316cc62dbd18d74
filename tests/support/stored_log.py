"""A partition as readers get it from a server, whole. Every record says in a header which one of those that were sent it is."""

from __future__ import annotations

import functools
from typing import Final

import attrs
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.native import messages
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Isolation, Record

from tests.support.wire_client import WireClient

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
