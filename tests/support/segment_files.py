"""Segment files written batch by batch, with the sparse indexes that Kafka would have written; and ways to spoil those.

Batches may be any bytes with true headers: gaps as compaction leaves them, any order of timestamps, any index interval.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from hypothesis import strategies as st
from triolog.protocol.records.batch import BatchHeader, iter_batches, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Bytes, CompressionType, Record
from triolog.server.storage.disk.diskops import Procedure, Read
from triolog.server.storage.indexes.file_records import FileSlice

from tests.support.record_batches import patched

START_MS: Final = 1_700_000_000_000

SPOILS: Final = ("whole", "whole", "missing", "zero tail", "cut", "noise", "shifted", "backwards")


def contents(records: FileSlice) -> Procedure[Bytes]:
    """All bytes of a slice."""
    data: Bytes = yield Read(records.file, records.start, records.end - records.start)
    return data


@attrs.frozen(kw_only=True)
class DrawnBatch:
    """Timestamps of its records after START_MS, offsets left out before it and behind its last record."""

    times: tuple[int, ...]
    gap_before: int = 0
    gap_behind: int = 0
    value_bytes: int = 20
    compression: CompressionType = CompressionType.NONE
    is_last_of_append: bool = True

    def encode(self, next_offset: int) -> bytes:
        records: list[Any] = [
            (START_MS + time, str(slot).encode(), bytes(self.value_bytes), ()) for slot, time in enumerate(self.times)
        ]
        batch = build_batch(records, base_offset=next_offset + self.gap_before, compression_type=self.compression)
        return patched(batch, last_offset_delta=len(self.times) - 1 + self.gap_behind) if self.gap_behind else batch


def drawn_batches(max_size: int = 12) -> st.SearchStrategy[list[DrawnBatch]]:
    drawn = st.builds(
        DrawnBatch,
        times=st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple),
        gap_before=st.sampled_from((0, 0, 0, 1, 5)),
        gap_behind=st.sampled_from((0, 0, 0, 2)),
        value_bytes=st.sampled_from((0, 20, 300)),
        compression=st.sampled_from((CompressionType.NONE, CompressionType.NONE, CompressionType.ZSTD)),
        is_last_of_append=st.booleans(),
    )
    return st.lists(drawn, max_size=max_size)


@attrs.define(eq=False)
class WrittenLog:
    """What was written into a partition's directory. Owner: the test."""

    directory: Path
    batches: list[tuple[str, int, BatchHeader]] = attrs.field(factory=list)
    """Path, position and header of each."""
    records: list[Record] = attrs.field(factory=list)
    next_offset: int = 0

    @property
    def log_path(self) -> Path:
        """Of the last segment."""
        return max(self.directory.glob("*.log"))

    def offsets(self, low: int = 0, high: int = 1 << 62) -> list[int]:
        return [record.offset for record in self.records if low <= record.offset < high]

    def append_segment(self, batches: Sequence[DrawnBatch | bytes], *, index_interval_bytes: int = 200) -> None:
        """A segment of these batches and its indexes. Bytes are batches with offsets of their own."""
        base_offset = self.next_offset
        data, offset_entries, time_entries = bytearray(), b"", b""
        since_entry, append_position, append_batches = 0, 0, 0
        largest, largest_offset, last_entry_time = -1, base_offset, -1
        path = self.directory / f"{base_offset:020d}.log"
        self.directory.mkdir(exist_ok=True)
        for drawn in batches:
            batch = drawn if isinstance(drawn, bytes) else drawn.encode(self.next_offset)
            header = parse_header(batch)
            if not append_batches:
                append_position = len(data)
            self.batches.append((str(path), len(data), header))
            if not header.is_control:
                self.records += iter_records(batch, header)
            data += batch
            append_batches += 1
            self.next_offset = header.next_offset
            if header.max_timestamp > largest:
                largest, largest_offset = header.max_timestamp, header.last_offset
            if isinstance(drawn, bytes) or drawn.is_last_of_append:
                if since_entry > index_interval_bytes:
                    offset_entries += struct.pack(">ii", header.last_offset - base_offset, append_position)
                    if largest > last_entry_time:
                        time_entries += struct.pack(">qi", largest, largest_offset - base_offset)
                        last_entry_time = largest
                    since_entry = 0
                since_entry += len(data) - append_position
                append_batches = 0
        if largest > last_entry_time:
            time_entries += struct.pack(">qi", largest, largest_offset - base_offset)
        path.write_bytes(data)
        path.with_suffix(".index").write_bytes(offset_entries)
        path.with_suffix(".timeindex").write_bytes(time_entries)


def write_log(directory: Path, segments: Sequence[Sequence[DrawnBatch]], *, index_interval_bytes: int = 200) -> WrittenLog:
    """A partition's directory of these segments; an empty one only as the last."""
    written = WrittenLog(directory)
    for slot, segment in enumerate(segments):
        if segment or slot + 1 == len(segments):
            written.append_segment(segment, index_interval_bytes=index_interval_bytes)
    return written


def spoil(path: Path, how: str, noise: bytes = b"") -> None:
    """Leave an index file whole, as a power cut or a bad sector would, or as nobody would: see SPOILS."""
    data = path.read_bytes()
    size = 12 if path.suffix == ".timeindex" else 8
    match how:
        case "missing":
            path.unlink()
        case "zero tail":
            path.write_bytes(data + bytes(size * 5))
        case "cut":
            path.write_bytes(data[:-3])
        case "noise":
            path.write_bytes(noise[: len(noise) // size * size])
        case "shifted":
            path.write_bytes(
                b"".join(
                    struct.pack(">ii", *(part + 7 for part in struct.unpack_from(">ii", data, at)))
                    for at in range(0, len(data), 8)
                )
                if size == 8
                else data
            )
        case "backwards":
            path.write_bytes(b"".join(data[at : at + size] for at in range(0, len(data), size))[::-1])


def batch_starts(path: str) -> set[int]:
    """Positions in a whole log file where a batch starts, and its end."""
    data = Path(path).read_bytes()
    starts, position = set(), 0
    for header, _ in iter_batches(data):
        starts.add(position)
        position += header.size_bytes
    return starts | {position}
