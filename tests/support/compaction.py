"""Logs of keyed records for tests of compaction, and what a reader of them sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triolog.protocol.records.batch import BatchHeader, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.server.offline.compact_directory import Compacted, compact
from triolog.server.storage.log.log import Log
from triolog.server.storage.log.prepare import prepare_marker

from tests.support.logs import START_MS, DrivenLog
from tests.support.segment_files import contents

MAP_BYTES = 1 << 16

Keyed = tuple[int | str | None, bytes | None]
"""Key and value; None is a tombstone."""


def as_key(key: int | str | None) -> bytes | None:
    return None if key is None else str(key).encode()


def keyed_batch(records: Iterable[Keyed], *, timestamp: int = START_MS, **options: Any) -> bytes:
    """One batch of keyed records, all of one timestamp."""
    return build_batch([(timestamp, as_key(key), value, ()) for key, value in records], **options)


def put(driven: DrivenLog, key: int | str, value: int | str | None, **options: Any) -> int:
    """Append one record in a batch of its own; answers its offset."""
    return put_all(driven, [(key, value)], **options)


def put_all(driven: DrivenLog, records: Iterable[tuple[int | str, int | str | None]], **options: Any) -> int:
    """Append records as one batch; answers its base offset."""
    encoded = [(key, None if value is None else str(value).encode()) for key, value in records]
    return driven.append(keyed_batch(encoded, **options)).base_offset


def end_transaction(driven: DrivenLog, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
    """Append a marker; answers its offset."""
    marker = prepare_marker(
        producer_id=producer_id, producer_epoch=epoch, commit=commit, coordinator_epoch=0, now_ms=driven.clock()
    )
    (answer,) = driven.append_group([marker])
    return answer.base_offset  # type: ignore[union-attr]


def clean(driven: DrivenLog, checkpoint: int | None = None, *, map_bytes: int = MAP_BYTES) -> Compacted:
    """Make everything cleanable and clean it once."""
    if driven.log.active.size:
        driven.roll()
    driven.flush()
    return clean_synced(driven, checkpoint, map_bytes=map_bytes)


def clean_synced(driven: DrivenLog, checkpoint: int | None = None, *, map_bytes: int = MAP_BYTES) -> Compacted:
    """Clean once what is on the device."""
    try:
        done = compact(driven.fs, driven.log, checkpoint, map_bytes=map_bytes)
    finally:
        driven.close_files()
    assert done is not None, "nothing is dirty"
    return done


def raw_batches(driven: DrivenLog) -> list[tuple[BatchHeader, memoryview]]:
    """Every batch in the files."""
    found: list[tuple[BatchHeader, memoryview]] = []
    for segment in driven.log.segments:
        if segment.size:
            found += iter_batches(driven.run(contents(segment.records)))
    return found


def batches(driven: DrivenLog) -> list[tuple[BatchHeader, list[tuple[int, bytes | None, bytes | None]]]]:
    """Every batch in the files with its records: (offset, key, value)."""
    return [
        (header, [(record.offset, record.key, record.value) for record in iter_records(batch, header)])
        for header, batch in raw_batches(driven)
    ]


def stored(driven: DrivenLog) -> list[tuple[int, str, str | None]]:
    """(offset, key, value) of every data record in the files."""
    return [
        (offset, (key or b"").decode(), None if value is None else value.decode())
        for header, records in batches(driven)
        if not header.is_control
        for offset, key, value in records
    ]


def offsets(driven: DrivenLog) -> list[int]:
    """Offsets of all records in the files, markers too."""
    return [offset for _, records in batches(driven) for offset, _, _ in records]


def last_offsets(driven: DrivenLog) -> list[int]:
    """Last offset of every batch in the files, empty ones too."""
    return [header.last_offset for header, _ in batches(driven)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]
