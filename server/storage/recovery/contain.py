"""What a scan has found of a segment is done to its files, and said: damage goes, indexes are put in place."""

from __future__ import annotations

import logging
from typing import Final

from ..disk.diskops import drive
from ..disk.filesystem import FileSystem
from ..log.gaps import NO_FILE, OffsetGap
from .quarantine import cut_tail, quarantine
from .rebuild import SegmentRebuild

LOGGER: Final = logging.getLogger(__name__)


def contain(
    fs: FileSystem, rebuild: SegmentRebuild, *, found_ms: int, gap_end: int | None = None, durable: bool
) -> tuple[OffsetGap, ...]:
    """Take every damage out of the segment's log, then let it have its indexes. Answers the new gaps."""
    path = rebuild.segment.log.path
    gaps: tuple[OffsetGap, ...] = ()
    if rebuild.damages:
        end = gap_end if rebuild.trailing else None
        gaps = quarantine(fs, path, rebuild.damages, found_ms=found_ms, gap_end=end, durable=durable)
        for damage in rebuild.damages:
            LOGGER.warning(
                "%s: %d bytes at position %d: %s; %s",
                path,
                damage.size,
                damage.position,
                damage.reason,
                "they are put right" if damage.stamp else "they are taken out and kept beside it",
            )
        for gap in gaps:
            LOGGER.warning(
                "%s: offsets %d to %d are lost, their bytes are in %s", path, gap.start_offset, gap.end_offset - 1, gap.file
            )
    drive(fs, rebuild.put_in_place())
    return gaps


def cut_off(fs: FileSystem, rebuild: SegmentRebuild, *, durable: bool) -> SegmentRebuild:
    """Cut the log behind the last good batch; what was there is kept unless it is zeros."""
    segment, trailing = rebuild.segment, rebuild.trailing
    if trailing:
        position, path = trailing[0].position, segment.log.path
        kept = cut_tail(fs, path, position, segment.size, durable=durable)
        LOGGER.warning(
            "%s: %d bytes behind the last good batch were cut off%s: %s",
            path,
            segment.size - position,
            "" if kept == NO_FILE else f" and are kept in {kept}",
            trailing[0].reason,
        )
        del rebuild.damages[len(rebuild.damages) - len(trailing) :]
    return rebuild
