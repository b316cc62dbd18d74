"""What `leader-epoch-checkpoint` says, compared with batches of segments that are not scanned: each batch carries its epoch.

The check reads the last batch of each segment, and the batches on both sides of each offset at which an epoch starts. An epoch
that starts at the log's end has no batch yet. Batches without an epoch (-1), and those below the log start, say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ....protocol.errors import CorruptRecordError
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_PARTITION_LEADER_EPOCH
from ..disk.diskops import drive
from ..disk.filesystem import FileSystem
from ..log.leader_epochs import LeaderEpochs
from ..segments.segment import LogSegment
from .load_indexes import Ends

MOST_STARTS: Final = 64
"""The newest epochs whose starts are looked up."""


def contradicted_epoch(
    fs: FileSystem, epochs: LeaderEpochs, segments: Sequence[LogSegment], ends: Mapping[int, Ends], log_start_offset: int
) -> str | None:
    """Return why the epochs cannot be true, None when no batch of these segments contradicts them. Raises OSError."""
    for segment in segments:
        _, next_offset, epoch, _ = ends[segment.base_offset]
        if segment.size and next_offset > log_start_offset and (why := _contradiction(epochs, next_offset - 1, epoch)):
            return why
    starts = [entry.start_offset for entry in epochs.entries[-MOST_STARTS:]]
    first = ends[segments[0].base_offset].first if segments else None
    if first is not None and starts and starts[0] <= segments[0].base_offset:  # the batch there was seen on the way
        del starts[0]
        if first[0] >= log_start_offset and (why := _contradiction(epochs, *first)):
            return why
    for start in starts:
        for header in _headers_around(fs, segments, start):
            if header.base_offset < start <= header.last_offset:
                return f"an epoch starts at offset {start}, inside the batch of {header.base_offset} to {header.last_offset}"
            if header.base_offset >= log_start_offset and (
                why := _contradiction(epochs, header.base_offset, header.partition_leader_epoch)
            ):
                return why
    return None


def _contradiction(epochs: LeaderEpochs, offset: int, epoch: int) -> str | None:
    known = epochs.epoch_for_offset(offset)
    if epoch in (NO_PARTITION_LEADER_EPOCH, known):
        return None
    return f"it says that offset {offset} has {'no epoch' if known is None else f'epoch {known}'}, its batch has {epoch}"


def _headers_around(fs: FileSystem, segments: Sequence[LogSegment], offset: int) -> Iterator[BatchHeader]:
    """Of the batch that holds the offset before this one, and of the first batch from this one on in the same segment."""
    for wanted in (offset - 1, offset):
        segment = next((each for each in reversed(segments) if each.base_offset <= wanted), None)
        if segment is None or not segment.size:
            continue
        try:
            found = drive(fs, segment.view().translate_offset(wanted))
        except CorruptRecordError:
            continue  # whoever reads there is told
        finally:
            segment.offset_index.buffer = None
        if found is not None:
            yield found.header
