"""Damaged bytes are moved out of a segment, none are thrown away: `<base offset>.log.corrupt-<position>`.

A segment must be a valid log for every reader of the format, so the good batches before and behind the damage are copied to a
new file that takes the old one's name. The order makes every step safe against a crash: the side files first, then the entry
in `quarantine-checkpoint`, then the indexes go (a crash must not leave those of the old file), then the name changes. Whoever
opens the log after a crash in between finds the damage again, and the same side files with the same content.

What a scan has found of a segment is done to its files, and said: damage goes, indexes are put in place.

A segment whose offsets do not fit in 32 bits above its base offset is split (Kafka: LocalLog.splitOverflowedSegment).

Old brokers could write one. The batches from the first one that does not fit move to a segment of their own: its file is
complete before it has its name, and only then a shorter file takes the place of the old one, which is never cut: a power cut
may leave a cut file with its old length, and the zeros in it would look like records that were lost. A crash in between leaves
the batches twice, and the next start goes on from there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from ....protocol.limits import INT32_MAX, INT64_MAX
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from ....protocol.types import Bytes
from ..disk.diskops import drive
from ..disk.filesystem import CREATE, WRITE, FileSystem, opened, pieces, read_at, write_pieces
from ..disk.paths import CORRUPT_MARK, INDEX_SUFFIXES, LOG_SUFFIX, TEMPORARY_SUFFIX, segment_file
from ..errors import SegmentOffsetOverflowError
from ..log.gaps import NO_FILE, OffsetGap, gaps_within, merge_gaps, read_gaps, write_gaps
from .rebuild import SegmentRebuild
from .salvage import STAMP_BYTES, Damage, begins_with_batch, is_zeros

LOGGER: Final = logging.getLogger(__name__)

MOST_TAILS: Final = 16
REPLACE: Final = CREATE | os.O_TRUNC


def set_aside(fs: FileSystem, log_path: str, position: int, size: int, *, durable: bool = True) -> str:
    """Keep a copy of the bytes [position, position + size) of a log; answers the file's name, `-` when all are zeros.

    A file of that name with other bytes, from an earlier damage, stays: the new one gets a number behind its name. The caller
    syncs the directory.
    """
    if is_zeros(fs, log_path, position, position + size):
        return NO_FILE
    path = wanted = f"{log_path}{CORRUPT_MARK}{position}"
    number = 1
    while not copy_out(fs, log_path, position, size, path, durable=durable):
        number += 1
        path = f"{wanted}.{number}"
    return path.rpartition("/")[2]


def quarantine(
    fs: FileSystem,
    log_path: str,
    damages: Sequence[Damage],
    *,
    found_ms: int,
    gap_end: int | None = None,
    durable: bool = True,
) -> tuple[OffsetGap, ...]:
    """Take the damages out of a log file, or put the stamps of those right that have one; answers the new gaps.

    `gap_end` ends the gap of a damage at the end of the file whose offsets nobody knows. Indexes of the segment are deleted:
    positions are others now.
    """
    directory = log_path.rpartition("/")[0]
    gaps = []
    for damage in damages:
        if damage.stamp is not None:
            continue
        file = set_aside(fs, log_path, damage.position, damage.size, durable=durable)
        end = damage.next_offset
        if gap_end is not None and damage is damages[-1]:
            end = max(end, gap_end)
        if damage.first_offset < end:
            gaps.append(OffsetGap(damage.first_offset, end, file, found_ms))
    if gaps:
        write_gaps(fs, directory, merge_gaps([*read_gaps(fs, directory), *gaps]), durable=durable)
    leave_out(fs, log_path, damages, durable=durable)
    return tuple(gaps)


def cut_tail(fs: FileSystem, log_path: str, position: int, size: int, *, durable: bool = True) -> str:
    """Cut a log of `size` bytes at `position`; what was there is kept beside it. Answers the file's name or `-`."""
    file = set_aside(fs, log_path, position, size - position, durable=durable)
    if durable and file != NO_FILE:
        fs.sync_directory(log_path.rpartition("/")[0])
    with opened(fs, log_path, WRITE) as fd:
        fs.truncate(fd, position)
    return file


def delete_oldest_tails(fs: FileSystem, directory: str, gaps: Iterable[OffsetGap]) -> list[str]:
    """Delete what was kept of torn appends, but the newest MOST_TAILS files; answers their names.

    A device that loses power again and again must not fill up with them. What was damaged below a recovery point is named by
    a gap and stays. So do whole segments of a log that ended before its log start offset: they begin with a good batch.
    """
    named = {gap.file for gap in gaps}
    tails = [name for name in fs.list_directory(directory) if CORRUPT_MARK in name and name not in named]
    if len(tails) <= MOST_TAILS:
        return []
    tails = [name for name in tails if not begins_with_batch(fs, f"{directory}/{name}")]
    tails.sort(key=lambda name: (fs.modified_ms(f"{directory}/{name}"), name))
    oldest = tails[:-MOST_TAILS]
    for name in oldest:
        fs.unlink(f"{directory}/{name}")
    return oldest


