"""Unpack the records of a batch, which may be large, without blocking other threads; and the errors of bad records.

No claim is trusted: `framing` says, in steps, what the bytes at hand can become at most, and the output is that, or the limit
if it is smaller. Then the records are unpacked, for which the codecs release the GIL. More than LARGE_BYTES go into anonymous
memory of their own: zeroing or copying 64 MiB would hold the GIL for 50 ms, and memory that the codec never reaches costs
nothing. It reads like bytes, slices of it are bytes; `drop` frees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from mmap import mmap
from typing import Final, NamedTuple, NoReturn, cast

from ..errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError
from ..limits import INT64_MAX, KIB, MIB
from ..types import Bytes, CompressionType
from .batch import COMPRESSION_MASK, RECORD_BATCH_OVERHEAD, BatchHeader
from .compression import GZIP_WINDOW_BITS
from .framing import lz4_frame_limit, xerial_blocks, zstd_frames_limit
from .steps import STEPS_PER_PAUSE, Steps, last
from .varint import decode_varint

LARGE_BYTES: Final = MIB
FEW_BYTES: Final = 128 * KIB
"""A block of zstd, which says no less where its size is not stated. gzip, the slowest, takes 0.25 ms for them."""
_GZIP_MAX_RATIO: Final = 1032
_GZIP_SIZE_BYTES: Final = 4
_GZIP_INPUT_BYTES: Final = 64 * KIB
_GZIP_NEXT_BYTES: Final = 4 * KIB
"""Of each member but the first: zlib copies what it was given and lies behind a member."""
_GZIP_OUTPUT_BYTES: Final = 256 * KIB
"""zlib's output is copied into its place with the GIL: 0.1 ms."""
PIECES_PER_PAUSE: Final = STEPS_PER_PAUSE

Blocks = list[tuple[memoryview, int]]
Output = bytearray | mmap


class Packed(NamedTuple):
    """The compressed records of a batch and what is known about them."""

    compression_type: CompressionType
    data: memoryview
    most_bytes: int
    """Of what it can become."""
    likely_bytes: int
    """What it becomes if it says the truth: a gzip file ends with its size."""
    blocks: Blocks
    """Of snappy."""


def measured(compression_type: CompressionType, data: memoryview) -> Steps[Packed]:
    """Look at the container only. Raises CorruptRecordError."""
    most_bytes = 0
    blocks: Blocks = []
    if compression_type == CompressionType.SNAPPY:
        for block in xerial_blocks(data):
            blocks.append(block)
            most_bytes += block[1]
            if not len(blocks) % STEPS_PER_PAUSE:
                yield None
    elif compression_type == CompressionType.GZIP:
        most_bytes = _GZIP_MAX_RATIO * len(data)
        likely_bytes = int.from_bytes(data[-_GZIP_SIZE_BYTES:], "little")
        yield Packed(compression_type, data, most_bytes, min(most_bytes, likely_bytes), blocks)
        return
    else:
        measure = lz4_frame_limit if compression_type == CompressionType.LZ4 else zstd_frames_limit
        for limit in measure(data):
            if limit is None:
                yield None
            else:
                most_bytes = limit
    yield Packed(compression_type, data, most_bytes, most_bytes, blocks)


def unpack_at_once(packed: Packed, max_bytes: int) -> bytes | None:
    """The plain records if they are at most `max_bytes` in few pieces, else None, also where something is wrong. Raises
    CorruptRecordError."""
    if packed.compression_type == CompressionType.GZIP:
        return _gunzip_one(packed.data, max_bytes)
    if packed.most_bytes > max_bytes or len(packed.blocks) > STEPS_PER_PAUSE:
        return None
    output = bytearray(packed.most_bytes)
    size = last(_UNPACKERS[packed.compression_type](packed, output, max_bytes))
    return bytes(memoryview(output)[:size])


def unpack_few(compression_type: CompressionType, data: memoryview, max_bytes: int) -> bytes | None:
    """The plain records of a small batch, on the spot, if they are at most `max_bytes` and FEW_BYTES in few pieces; else None,
    also where something is wrong. Raises nothing."""
    max_bytes = min(max_bytes, FEW_BYTES)
    try:
        for packed in measured(compression_type, data):
            if packed is None or packed.likely_bytes > max_bytes:
                return None
            return unpack_at_once(packed, max_bytes)
    except CorruptRecordError:
        """Who asks in steps is told."""
    return None


