"""Record batches for tests: what hypothesis draws them from, and how to damage one without its CRC telling.

Batches that are small on the wire and take long to look into.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cramjam
from hypothesis import strategies as st
from triolog.protocol.records.batch import BatchHeader, assemble_batch, crc32c, parse_header
from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.records.compression import compress
from triolog.protocol.records.framing import LZ4_END_MARK, LZ4_FRAME_HEADER, XERIAL_HEADER
from triolog.protocol.records.varint import encode_varint
from triolog.protocol.types import CompressionType

from tests.support.logs import START_MS

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


def tiny_records(count: int, codec: CompressionType = CompressionType.NONE, *, headers: int = 0) -> bytes:
    """Records of which none is like the one before."""
    builder = BatchBuilder(compression_type=codec)
    for number in range(count):
        builder.append(START_MS + number % 3, b"k", b"v" * (number % 5), [("h", b"")] * headers)
    return builder.build()


def empty_headers(count: int, codec: CompressionType = CompressionType.NONE) -> bytes:
    """One record with so many headers of two bytes."""
    body = b"\0\0\0\x02k\x02v" + encode_varint(count) + b"\0\1" * count
    return packed(encode_varint(len(body)) + body, codec)


def zeros(size: int, codec: CompressionType) -> bytes:
    body = b"\0\0\0\x02k" + encode_varint(size) + bytes(size) + b"\0"
    return packed(encode_varint(len(body)) + body, codec)


def packed(records: bytes, codec: CompressionType, *, compressed: bytes | None = None) -> bytes:
    """One record as a batch; `compressed`: in a container of its own."""
    return assemble_batch(
        compress(codec, records) if compressed is None else compressed,
        base_offset=0,
        last_offset_delta=0,
        records_count=1,
        attributes=codec,
        base_timestamp=START_MS,
        max_timestamp=START_MS,
    )


SMALL_RECORD = b"\x10\0\0\0\x02k\x02v\0"


def many_blocks(count: int, codec: CompressionType) -> bytes:
    """One small record in a container of so many blocks, all but one of them empty."""
    if codec is CompressionType.LZ4:
        stored = struct.pack("<I", len(SMALL_RECORD) | 0x80000000) + SMALL_RECORD
        empty = struct.pack("<I", 0x80000000)
        return packed(b"", codec, compressed=LZ4_FRAME_HEADER + empty * count + stored + LZ4_END_MARK)
    if codec is CompressionType.SNAPPY:
        empty = struct.pack(">i", 1) + b"\0"
        block = bytes(cramjam.snappy.compress_raw(SMALL_RECORD))
        return packed(b"", codec, compressed=XERIAL_HEADER + empty * count + struct.pack(">i", len(block)) + block)
    if codec is CompressionType.GZIP:
        return packed(b"", codec, compressed=compress(codec, b"") * count + compress(codec, SMALL_RECORD))
    header = bytes.fromhex("28b52ffd") + b"\0\x00"  # a window of 1 KiB, no content size, no checksum
    last = (len(SMALL_RECORD) << 3 | 1).to_bytes(3, "little")
    return packed(b"", codec, compressed=header + bytes(3) * count + last + SMALL_RECORD)
