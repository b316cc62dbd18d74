"""Batches that are small on the wire and take long to look into."""

from __future__ import annotations

import struct

import cramjam
from triolog.protocol.records.batch import assemble_batch
from triolog.protocol.records.builder import BatchBuilder
from triolog.protocol.records.compression import compress
from triolog.protocol.records.framing import LZ4_END_MARK, LZ4_FRAME_HEADER, XERIAL_HEADER
from triolog.protocol.records.varint import encode_varint
from triolog.protocol.types import CompressionType

from tests.support.logs import START_MS


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
    """One record of so many zeros."""
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
