"""One fetch by Kafka's protocol, and what its answer means to a reader: as Kafka's consumers read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from triolog.protocol.errors import TriologError
from triolog.protocol.kafka.messages.records import FetchAbortedTransaction
from triolog.protocol.records.batch import RECORD_BATCH_OVERHEAD, check_batch, iter_batches, parse_header
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Record, TopicPartition

from tests.support.kafka_server import fetch_partition, fetch_request

from ..history import Found, is_tombstone, key_of

FETCH_VERSION: Final = 12
ID_HEADER: Final = "id"


class Caller(Protocol):
    """A connection, or what stands for one."""

    async def call(self, body: object, version: int) -> Any | None:
        """The answer, None when nobody knows."""

    def sees(self, kind: str, detail: str) -> None:
        """An anomaly that is seen on the spot."""


class Fetched(NamedTuple):
    """`error_code`: of the partition."""

    error_code: int
    records: tuple[Found, ...] = ()
    markers: tuple[tuple[int, int], ...] = ()
    """Offset and timestamp of each."""
    next_position: int = -1
    size_bytes: int = 0


async def fetch(
    kafka: Caller, where: TopicPartition, position: int, *, is_committed: bool, max_bytes: int, max_wait_ms: int = 100
) -> Fetched | None:
    """None: no answer."""
    part = fetch_partition(position, partition=where.partition, max_bytes=max_bytes)
    how = {"max_wait_ms": max_wait_ms, "max_bytes": max_bytes, "isolation_level": int(is_committed)}
    request = fetch_request(part, topic=where.topic, **how)
    answer = await kafka.call(request, FETCH_VERSION)
    if answer is None or answer.error_code or not answer.responses:
        return None
    [found] = answer.responses[0].partitions
    if found.error_code:
        return Fetched(found.error_code)
    data = bytes(found.records or b"")
    try:
        for header, batch in iter_batches(data):
            check_batch(batch, header)
    except TriologError as exc:
        kafka.sees("served damage", f"{where} at {position}: {exc}")
        return None
    records, markers, next_position = _read(data, position, found.aborted_transactions or ())
    return Fetched(0, records, markers, next_position, len(data))


def _read(
    data: bytes, position: int, aborted: Iterable[FetchAbortedTransaction]
) -> tuple[tuple[Found, ...], tuple[tuple[int, int], ...], int]:
    """The records from `position` on but those of aborted transactions: from a first offset to the marker; markers; the end.
    A record's id is the first line of its value."""
    begins = sorted(aborted, key=lambda each: each.first_offset)
    active: set[int] = set()
    found: list[Found] = []
    markers: list[tuple[int, int]] = []
    next_position = position
    for header, batch in iter_batches(data):
        next_position = max(next_position, header.next_offset)
        while begins and begins[0].first_offset <= header.last_offset:
            active.add(begins.pop(0).producer_id)
        if header.is_control:
            active.discard(header.producer_id)
            markers.append((header.base_offset, header.max_timestamp))
            continue
        if header.is_transactional and header.producer_id in active:
            continue
        found += [
            Found(record.offset, _id_of(record), record.timestamp)
            for record in iter_records(batch, header)
            if record.offset >= position
        ]
    return tuple(found), tuple(markers), next_position


def records_in(data: bytes, position: int) -> Iterator[Found]:
    """Everything that is good in a file of batches, from an offset on."""
    view, at = memoryview(data), 0
    while at + RECORD_BATCH_OVERHEAD <= len(data):
        header = parse_header(view, at)
        batch = view[at : at + max(RECORD_BATCH_OVERHEAD, header.size_bytes)]
        try:
            check_batch(batch, header)
        except TriologError:
            at += 1
            continue
        yield from _read(bytes(batch), position, ())[0]
        at += header.size_bytes


def _id_of(record: Record) -> str:
    """The first line of its value; a tombstone has it in a header. A record under another key than the id says nobody sent."""
    value = dict(record.headers)[ID_HEADER] if record.value is None else record.value
    found, key = bytes(value or b"").partition(b"\n")[0].decode(), None if record.key is None else bytes(record.key).decode()
    return found if key_of(found) in (None, key) else f"{found} under {key}"


def fields_of(record: str) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]:
    """Key, value and headers of the record with an id."""
    key = key_of(record)
    if key is None:
        return None, record.encode(), ()
    if is_tombstone(record):
        return key.encode(), None, ((ID_HEADER, record.encode()),)
    return key.encode(), record.encode(), ()
