"""The containers of compressed records, as far as sizes must be known before anything is allocated.

| codec | container |
|---|---|
| snappy | xerial stream (snappy-java): 16 byte header, then blocks of a big-endian length and a raw snappy block |
| lz4 | LZ4 frame 1.5.1 with independent blocks, written as Kafka writes it (Kafka: Lz4BlockOutputStream) |
| zstd | frames of RFC 8878, one or more |

Nothing is decompressed here. What a container claims is compared with the bytes that are really there: each function
finds the largest size that these bytes can decompress to, in steps (see `steps`; a block is one), or raises
CorruptRecordError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from ..errors import CorruptRecordError, InvalidRecordError
from ..limits import KIB, MIB
from .steps import STEPS_PER_PAUSE, Steps
from .varint import decode_unsigned_varint

XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""Magic, version, oldest version that can read it."""
XERIAL_BLOCK_BYTES: Final = 32 * KIB
"""Uncompressed; what snappy-java writes by default."""

LZ4_FRAME_HEADER: Final = bytes.fromhex("04224d18604082")
"""Version 1, independent blocks of up to 64 KiB, no checksums, no content size; the last byte checks the two before."""
LZ4_BLOCK_BYTES: Final = 64 * KIB
LZ4_STORED_FLAG: Final = 0x80000000
LZ4_END_MARK: Final = bytes(4)

_XERIAL_MAGIC: Final = XERIAL_HEADER[:8]
_LZ4_MAGIC: Final = LZ4_FRAME_HEADER[:4]
_LZ4_MAX_RATIO: Final = 255  # a length byte of a match stands for 255 bytes
_ZSTD_MAGIC: Final = bytes.fromhex("28b52ffd")
_ZSTD_MAX_BLOCK_BYTES: Final = 128 * KIB
_ZSTD_MAX_WINDOW_BYTES: Final = 128 * MIB  # libzstd's default for streams, and so what Kafka can read
FRAMES_PER_PAUSE: Final = STEPS_PER_PAUSE // 4
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = range(3)