def copy_out(fs: FileSystem, log_path: str, position: int, size: int, target: str, *, durable: bool = True) -> bool:
    """Copy bytes of a log to a file of their own; False when there is one of that name with other bytes. The caller syncs
    the directory."""
    with opened(fs, log_path) as source:
        found = fs.file_size(target)
        if found is None:
            write_pieces(fs, target + TEMPORARY_SUFFIX, REPLACE, pieces(fs, source, position, size), durable=durable)
            fs.rename(target + TEMPORARY_SUFFIX, target)
        return found is None or (found == size and _is_copy(fs, target, source, position, size))


def leave_out(fs: FileSystem, log_path: str, damages: Sequence[Damage], *, durable: bool) -> None:
    """Put a new file without the damages, with the stamps of those that have one put right, in the place of a log. Nothing is
    cut: after a power cut the log is as it was, or as it is to be."""
    directory, temporary = log_path.rpartition("/")[0], log_path + TEMPORARY_SUFFIX
    with opened(fs, log_path) as source:
        write_pieces(fs, temporary, REPLACE, _kept(fs, source, fs.size(source), damages), durable=durable)
    for suffix in INDEX_SUFFIXES:
        path = log_path.removesuffix(LOG_SUFFIX) + suffix
        if fs.file_size(path) is not None:
            fs.unlink(path)
    if durable:
        fs.sync_directory(directory)
    fs.rename(temporary, log_path)
    if durable:
        fs.sync_directory(directory)


def _kept(fs: FileSystem, source: int, size: int, damages: Sequence[Damage]) -> Iterator[Bytes]:
    """Yield the file's content without the damages."""
    position = 0
    for damage in damages:
        yield from pieces(fs, source, position, damage.position - position)
        position = damage.position + damage.size
        if damage.stamp is not None:
            yield damage.stamp
            yield from pieces(fs, source, damage.position + STAMP_BYTES, damage.size - STAMP_BYTES)
    yield from pieces(fs, source, position, size - position)


def _is_copy(fs: FileSystem, path: str, source: int, position: int, size: int) -> bool:
    with opened(fs, path) as copy:
        pairs = zip(pieces(fs, copy, 0, size), pieces(fs, source, position, size), strict=True)
        return all(mine == theirs for mine, theirs in pairs)


def contain(
    fs: FileSystem,
    rebuild: SegmentRebuild,
    *,
    found_ms: int,
    gap_end: int | None = None,
    log_start_offset: int = 0,
    durable: bool,
) -> tuple[OffsetGap, ...]:
    """Take every damage out of the segment's log, then let it have its indexes. Answers the new gaps. Nobody misses offsets
    below the log start."""
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
                "repaired" if damage.stamp else "moved to a file beside the log",
            )
        for gap in gaps_within(gaps, log_start_offset, INT64_MAX):
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
            "%s: cut off %d bytes after the last good batch%s: %s",
            path,
            segment.size - position,
            "" if kept == NO_FILE else f", kept in {kept}",
            trailing[0].reason,
        )
        del rebuild.damages[len(rebuild.damages) - len(trailing) :]
    return rebuild


def split_overflow(
    fs: FileSystem, rebuild: SegmentRebuild, misplaced: Sequence[Damage], *, only_begun: bool, durable: bool
) -> None:
    """Split the segment when the whole batches that do not fit there are its end and lie behind its 32 bits; raises
    SegmentOffsetOverflowError when that is done: the directory has other files now, and is to be loaded again.

    `only_begun`: a split that was begun is completed, none is begun.
    """
    segment = rebuild.segment
    path, first = segment.log.path, misplaced[0]
    if list(misplaced) != rebuild.trailing or first.position != rebuild.valid_bytes:
        return
    headers = [parse_header(read_at(fs, path, damage.position, RECORD_BATCH_OVERHEAD)) for damage in misplaced]
    base_offset = headers[0].base_offset
    ascends = all(left.next_offset <= right.base_offset for left, right in pairwise(headers))
    if base_offset < rebuild.next_offset or headers[0].last_offset <= segment.base_offset + INT32_MAX or not ascends:
        return
    directory = path.rpartition("/")[0]
    target = f"{directory}/{segment_file(base_offset, LOG_SUFFIX)}"
    if only_begun and fs.file_size(target) is None:
        return
    if not copy_out(fs, path, first.position, segment.size - first.position, target, durable=durable):
        return
    if durable:
        fs.sync_directory(directory)
    leave_out(fs, path, misplaced, durable=durable)
    raise SegmentOffsetOverflowError(
        f"{path}: offset {headers[0].last_offset} at position {first.position} is not 0 to {INT32_MAX} above "
        f"the base offset. It and all later batches are in {target} now"
    )
