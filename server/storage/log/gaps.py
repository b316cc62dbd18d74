"""Offsets whose records were damaged on disk and taken out of the log: `quarantine-checkpoint` of a partition's directory.

The file is a text checkpoint: `0`, the number of entries, then `start_offset end_offset file` for each, ascending and apart.
`file` has the bytes that were taken out, in the same directory; `-` stands for none, where the device gave back zeros or less
than was written. A log without damage has no such file. Kafka does not know it and steps over the missing offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..disk.checkpoints import MAX_CHECKPOINT_BYTES, checkpoint_entries, checkpoint_number, encode_checkpoint
from ..disk.filesystem import FileSystem, read_file, replace_file
from ..errors import CheckpointError

FILE_NAME: Final = "quarantine-checkpoint"
NO_FILE: Final = "-"


class OffsetGap(NamedTuple):
    """The offsets [start_offset, end_offset), and the file that keeps what was found there (`-`: nothing was)."""

    start_offset: int
    end_offset: int
    file: str


def gap_at(gaps: Sequence[OffsetGap], offset: int) -> OffsetGap | None:
    """The gap that `offset` lies in. `gaps` ascend."""
    slot = bisect_right(gaps, offset, key=lambda gap: gap.start_offset) - 1
    return gaps[slot] if slot >= 0 and offset < gaps[slot].end_offset else None


def next_gap(gaps: Sequence[OffsetGap], offset: int) -> OffsetGap | None:
    """The first gap that starts behind `offset`."""
    slot = bisect_right(gaps, offset, key=lambda gap: gap.start_offset)
    return gaps[slot] if slot < len(gaps) else None


def merge_gaps(gaps: Iterable[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Ascending and apart: of two that share offsets, the later found one has only what the first does not cover."""
    merged: list[OffsetGap] = []
    for gap in sorted(gaps, key=lambda gap: gap[:2]):
        start = max(gap.start_offset, merged[-1].end_offset if merged else gap.start_offset)
        if start < gap.end_offset:
            merged.append(gap._replace(start_offset=start))
    return tuple(merged)


def gaps_within(gaps: Iterable[OffsetGap], start_offset: int, end_offset: int) -> tuple[OffsetGap, ...]:
    """What of the gaps lies in [start_offset, end_offset): a log that was trimmed or cut back has no others."""
    cut = (gap._replace(start_offset=max(gap[0], start_offset), end_offset=min(gap[1], end_offset)) for gap in gaps)
    return tuple(gap for gap in cut if gap.start_offset < gap.end_offset)


def encode_gaps(gaps: Iterable[OffsetGap]) -> bytes:
    return encode_checkpoint(f"{gap.start_offset} {gap.end_offset} {gap.file}" for gap in gaps)


def decode_gaps(path: str, data: bytes) -> tuple[OffsetGap, ...]:
    """Raises CheckpointError naming `path` and the line."""
    gaps = []
    for start, end, file in checkpoint_entries(path, data, 3):
        start_offset, end_offset = checkpoint_number(path, start), checkpoint_number(path, end)
        if start_offset >= end_offset:
            raise CheckpointError(f"{path}: {start} {end} is no range of offsets")
        gaps.append(OffsetGap(start_offset, end_offset, file))
    return merge_gaps(gaps)


def read_gaps(fs: FileSystem, directory: str) -> tuple[OffsetGap, ...]:
    """The gaps of a partition; none when there is no file. Raises CheckpointError."""
    path = f"{directory}/{FILE_NAME}"
    try:
        return decode_gaps(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return ()
    except ValueError as exc:
        raise CheckpointError(str(exc)) from exc


def write_gaps(fs: FileSystem, directory: str, gaps: Iterable[OffsetGap], *, durable: bool = True) -> None:
    """Put the checkpoint in place; without gaps it is made only where there was one."""
    path, gaps = f"{directory}/{FILE_NAME}", list(gaps)
    if gaps or fs.file_size(path) is not None:
        replace_file(fs, path, encode_gaps(gaps), durable=durable)
