"""Offsets whose records were damaged on disk and taken out of the log: `quarantine-checkpoint` of a partition's directory.

The file is a text checkpoint: a version, the number of entries, then a line for each, ascending and apart.

| version | line |
|---|---|
| `0` | `start_offset end_offset file` |
| `1` | `start_offset end_offset file found_ms accepted_ms` |

`file` has the bytes that were taken out, in the same directory; `-` stands for none, where the device gave back zeros or less
than was written. `found_ms` and `accepted_ms` say when the damage was found and when somebody has accepted that it is passed
over, in ms since the epoch, `-` where it is not known or was not done. Version 0 is written where no entry has either. A log
without damage has no such file. Kafka does not know it and steps over the missing offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ....protocol.errors import InvalidRequestError
from ....protocol.limits import INT64_MAX
from ..disk.checkpoints import checkpoint_entries, checkpoint_number, encode_checkpoint, maybe_read
from ..disk.filesystem import FileSystem, replace_file
from ..errors import CheckpointError

FILE_NAME: Final = "quarantine-checkpoint"
NO_FILE: Final = "-"


UNKNOWN_MS: Final = -1
WITH_TIMES: Final = "1"


class OffsetGap(NamedTuple):
    """The offsets [start_offset, end_offset), and the file that keeps what was found there (`-`: nothing was)."""

    start_offset: int
    end_offset: int
    file: str
    found_ms: int = UNKNOWN_MS
    accepted_ms: int = UNKNOWN_MS

    @property
    def is_accepted(self) -> bool:
        """Return whether readers skip the gap whatever the topic's gap.policy is."""
        return self.accepted_ms != UNKNOWN_MS

    @property
    def side_file(self) -> str | None:
        """`file`, if there is one."""
        return None if self.file == NO_FILE else self.file

    def __str__(self) -> str:
        """As `offsets 5 to 7`, both inclusive."""
        last = self.end_offset - 1
        return f"offset {last}" if last == self.start_offset else f"offsets {self.start_offset} to {last}"


def gap_at(gaps: Sequence[OffsetGap], offset: int) -> OffsetGap | None:
    """The gap that `offset` lies in. `gaps` ascend."""
    slot = bisect_right(gaps, offset, key=lambda gap: gap.start_offset) - 1
    return gaps[slot] if slot >= 0 and offset < gaps[slot].end_offset else None


def next_gap(gaps: Sequence[OffsetGap], offset: int) -> OffsetGap | None:
    """The first gap that starts behind `offset`."""
    slot = bisect_right(gaps, offset, key=lambda gap: gap.start_offset)
    return gaps[slot] if slot < len(gaps) else None


def end_behind_gaps(gaps: Iterable[OffsetGap], offset: int) -> int:
    """The first offset from `offset` on that lies in no gap. `gaps` ascend, and may touch."""
    for gap in gaps:
        if gap.start_offset <= offset < gap.end_offset:
            offset = gap.end_offset
    return offset


def merge_gaps(gaps: Iterable[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Ascending and apart: of two that share offsets, the later found one has only what the first does not cover."""
    merged: list[OffsetGap] = []
    for gap in sorted(gaps, key=lambda gap: gap[:2]):
        start = max(gap.start_offset, merged[-1].end_offset if merged else gap.start_offset)
        if start < gap.end_offset:
            merged.append(gap._replace(start_offset=start))
    return tuple(merged)


def gaps_within(gaps: Iterable[OffsetGap], start_offset: int, end_offset: int) -> tuple[OffsetGap, ...]:
    """Return the parts of the gaps in [start_offset, end_offset). A log that was trimmed or truncated has no others."""
    cut = (gap._replace(start_offset=max(gap[0], start_offset), end_offset=min(gap[1], end_offset)) for gap in gaps)
    return tuple(gap for gap in cut if gap.start_offset < gap.end_offset)


def accepted(gaps: Sequence[OffsetGap], start_offset: int, now_ms: int) -> tuple[OffsetGap, ...]:
    """The gaps with the one that starts there accepted; one that was accepted before stays so since then. Raises
    InvalidRequestError where none starts there."""
    gap = gap_at(gaps, start_offset)
    if gap is None or gap.start_offset != start_offset:
        near = f"Offset {start_offset} is in the gap from {gap.start_offset}. " if gap is not None else ""
        raise InvalidRequestError(f"no gap starts at offset {start_offset}. {near}`triolog gaps list` lists the gaps")
    return tuple(each._replace(accepted_ms=now_ms) if each is gap and not gap.is_accepted else each for each in gaps)


def encode_gaps(gaps: Iterable[OffsetGap]) -> bytes:
    gaps = list(gaps)
    if all(gap.found_ms == UNKNOWN_MS and not gap.is_accepted for gap in gaps):
        return encode_checkpoint(f"{gap.start_offset} {gap.end_offset} {gap.file}" for gap in gaps)
    lines = (
        f"{gap.start_offset} {gap.end_offset} {gap.file} {_written_ms(gap.found_ms)} {_written_ms(gap.accepted_ms)}"
        for gap in gaps
    )
    return encode_checkpoint(lines, version=WITH_TIMES)


def _written_ms(ms: int) -> str:
    return "-" if ms == UNKNOWN_MS else str(ms)


def decode_gaps(path: str, data: bytes) -> tuple[OffsetGap, ...]:
    """Raises CheckpointError naming `path` and the line."""
    gaps = []
    has_times = data.startswith(f"{WITH_TIMES}\n".encode())
    entries = checkpoint_entries(path, data, 5, version=WITH_TIMES) if has_times else checkpoint_entries(path, data, 3)
    for start, end, file, *times in entries:
        start_offset, end_offset = checkpoint_number(path, start), checkpoint_number(path, end)
        if start_offset >= end_offset:
            raise CheckpointError(f"{path}: {start} {end} is not a range of offsets")
        gaps.append(OffsetGap(start_offset, end_offset, file, *(_read_ms(path, each) for each in times)))
    return merge_gaps(gaps)


def _read_ms(path: str, text: str) -> int:
    if text == "-":
        return UNKNOWN_MS
    if not text.isdecimal() or int(text) > INT64_MAX:
        raise CheckpointError(f"{path}: {text} is not a time in ms since the epoch, nor `-`")
    return int(text)


def read_gaps(fs: FileSystem, directory: str) -> tuple[OffsetGap, ...]:
    """The gaps of a partition; none when there is no file. Raises CheckpointError."""
    return maybe_read(fs, f"{directory}/{FILE_NAME}", decode_gaps) or ()


def write_gaps(fs: FileSystem, directory: str, gaps: Iterable[OffsetGap], *, durable: bool = True) -> None:
    """Put the checkpoint in place; without gaps it is made only where there was one."""
    path, gaps = f"{directory}/{FILE_NAME}", list(gaps)
    if gaps or fs.file_size(path) is not None:
        replace_file(fs, path, encode_gaps(gaps), durable=durable)
