"""A log of many full segments that takes little room on disk: complete indexes, and batches only where lookups will go.

Every segment has the batches that a producer of equal batches would have left, an index entry for each but the first, and the
files' true sizes. Of the batches themselves only those are written that a lookup of one of `targets` reads; the rest of the
file is a hole. It opens as after a clean stop.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from ....protocol.records.batch import parse_header, stamp
from ....server.storage.disk.paths import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from ....server.storage.indexes.offset_and_time import OFFSET_ENTRY, TIME_ENTRY
from ..measuring.wire import FIRST_TIMESTAMP, batch_of

BATCH_RECORDS: Final = 10
VALUE_BYTES: Final = 425
"""Makes a batch larger than index.interval.bytes, so that each has an entry."""
STAMPED_BYTES: Final = 16


@attrs.frozen
class SparseLog:
    """What was generated."""

    directory: str
    targets: tuple[int, ...]
    """Offsets whose lookups find batches, in random order."""
    size_bytes: int
    """As the files say; a fraction of it is on disk."""
    entries: int
    """Of one segment's offset index."""
    end_offset: int


def generate(
    directory: str,
    *,
    segments: int,
    segment_bytes: int,
    targets_per_segment: int,
    value_bytes: int = VALUE_BYTES,
    seed: int = 0,
) -> SparseLog:
    """Write the log into `directory`, which exists and has none."""
    rng = random.Random(seed)
    batch = batch_of(BATCH_RECORDS, value_bytes, first_timestamp=FIRST_TIMESTAMP)
    count = segment_bytes // len(batch)
    assert count > 2, f"{segment_bytes} bytes are too few for batches of {len(batch)}"
    offset_entries = b"".join(
        OFFSET_ENTRY.pack(slot * BATCH_RECORDS + BATCH_RECORDS - 1, slot * len(batch)) for slot in range(1, count)
    )
    targets: list[int] = []
    for number in range(segments):
        base_offset = number * count * BATCH_RECORDS
        chosen = rng.sample(range(1, count), min(targets_per_segment, count - 1))
        targets += [base_offset + slot * BATCH_RECORDS + rng.randrange(BATCH_RECORDS) for slot in chosen]
        needed = {0, count - 1, *chosen, *(slot - 1 for slot in chosen)}

        def path(suffix: str, base_offset: int = base_offset) -> Path:
            return Path(directory, segment_file(base_offset, suffix))

        _write_batches(path(LOG_SUFFIX), batch, base_offset, sorted(needed), size=count * len(batch))
        path(INDEX_SUFFIX).write_bytes(offset_entries)
        path(TIME_INDEX_SUFFIX).write_bytes(_time_entries(base_offset, count))
    rng.shuffle(targets)
    end_offset = segments * count * BATCH_RECORDS
    return SparseLog(directory, tuple(targets), segments * count * len(batch), count - 1, end_offset)


def _write_batches(path: Path, batch: bytes, base_offset: int, slots: Iterable[int], *, size: int) -> None:
    header, body = parse_header(batch), batch[STAMPED_BYTES:]
    with path.open("wb") as file:
        file.truncate(size)
        for slot in slots:
            os.pwrite(file.fileno(), stamp(base_offset + slot * BATCH_RECORDS, header, 0) + body, slot * len(batch))


def _time_entries(base_offset: int, count: int) -> bytes:
    """Timestamps go on from segment to segment; inside a batch they are the same in all batches, which nobody asks for."""
    return b"".join(
        TIME_ENTRY.pack(FIRST_TIMESTAMP + base_offset + offset, offset)
        for offset in range(2 * BATCH_RECORDS - 1, count * BATCH_RECORDS, BATCH_RECORDS)
    )
