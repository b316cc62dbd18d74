"""Record batches for tests: what hypothesis draws them from, and how to damage one without its CRC telling."""

from __future__ import annotations

import struct
from typing import Any, Final

from hypothesis import strategies as st
from triolog.protocol.records.batch import BatchHeader, crc32c, parse_header
from triolog.protocol.types import CompressionType

RecordTuple = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""What build_batch takes: timestamp, key, value, headers."""

_FIELDS: Final = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "partition_leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "records_count": (57, ">i"),
}


def patched(batch: bytes, **fields: int) -> bytes:
    """Overwrite header fields and make the CRC true again."""
    changed = bytearray(batch)
    for name, value in fields.items():
        position, layout = _FIELDS[name]
        struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def with_records(records: bytes, *, count: int, **fields: int) -> tuple[bytes, BatchHeader]:
    """Put a true header before records that may be anything; return the batch and the header."""
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(records), -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, count)
    batch = patched(header + records, **{"last_offset_delta": max(count - 1, -1), **fields})
    return batch, parse_header(batch)


def timestamps() -> st.SearchStrategy[int]:
    near = st.integers(1_700_000_000_000, 1_700_000_020_000)
    return st.one_of(st.just(-1), near, near, st.integers(0, 2**63 - 2))


def payloads(max_size: int = 200) -> st.SearchStrategy[bytes | None]:
    return st.one_of(st.none(), st.binary(max_size=max_size), st.integers(60, 20_000).map(lambda size: b"\x80" * size))


def headers() -> st.SearchStrategy[tuple[tuple[str, bytes | None], ...]]:
    header = st.tuples(st.text(st.characters(codec="utf-8"), max_size=80), st.none() | st.binary(max_size=80))
    return st.one_of(st.just(()), st.lists(header, max_size=3).map(tuple))


def record_lists(*, min_size: int = 0, max_size: int = 20) -> st.SearchStrategy[list[RecordTuple]]:
    record: st.SearchStrategy[Any] = st.tuples(timestamps(), payloads(), payloads(), headers())
    return st.lists(record, min_size=min_size, max_size=max_size)


def compression_types() -> st.SearchStrategy[CompressionType]:
    return st.sampled_from(CompressionType)


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """`original` with bytes changed, inserted, cut out or cut off; sometimes as it was."""
    data = bytearray(original)
    for _ in range(draw(st.integers(0, 4))):
        if not data:
            break
        position = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(("set", "set", "flip", "insert", "remove", "cut"))):
            case "set":
                data[position] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
            case "flip":
                data[position] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                data[position:position] = draw(st.binary(min_size=1, max_size=8))
            case "remove":
                del data[position : position + draw(st.integers(1, 8))]
            case _:
                del data[position:]
    return bytes(data)
