"""Compressing the records of a batch, in the containers that Kafka's clients read and write.

gzip is the standard library's zlib (its compressor was 2.7 times as fast as cramjam's on JSON); snappy, lz4 and zstd
are cramjam's, which works without the GIL. Their modules are imported when they are first needed, or by `load_codecs`: a server
cannot count on a descriptor for that later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..errors import PackageMissingError, RecordTooLargeError
from ..limits import INT64_MAX, MIB
from ..types import Bytes, CompressionType
from .framing import (
    LZ4_BLOCK_BYTES,
    LZ4_END_MARK,
    LZ4_FRAME_HEADER,
    LZ4_STORED_FLAG,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
)

LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3
GZIP_DEFAULT_LEVEL: Final = -1

_LEGAL_LEVELS: Final = {
    CompressionType.GZIP: range(-1, 10),
    CompressionType.LZ4: range(1, 18),
    CompressionType.ZSTD: range(-131072, 23),
}
_LZ4_LEAST_HIGH_LEVEL: Final = 3
_LZ4_MOST_HIGH_LEVEL: Final = 12
_LZ4_CHECKED_BLOCKS: Final = b"\x70\x40"  # version 1, independent blocks of 64 KiB with checksums
GZIP_WINDOW_BITS: Final = 31  # zlib's 15, plus 16 for the gzip container


def load_codecs() -> None:
    """Import what every codec needs. Raises PackageMissingError."""
    import zlib  # noqa: F401

    try:
        import cramjam  # noqa: F401
    except ImportError:
        raise PackageMissingError("cramjam") from None


def compress(compression_type: CompressionType, data: Bytes, level: int | None = None, *, max_bytes: int = INT64_MAX) -> bytes:
    """Compress with Kafka's default level, or `level` where the codec has one; ValueError for a level it lacks.

    RecordTooLargeError as soon as it is known that more than `max_bytes` come out: nothing is collected that nobody wants.
    """
    check_compression_level(compression_type, level)
    return _COMPRESSORS[compression_type](data, level, max_bytes)


def check_compression_level(compression_type: CompressionType, level: int | None) -> None:
    """ValueError for a level that the codec lacks; None is its default."""
    if level is not None and level not in _LEGAL_LEVELS.get(compression_type, ()):
        raise ValueError(f"{compression_type.name.lower()} has no compression level {level}")


def _copy(data: Bytes, level: int | None, max_bytes: int) -> bytes:
    _check_packed(len(data), max_bytes)
    return bytes(data)


def _gzip_compress(data: Bytes, level: int | None, max_bytes: int) -> bytes:
    import zlib

    level = GZIP_DEFAULT_LEVEL if level is None else level
    if len(data) <= MIB:
        packed = zlib.compress(data, level, GZIP_WINDOW_BITS)
        _check_packed(len(packed), max_bytes)
        return packed
    compressor = zlib.compressobj(level, wbits=GZIP_WINDOW_BITS)
    view = memoryview(data)
    parts = _Parts(max_bytes)
    for start in range(0, len(view), MIB):
        parts.add(compressor.compress(view[start : start + MIB]))
    parts.add(compressor.flush())
    return parts.joined()


def _snappy_compress(data: Bytes, level: int | None, max_bytes: int) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = _Parts(max_bytes)
    parts.add(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.add(len(block).to_bytes(4, "big"), block)
    return parts.joined()


def _lz4_compress(data: Bytes, level: int | None, max_bytes: int) -> bytes:
    # Kafka's default, 9, means the fast compressor there, not the high one at level 9.
    if level is not None and level != LZ4_DEFAULT_LEVEL:
        return _lz4_compress_high(data, min(max(level, _LZ4_LEAST_HIGH_LEVEL), _LZ4_MOST_HIGH_LEVEL), max_bytes)
    from cramjam import lz4

    view = memoryview(data)
    parts = _Parts(max_bytes)
    parts.add(LZ4_FRAME_HEADER)
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        source = view[start : start + LZ4_BLOCK_BYTES]
        block = bytes(lz4.compress_block(source, store_size=False))
        if len(block) < len(source):
            parts.add(len(block).to_bytes(4, "little"), block)
        else:
            parts.add((len(source) | LZ4_STORED_FLAG).to_bytes(4, "little"), bytes(source))
    parts.add(LZ4_END_MARK)
    return parts.joined()


def _lz4_compress_high(data: Bytes, level: int, max_bytes: int) -> bytes:
    """cramjam has levels for frames only, and puts a checksum behind each block, which Kafka's frames do not have."""
    from cramjam import lz4

    compressor = lz4.Compressor(level, content_checksum=False, block_linked=False)
    compressor.compress(data)
    finished = compressor.finish()
    _check_packed(len(finished), max_bytes)
    frame = bytes(finished)
    assert frame[4:6] == _LZ4_CHECKED_BLOCKS, frame[:7].hex()
    parts = [LZ4_FRAME_HEADER]
    position = len(LZ4_FRAME_HEADER)
    while size := int.from_bytes(frame[position : position + 4], "little"):
        stop = position + 4 + (size & ~LZ4_STORED_FLAG)
        parts.append(frame[position:stop])
        position = stop + 4
    parts.append(LZ4_END_MARK)
    return b"".join(parts)


def _zstd_compress(data: Bytes, level: int | None, max_bytes: int) -> bytes:
    from cramjam import zstd

    packed = zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level)
    _check_packed(len(packed), max_bytes)
    return bytes(packed)


class _Parts:
    """The bytes that a compressor has written so far. Owner: the compressor."""

    __slots__ = ("_max_bytes", "_parts", "_size")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, *parts: bytes) -> None:
        self._parts += parts
        self._size += sum(map(len, parts))
        _check_packed(self._size, self._max_bytes)

    def joined(self) -> bytes:
        return b"".join(self._parts)


def _check_packed(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise RecordTooLargeError(f"records of one batch take {size} bytes or more compressed. At most {max_bytes} are allowed")


_COMPRESSORS: Final[dict[CompressionType, Callable[[Bytes, int | None, int], bytes]]] = {
    CompressionType.NONE: _copy,
    CompressionType.GZIP: _gzip_compress,
    CompressionType.SNAPPY: _snappy_compress,
    CompressionType.LZ4: _lz4_compress,
    CompressionType.ZSTD: _zstd_compress,
}