def unpack(packed: Packed, max_bytes: int) -> Steps[bytes]:
    """The plain records; `decompress` says what is raised. Each step belongs into a thread: the codec may take long for it.
    There are steps only where the pieces are so many and small that the interpreter takes most of the time."""
    if packed.compression_type == CompressionType.SNAPPY and packed.most_bytes > max_bytes:
        raise too_large(packed.most_bytes, max_bytes)
    output = _memory(min(packed.most_bytes, max_bytes) or 1)
    size = 0
    try:
        for found in _UNPACKERS[packed.compression_type](packed, output, max_bytes):
            if found is None:
                yield None
            else:
                size = found
        if size > max_bytes:  # no output is smaller than a byte
            raise too_large(size, max_bytes)
    except BaseException:
        output.close()
        raise
    if not size:
        output.close()
        yield b""
        return
    if size < len(output):
        output.resize(size)
    yield cast(bytes, output)


def decompress(compression_type: CompressionType, data: Bytes, *, max_bytes: int) -> bytes:
    """Decompress to at most `max_bytes`, on the spot.

    RecordTooLargeError when the data becomes, or in the worst case could become and then fails, more than that;
    CorruptRecordError when it is not what the codec writes.
    """
    view = memoryview(data)
    if compression_type == CompressionType.NONE:
        if len(view) > max_bytes:
            raise too_large(len(view), max_bytes)
        return bytes(view)
    if compression_type == CompressionType.GZIP:
        if not view:
            raise CorruptRecordError("gzip data of 0 bytes ends inside a member")
        found = _gunzip_one(view, max_bytes)
        if found is None:
            large = last(unpack(last(measured(compression_type, view)), max_bytes))
            found = large[:]
            if is_large(large):
                drop(large)
        return found
    if compression_type == CompressionType.SNAPPY:
        blocks = list(xerial_blocks(view))
        most_bytes = sum([size for _, size in blocks])
        if most_bytes > max_bytes:
            raise too_large(most_bytes, max_bytes)
        place = memoryview(bytearray(most_bytes))
        position = 0
        for block, size in blocks:
            _unsnap_one(block, place[position : position + size])
            position += size
        return bytes(place)
    measure = lz4_frame_limit if compression_type == CompressionType.LZ4 else zstd_frames_limit
    most_bytes = last(measure(view))
    output = bytearray(min(most_bytes, max_bytes))
    size = _decompress_frames(compression_type, view, most_bytes, output, max_bytes)
    return bytes(memoryview(output)[:size])


def too_large(size: int | None, max_bytes: int) -> RecordTooLargeError:
    stated = "more" if size is None else str(size)
    return RecordTooLargeError(f"records of one batch decompress to {stated}; at most {max_bytes} bytes are allowed")


def copied(data: memoryview) -> Steps[bytes]:
    """The bytes of `data` apart from it."""
    if len(data) <= LARGE_BYTES:
        yield bytes(data)
        return
    output = _memory(len(data))
    for start in range(0, len(data), LARGE_BYTES):
        output[start : start + LARGE_BYTES] = data[start : start + LARGE_BYTES]
        yield None
    yield cast(bytes, output)


def is_large(data: bytes) -> bool:
    """Return whether the caller has to call `drop`, at a point where no client waits: it takes 0.2 ms for each MiB."""
    return isinstance(data, mmap)


def drop(data: bytes) -> None:
    """Give large unpacked records back."""
    cast(mmap, data).close()


def _memory(size: int) -> mmap:
    try:
        return mmap(-1, size)
    except OSError as exc:
        raise MemoryError(f"{size} bytes for the records of a batch: {exc}") from exc


def _gunzip_one(data: memoryview, max_bytes: int) -> bytes | None:
    import zlib

    member = zlib.decompressobj(GZIP_WINDOW_BITS)
    try:
        found = member.decompress(data, max_bytes + 1)
    except zlib.error:
        return None
    return found if member.eof and not member.unused_data and len(found) <= max_bytes else None


def _gunzip(packed: Packed, output: Output, max_bytes: int) -> Steps[int]:
    import zlib

    data = packed.data
    position = size = members = 0
    while position < len(data):
        members += 1
        if not members % PIECES_PER_PAUSE:
            yield None
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        rest: bytes | memoryview = b""
        is_hungry = True
        while not member.eof:
            if is_hungry:
                rest = data[position : position + (_GZIP_INPUT_BYTES if members == 1 else _GZIP_NEXT_BYTES)]
                position += len(rest)
                if not rest:
                    raise CorruptRecordError(f"gzip data of {len(data)} bytes ends inside a member")
            try:
                chunk = member.decompress(rest, _GZIP_OUTPUT_BYTES)
            except zlib.error as exc:
                raise CorruptRecordError(f"gzip data of {len(data)} bytes: {exc}") from exc
            rest = member.unconsumed_tail
            is_hungry = not rest and len(chunk) < _GZIP_OUTPUT_BYTES
            if size + len(chunk) > max_bytes:
                raise too_large(None, max_bytes)
            output[size : size + len(chunk)] = chunk
            size += len(chunk)
        position -= len(member.unused_data)
    yield size