def xerial_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield each raw snappy block with the size it says it decompresses to.

    Data that starts without the header is one raw block. Headers may come again: streams may be concatenated.
    """
    if data[:8] != _XERIAL_MAGIC:
        yield data, _snappy_block_size(data)
        return
    position = 0
    while position < len(data):
        if data[position : position + 8] == _XERIAL_MAGIC:
            if len(data) - position < len(XERIAL_HEADER):
                raise CorruptRecordError(f"snappy stream ends inside the header at position {position}")
            (version,) = struct.unpack_from(">i", data, position + 8)
            if version < 1:
                raise CorruptRecordError(f"snappy stream has version {version} at position {position}, expected 1")
            position += len(XERIAL_HEADER)
            continue
        if len(data) - position < 4:
            raise CorruptRecordError(f"snappy stream ends inside the block length at position {position}")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise CorruptRecordError(
                f"snappy block at position {position} says it has {length} bytes, {len(data) - position} remain"
            )
        block = data[position : position + length]
        yield block, _snappy_block_size(block)
        position += length


def lz4_frame_limit(data: memoryview) -> Steps[int]:
    """The most bytes that this one frame can decompress to. Dependent blocks and dictionaries are refused.

    Checksums are the decompressor's to check.
    """
    block_bytes, block_checksum_bytes, content_checksum_bytes, position = _lz4_header(data)
    limit = blocks = 0
    while True:
        blocks += 1
        if not blocks % STEPS_PER_PAUSE:
            yield None
        if len(data) - position < 4:
            raise CorruptRecordError(f"lz4 frame of {len(data)} bytes has no end mark")
        (size,) = struct.unpack_from("<I", data, position)
        position += 4
        if size == 0:
            break
        stored = size & ~LZ4_STORED_FLAG
        if stored > block_bytes or stored > len(data) - position:
            raise CorruptRecordError(
                f"lz4 block at position {position} says it has {stored} bytes, {len(data) - position} remain and "
                f"{block_bytes} are allowed"
            )
        limit += stored if size & LZ4_STORED_FLAG else min(block_bytes, stored * _LZ4_MAX_RATIO)
        position += stored + block_checksum_bytes
    if position + content_checksum_bytes != len(data):
        raise CorruptRecordError(f"lz4 frame ends at {position + content_checksum_bytes} of {len(data)} bytes")
    yield limit


def zstd_frames_limit(data: memoryview) -> Steps[int]:
    """The most bytes that these frames can decompress to."""
    position = limit = frames = 0
    while position < len(data):
        frames += 1
        if not frames % FRAMES_PER_PAUSE:
            yield None
        (magic,) = _unpack("<I", data, position)
        if magic & 0xFFFFFFF0 == 0x184D2A50:
            (skipped,) = _unpack("<I", data, position + 4)
            position += 8 + skipped
        else:
            for found in _zstd_frame(data, position):
                if found is None:
                    yield None
                else:
                    limit, position = limit + found[0], found[1]
    if position != len(data) or not data:
        raise CorruptRecordError(f"zstd frames end at {position} of {len(data)} bytes")
    yield limit


def _snappy_block_size(block: memoryview) -> int:
    try:
        size, start = decode_unsigned_varint(block, 0)
    except InvalidRecordError as exc:
        raise CorruptRecordError(f"snappy block of {len(block)} bytes has no length: {exc.message}") from None
    # The densest element, a copy, makes at most 64 bytes out of 3 (long offsets) and 11 out of 2 (short ones).
    if size > (len(block) - start) * 64 // 3:
        raise CorruptRecordError(f"snappy block of {len(block)} bytes says it decompresses to {size}")
    return size


def _lz4_header(data: memoryview) -> tuple[int, int, int, int]:
    if len(data) < len(LZ4_FRAME_HEADER) or data[:4] != _LZ4_MAGIC:
        raise CorruptRecordError(f"not an lz4 frame: it starts with {bytes(data[:4]).hex()}, not {_LZ4_MAGIC.hex()}")
    flags, block_descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20 or block_descriptor & 0x8F or block_descriptor < 0x40:
        raise CorruptRecordError(
            f"lz4 frame flags {flags:#04x} {block_descriptor:#04x}. Expected version 1, independent blocks, no dictionary"
        )
    block_bytes = 1 << 8 + 2 * (block_descriptor >> 4)
    content_size_bytes = 8 if flags & 0x08 else 0
    return block_bytes, 4 if flags & 0x10 else 0, 4 if flags & 0x04 else 0, 7 + content_size_bytes


def _zstd_frame(data: memoryview, position: int) -> Steps[tuple[int, int]]:
    """The limit of one frame and the position after it."""
    content_bytes, window_bytes, has_checksum, position = _zstd_frame_header(data, position)
    block_limit = min(window_bytes, _ZSTD_MAX_BLOCK_BYTES)
    limit = blocks = 0
    is_last = False
    while not is_last:
        blocks += 1
        if not blocks % STEPS_PER_PAUSE:
            yield None
        if len(data) - position < 3:
            raise CorruptRecordError(f"zstd frame ends inside the block header at position {position}")
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if kind > _ZSTD_COMPRESSED or size > _ZSTD_MAX_BLOCK_BYTES:
            raise CorruptRecordError(f"zstd block at position {position} has type {kind} and size {size}")
        position += 3 + (1 if kind == _ZSTD_RLE else size)
        limit += block_limit if kind == _ZSTD_COMPRESSED else size
    yield limit if content_bytes is None else min(limit, content_bytes), position + 4 * has_checksum


def _zstd_frame_header(data: memoryview, position: int) -> tuple[int | None, int, bool, int]:
    """Return content size if it is stated, window size, whether a checksum follows, and the first block's position."""
    magic, descriptor = _unpack("<4sB", data, position)
    if magic != _ZSTD_MAGIC or descriptor & 0x08:
        raise CorruptRecordError(
            f"not a zstd frame at position {position}: it starts with {magic.hex()} {descriptor:#04x}, not {_ZSTD_MAGIC.hex()}"
        )
    position += 5
    is_single_segment = bool(descriptor & 0x20)
    window_bytes = 0
    if not is_single_segment:
        (window,) = _unpack("B", data, position)
        window_bytes = (1 << 10 + (window >> 3)) * (8 + (window & 7)) // 8
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    content_bytes: int | None = None
    if descriptor >> 6 or is_single_segment:
        (content_bytes,) = _unpack(("<B", "<H", "<I", "<Q")[descriptor >> 6], data, position)
        position += 1 << (descriptor >> 6)
        content_bytes += 256 if descriptor >> 6 == 1 else 0
    if is_single_segment:
        assert content_bytes is not None
        window_bytes = content_bytes
    elif window_bytes > _ZSTD_MAX_WINDOW_BYTES:
        raise CorruptRecordError(
            f"zstd frame needs a window of {window_bytes} bytes, at most {_ZSTD_MAX_WINDOW_BYTES} are allowed"
        )
    return content_bytes, window_bytes, bool(descriptor & 0x04), position


def _unpack(layout: str, data: memoryview, position: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(layout, data, position)
    except struct.error:
        raise CorruptRecordError(f"zstd frame ends inside the header at position {position} of {len(data)}") from None
