"""A segment whose offsets do not fit in 32 bits above its base offset is split (Kafka: LocalLog.splitOverflowedSegment).

Old brokers could write one. The batches from the first one that does not fit move to a segment of their own: its file is
complete before it has its name, and only then a shorter file takes the place of the old one, which is never cut: a power cut
may leave a cut file with its old length, and the zeros in it would look like records that were lost. A crash in between leaves
the batches twice, and the next start goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD, parse_header
from ..disk.filesystem import READ, FileSystem
from ..disk.paths import LOG_SUFFIX, segment_file
from ..errors import SegmentOffsetOverflowError
from .quarantine import copy_out, leave_out
from .rebuild import SegmentRebuild
from .salvage import Damage


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
    fd = fs.open(path, READ)
    try:
        headers = [parse_header(fs.read(fd, RECORD_BATCH_OVERHEAD, damage.position)) for damage in misplaced]
    finally:
        fs.close(fd)
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
        f"{path}: offset {headers[0].last_offset} at position {first.position} does not lie 0 to {INT32_MAX} above the base "
        f"offset; it and all behind it are in {target} now"
    )
