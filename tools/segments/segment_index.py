"""The sparse indexes beside a `.log` file as arrays, read whole (Kafka: OffsetIndex, TimeIndex).

| file | entry | bytes | meaning |
|---|---|---:|---|
| `.index` | relative offset, position | 4 + 4 | a batch starts at the position, and its base offset is not above the offset |
| `.timeindex` | timestamp, relative offset | 8 + 4 | no record up to the offset has a larger timestamp |

An index is derived, never evidence: it may be missing, preallocated (zeros behind its entries), cut or damaged. What is read
here either ascends and lies inside of the log file, or is empty with a reason in `damage`; whoever goes to a position of it
looks whether a batch is there. Reads nothing but the index files; 10 MiB each at Kafka's default, at most MAX_INDEX_BYTES.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from ...protocol.limits import MIB
from ...server.storage.disk.filesystem import read_at
from ...server.storage.disk.paths import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from .segment_bytes import FILES

MAX_INDEX_BYTES: Final = 512 * MIB
"""A log file of 2 GiB has fewer entries even with one for each of its smallest batches."""

Int64s = npt.NDArray[np.int64]

_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


@attrs.frozen(eq=False, repr=False)
class OffsetIndex:
    """Entries of one `.index`; both arrays ascend strictly."""

    offsets: Int64s
    positions: Int64s
    damage: str | None = None
    """Why there are no entries although there is a file, None when nothing is wrong."""

    def __len__(self) -> int:
        return len(self.offsets)

    def slot_at_or_below(self, offset: int) -> int:
        """The last entry with an offset <= `offset`, -1 for none."""
        return int(np.searchsorted(self.offsets, offset, "right")) - 1

    def slot_at_or_above(self, offset: int) -> int:
        """The first entry with an offset >= `offset`, `len` for none."""
        return int(np.searchsorted(self.offsets, offset, "left"))


@attrs.frozen(eq=False, repr=False)
class TimeIndex:
    """Entries of one `.timeindex`; timestamps (ms) ascend strictly, offsets do not descend."""

    timestamps: Int64s
    offsets: Int64s
    damage: str | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def below(self, offset: int) -> TimeIndex:
        """The entries for offsets below `offset`."""
        inside = int(np.searchsorted(self.offsets, offset, "left"))
        return TimeIndex(self.timestamps[:inside], self.offsets[:inside], self.damage)

    def slot_below(self, timestamp: int) -> int:
        """The last entry with a timestamp < `timestamp`, -1 for none."""
        return int(np.searchsorted(self.timestamps, timestamp, "left")) - 1


def index_path(log_path: str, suffix: str) -> str:
    """The file of the same segment with another suffix."""
    return log_path.removesuffix(LOG_SUFFIX) + suffix


def read_offset_index(log_path: str, base_offset: int, log_bytes: int) -> OffsetIndex:
    """The `.index` of a segment of which the first `log_bytes` count; the broker may have appended more, and entries for it.

    Never raises for its content; OSError but for a missing file.
    """
    path = index_path(log_path, INDEX_SUFFIX)
    entries, damage = _read(path, _OFFSET_ENTRY)
    offsets, positions = _column(entries, "offset"), _column(entries, "position")
    if damage is None:
        damage = _wrong(path, "offsets", offsets, strictly=True) or _wrong(path, "positions", positions, strictly=True)
    if damage is not None:
        return OffsetIndex(_NONE, _NONE, damage)
    inside = int(np.searchsorted(positions, log_bytes, "left"))
    return OffsetIndex(offsets[:inside] + base_offset, positions[:inside])


def read_time_index(log_path: str, base_offset: int) -> TimeIndex:
    """The `.timeindex` of a segment. Errors as of `read_offset_index`."""
    path = index_path(log_path, TIME_INDEX_SUFFIX)
    entries, damage = _read(path, _TIME_ENTRY)
    timestamps, offsets = _column(entries, "timestamp"), _column(entries, "offset")
    if damage is None:
        damage = _wrong(path, "timestamps", timestamps, strictly=True) or _wrong(path, "offsets", offsets, strictly=False)
    if damage is not None:
        return TimeIndex(_NONE, _NONE, damage)
    return TimeIndex(timestamps, offsets + base_offset)


def read_offset_tail(log_path: str, base_offset: int, log_bytes: int) -> OffsetIndex:
    """The last entry of an `.index` alone, 8 bytes; the whole index where that tells nothing. Errors as of
    `read_offset_index`."""
    entries = _read_last(index_path(log_path, INDEX_SUFFIX), _OFFSET_ENTRY)
    offsets, positions = _column(entries, "offset"), _column(entries, "position")
    if len(entries) and offsets[0] >= 0 and 0 <= positions[0] < log_bytes:
        return OffsetIndex(offsets + base_offset, positions)
    return read_offset_index(log_path, base_offset, log_bytes)


def read_time_tail(log_path: str, base_offset: int) -> TimeIndex:
    """The last entry of a `.timeindex` alone, 12 bytes; the whole index where that tells nothing. Errors as of
    `read_offset_index`."""
    entries = _read_last(index_path(log_path, TIME_INDEX_SUFFIX), _TIME_ENTRY)
    if len(entries):
        return TimeIndex(_column(entries, "timestamp"), _column(entries, "offset") + base_offset)
    return read_time_index(log_path, base_offset)


def _read_last(path: str, entry: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The last entry; none where the file is missing, empty or cut, or ends in zeros."""
    size = FILES.file_size(path) or 0
    data = b"" if size % entry.itemsize else read_at(FILES, path, size - entry.itemsize, entry.itemsize) if size else b""
    return np.frombuffer(data if any(data) else b"", entry)


def _read(path: str, entry: np.dtype[np.void]) -> tuple[npt.NDArray[np.void], str | None]:
    """Whole entries without the zeros of a preallocated file; bytes behind the last whole entry are damage."""
    nothing = np.empty(0, entry)
    try:
        size = Path(path).stat().st_size
        if size > MAX_INDEX_BYTES:
            return nothing, f"{path} has {size} bytes, at most {MAX_INDEX_BYTES} are read"
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return nothing, None
    if len(data) % entry.itemsize:
        return nothing, f"{path} has {len(data)} bytes, not a multiple of its entries of {entry.itemsize}"
    entries = np.frombuffer(data, entry)
    filled = np.frombuffer(data, np.uint8).reshape(-1, entry.itemsize).max(axis=1, initial=0)
    used = np.flatnonzero(filled)
    return entries[: int(used[-1]) + 1 if len(used) else 0], None


def _column(entries: npt.NDArray[np.void], name: str) -> Int64s:
    return np.asarray(entries[name], np.int64)


def _wrong(path: str, name: str, values: Int64s, *, strictly: bool) -> str | None:
    if len(values) and values[0] < 0:
        return f"{path}: its {name} begin with {values[0]}"
    steps = np.diff(values)
    bad = np.flatnonzero(steps < (1 if strictly else 0))
    if not len(bad):
        return None
    slot = int(bad[0])
    return f"{path}: its {name} do not ascend, entry {slot} has {values[slot]} and the next one {values[slot + 1]}"


_NONE: Final = np.empty(0, np.int64)