def _unsnap(packed: Packed, output: Output, max_bytes: int) -> Steps[int]:
    position = 0
    with memoryview(output) as view:
        for number, (block, block_size) in enumerate(packed.blocks, 1):
            if not number % PIECES_PER_PAUSE:
                yield None
            with view[position : position + block_size] as place:
                _unsnap_one(block, place)
            position += block_size
    yield position


def _unsnap_one(block: memoryview, place: memoryview) -> None:
    import cramjam

    try:
        cramjam.snappy.decompress_raw_into(block, place)
    except cramjam.DecompressionError as exc:
        raise CorruptRecordError(f"snappy block of {len(block)} bytes: {exc}") from exc


def _unpack_frames(packed: Packed, output: Output, max_bytes: int) -> Steps[int]:
    yield _decompress_frames(packed.compression_type, packed.data, packed.most_bytes, output, max_bytes)


def _decompress_frames(
    compression_type: CompressionType, data: memoryview, most_bytes: int, output: Output, max_bytes: int
) -> int:
    """Decompress what becomes at most `most_bytes` into an output of at most `max_bytes`."""
    import cramjam

    codec = cramjam.lz4 if compression_type == CompressionType.LZ4 else cramjam.zstd
    try:
        size: int = codec.decompress_into(data, output)
    except cramjam.DecompressionError as exc:
        if most_bytes > max_bytes:
            raise too_large(None, max_bytes) from exc
        raise CorruptRecordError(f"compressed data of {len(data)} bytes: {exc}") from exc
    return size


_UNPACKERS: Final[dict[CompressionType, Callable[[Packed, Output, int], Steps[int]]]] = {
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unsnap,
    CompressionType.LZ4: _unpack_frames,
    CompressionType.ZSTD: _unpack_frames,
}


INT64_MIN: Final = -INT64_MAX - 1


def records_data(batch: Bytes, header: BatchHeader, max_bytes: int) -> bytes:
    # One copy into bytes: reading a memoryview byte by byte costs more than copying it.
    if header.records_count < 0:
        raise InvalidRecordError(f"batch at offset {header.base_offset} counts {header.records_count} records")
    records = memoryview(batch)[RECORD_BATCH_OVERHEAD:]
    if header.records_count == 0:
        return b""
    if not header.attributes & COMPRESSION_MASK:
        return bytes(records)
    return decompress(header.compression_type, records, max_bytes=max_bytes)


def skip_headers(data: bytes, position: int, end: int) -> int:
    count, position = read_headers_count(data, position, end)
    for _ in range(count):
        key_length, position = decode_varint(data, position)
        if key_length < 0:
            raise InvalidRecordError(f"a header key before position {position} is null")
        value_length, position = decode_varint(data, position + key_length)
        position += max(value_length, 0)
    return position


def skip_many_headers(data: bytes, position: int, count: int) -> Iterator[int]:
    """The positions that it pauses at among `count` headers from `position` on; the last one lies behind them."""
    while count > 0:
        some = min(count, STEPS_PER_PAUSE)
        count -= some
        for _ in range(some):
            key_length, position = decode_varint(data, position)
            if key_length < 0:
                raise InvalidRecordError(f"a header key before position {position} is null")
            value_length, position = decode_varint(data, position + key_length)
            position += max(value_length, 0)
        yield position


def read_headers_count(data: bytes, position: int, end: int) -> tuple[int, int]:
    count, position = decode_varint(data, position)
    if not 0 <= count <= end - position:
        raise InvalidRecordError(f"header count {count} before position {position}, of a record that ends at {end}")
    return count, position


def raise_length(header: BatchHeader, index: int, missing: int) -> NoReturn:
    raise InvalidRecordError(
        f"record {index} of the batch at offset {header.base_offset}: its length and its fields differ by {missing} bytes"
    )


def raise_offset_delta(header: BatchHeader, index: int, offset_delta: int) -> NoReturn:
    raise InvalidRecordError(
        f"record {index} of {header.records_count} in the batch at offset {header.base_offset} has offset delta "
        f"{offset_delta}; last offset delta is {header.last_offset_delta}"
    )


def raise_timestamp(header: BatchHeader, delta: int) -> NoReturn:
    raise InvalidRecordError(
        f"batch at offset {header.base_offset}: base timestamp {header.base_timestamp} and delta {delta} exceed 64 bits"
    )


def raise_underflow(header: BatchHeader, index: int, data: bytes) -> NoReturn:
    raise InvalidRecordError(
        f"batch at offset {header.base_offset}: its {len(data)} bytes of records end inside record {index} of "
        f"{header.records_count}"
    ) from None


def raise_consumption(header: BatchHeader, position: int, data: bytes) -> NoReturn:
    raise InvalidRecordError(
        f"batch at offset {header.base_offset}: its {header.records_count} records take {position} of {len(data)} bytes"
    )
