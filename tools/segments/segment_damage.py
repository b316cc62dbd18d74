"""The treatment of damaged parts of a segment: the option `mode`, with the names of Spark's file sources.

| mode | a damaged batch |
|---|---|
| `PERMISSIVE` | is left out, logged with its place and counted; one damaged only in its first 17 bytes is read |
| `DROPMALFORMED` | is left out and counted |
| `FAILFAST` | raises DamagedSegmentError with file and position |

The server's `salvage` decides what counts as damage and where reading continues after it, as for recovery and `verify`. A *torn
tail* of the last segment is not damage: a partial batch or zeros, as a running broker or a power cut leaves them.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final, cast

import attrs

from ...protocol.limits import INT64_MAX
from ...protocol.records.batch import BatchHeader
from ...server.offline.stored_records import restored
from ...server.storage.errors import StorageError
from ...server.storage.recovery.salvage import Damage, GoodBatch, is_settled, is_torn_tail, scan_batches
from .segment_bytes import FILES, SegmentBytes

LOGGER: Final = logging.getLogger(__name__)

MAX_LOGGED: Final = 100
"""Damages of one split that are logged one by one; all are counted."""


class ReadMode(enum.Enum):
    """See the table above."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


class DamagedSegmentError(StorageError):
    """`mode=FAILFAST` and a part of a segment cannot be read."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            f"{path}: position {position}: {reason}. `triolog verify` shows all damage of a directory. "
            "mode=DROPMALFORMED or mode=PERMISSIVE reads the whole batches"
        )
        self.path = path
        self.position = position
        self.reason = reason


@attrs.define(eq=False, repr=False)
class DamageCounts:
    """The damage that a reader skipped. Owner: the reader."""

    mode: ReadMode
    damages: int = 0
    restored: int = 0
    """Damages of which nothing was lost."""
    lost_bytes: int = 0
    lost_offsets: int = 0
    """How many offsets are missing; at the end of a log nobody knows."""

    def take(self, path: str, damage: Damage) -> None:
        """Count one, as the mode says. Raises DamagedSegmentError."""
        if self.mode is ReadMode.FAILFAST:
            raise DamagedSegmentError(path, damage.position, damage.reason)
        self.damages += 1
        is_restored = damage.stamp is not None and self.mode is ReadMode.PERMISSIVE
        if is_restored:
            self.restored += 1
        else:
            self.lost_bytes += damage.size
            self.lost_offsets += damage.next_offset - damage.first_offset
        if self.mode is ReadMode.PERMISSIVE and self.damages <= MAX_LOGGED:
            LOGGER.warning(
                "%s: position %d: %s; %s",
                path,
                damage.position,
                damage.reason,
                "reading the batch anyway"
                if is_restored
                else f"skipping {damage.size} bytes with the offsets {damage.first_offset} to {damage.next_offset - 1}",
            )

    def log_total(self, path: str) -> None:
        """Log one line at the end of a read that skipped data."""
        if self.damages and self.mode is ReadMode.PERMISSIVE:
            LOGGER.warning(
                "%s: %d damaged parts: read %d anyway, skipped %d bytes and %d offsets",
                path,
                self.damages,
                self.restored,
                self.lost_bytes,
                self.lost_offsets,
            )


@attrs.frozen(kw_only=True)
class SegmentPart:
    """Bytes [.., end_byte) of a segment and what is known of the offsets in them."""

    path: str
    end_byte: int
    end_offset: int = INT64_MAX
    """No offset at or above this one lies in the segment; INT64_MAX when there is no next segment."""
    is_tail: bool = False
    """Whether `end_byte` is where the last segment ends, so that a torn tail may come before it."""


def find_good_batch(part: SegmentPart, position: int, next_offset: int) -> tuple[list[Damage], GoodBatch | None]:
    """The damages from `position` on and the good batch behind them; None when there is none up to the end, and behind a batch
    that can be restored.

    `next_offset` is the least that the next batch may have. A torn tail is not among the damages. Raises OSError.
    """
    damages: list[Damage] = []
    end_offset = None if part.end_offset == INT64_MAX else part.end_offset
    scan = scan_batches(
        FILES,
        part.path,
        start=position,
        end=part.end_byte,
        base_offset=next_offset,
        end_offset=end_offset,
        torn_from=0 if part.is_tail else INT64_MAX,
    )
    with closing(cast(Generator[GoodBatch | Damage], scan)):
        for item in scan:
            if isinstance(item, GoodBatch):
                return damages, item
            damages.append(item)
            if item.stamp is not None:
                return damages, None
    if part.is_tail and is_torn_tail(FILES, part.path, position, part.end_byte):
        return [], None
    return damages, None


def walk_headers(
    file: SegmentBytes, part: SegmentPart, position: int, next_offset: int, counts: DamageCounts
) -> Iterator[tuple[BatchHeader, int]]:
    """The headers from a batch's start to the end of the part, with their positions; CRCs are looked at where there is doubt.

    One that is damaged in its first bytes comes as it was. Raises DamagedSegmentError as `counts` has it, OSError.
    """
    while position < part.end_byte:
        position, next_offset = yield from _settled_headers(file, part, position, next_offset)
        if position >= part.end_byte:
            return
        damages, good = find_good_batch(part, position, next_offset)
        for damage in damages:
            counts.take(part.path, damage)
            if damage.stamp is not None:
                yield restored(FILES, part.path, damage.position, damage.size, damage.stamp).header, damage.position
            position, next_offset = damage.position + damage.size, damage.next_offset
        if good is not None:
            yield good.header, good.position
            position, next_offset = good.position + good.header.size_bytes, good.header.next_offset
        elif not damages:
            return


def _settled_headers(
    file: SegmentBytes, part: SegmentPart, position: int, next_offset: int
) -> Generator[tuple[BatchHeader, int], None, tuple[int, int]]:
    """Answers where the next one needs a closer look."""
    headers = file.headers(position)
    found = next(headers, None)
    while found is not None:
        header, at = found
        if header.base_offset < next_offset or header.next_offset > part.end_offset:
            break
        found = next(headers, None)
        if header.base_offset > next_offset and (found is None or not is_settled(header, found[0])):
            break
        yield header, at
        position, next_offset = at + header.size_bytes, header.next_offset
    return position, next_offset
