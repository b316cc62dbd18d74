"""The codecs: Kafka's containers exactly, everything that Kafka's clients may write, and never more than the limit."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
import zlib
from typing import Final

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.errors import CorruptRecordError, RecordTooLargeError
from triolog.protocol.limits import MIB
from triolog.protocol.records.compression import compress
from triolog.protocol.records.unpacking import decompress
from triolog.protocol.types import CompressionType

from tests.support.record_batches import damaged

GZIP, SNAPPY, LZ4, ZSTD = (CompressionType(number) for number in range(1, 5))
CODECS: Final = (GZIP, SNAPPY, LZ4, ZSTD)
LIMIT: Final = MIB

XERIAL: Final = bytes.fromhex("82534e4150505900 00000001 00000001")
LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
TEXT: Final = b"".join(b'{"user":%d,"name":"someone"}' % number for number in range(300))
# A run that every codec shortens, noise that none does, and enough of it for several blocks.
NOISE: Final = zlib.compress(TEXT, 9, -15) * 40
WORDS: Final = b" ".join(b"%d" % word for word in random.Random(4).choices(range(1000), k=5000))
SAMPLES: Final = (b"x", TEXT, NOISE, TEXT * 40, bytes(200_000), NOISE + bytes(70_000))


def lz4_frame(*blocks: bytes, header: bytes = LZ4_HEADER) -> bytes:
    return header + b"".join(blocks) + bytes(4)


def lz4_stored(data: bytes) -> bytes:
    return (len(data) | 0x80000000).to_bytes(4, "little") + data


def lz4_block(data: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return len(block).to_bytes(4, "little") + block


def xerial_block(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return len(block).to_bytes(4, "big") + block


def zstd_runs(count: int, size: int = 128 * 1024) -> bytes:
    """A frame without a content size, window 32 MiB, of `count` blocks that repeat one byte."""
    block = size << 3 | 2
    return bytes.fromhex("28b52ffd 00 78") + (block.to_bytes(3, "little") + b"x") * count + b"\x01\x00\x00"


BOMBS: Final = {
    GZIP: zlib.compress(bytes(MIB), 9, 31) * 256,
    SNAPPY: XERIAL + xerial_block(bytes(64 * 1024)) * 4096,
    LZ4: lz4_frame(lz4_block(bytes(64 * 1024)) * 4096),
    ZSTD: zstd_runs(2048),
}
"""256 MiB each."""


@given(st.sampled_from(CompressionType), st.one_of(st.binary(max_size=2000), st.sampled_from(SAMPLES)))
@example(SNAPPY, b"")
@example(LZ4, b"")
def test_what_is_compressed_is_decompressed(compression_type: CompressionType, data: bytes) -> None:
    for given_as in (data, bytearray(data), memoryview(data)):
        compressed = compress(compression_type, given_as)
        assert decompress(compression_type, memoryview(compressed), max_bytes=len(data)) == data


@pytest.mark.parametrize("compression_type", CompressionType)
@pytest.mark.parametrize("data", SAMPLES)
def test_one_byte_above_the_limit_is_too_large(compression_type: CompressionType, data: bytes) -> None:
    compressed = compress(compression_type, data)
    assert decompress(compression_type, compressed, max_bytes=len(data)) == data
    with pytest.raises(RecordTooLargeError, match=f" {len(data) - 1} bytes"):
        decompress(compression_type, compressed, max_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_legal_level_gives_readable_data(codec: CompressionType) -> None:
    levels = {GZIP: (-1, 1, 9), SNAPPY: (), LZ4: (1, 2, 3, 9, 12, 17), ZSTD: (-131072, -1, 1, 3, 19, 22)}[codec]
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"),
    [(GZIP, 10), (GZIP, -2), (SNAPPY, 1), (LZ4, 0), (LZ4, 18), (ZSTD, 23), (ZSTD, -131073), (CompressionType.NONE, 1)],
)
def test_any_other_level_is_refused(codec: CompressionType, level: int) -> None:
    with pytest.raises(ValueError, match=f"no compression level {level}"):
        compress(codec, TEXT, level)


def test_higher_levels_are_handed_to_the_codec() -> None:
    for codec, low, high in ((GZIP, 1, 9), (LZ4, 9, 12), (ZSTD, 1, 19)):
        assert len(compress(codec, WORDS, high)) < len(compress(codec, WORDS, low))
    assert compress(LZ4, TEXT, 9) == compress(LZ4, TEXT)


@pytest.mark.parametrize("data", SAMPLES)
def test_snappy_is_written_as_xerial_blocks_of_32_kib(data: bytes) -> None:
    compressed = compress(SNAPPY, data)
    blocks = [data[start : start + 32768] for start in range(0, len(data), 32768)]
    assert compressed == XERIAL + b"".join(map(xerial_block, blocks))


@pytest.mark.parametrize("level", [None, 1, 12])
@pytest.mark.parametrize("data", SAMPLES)
def test_lz4_is_written_as_independent_blocks_of_64_kib_without_checksums(data: bytes, level: int | None) -> None:
    compressed = compress(LZ4, data, level)
    assert compressed.startswith(LZ4_HEADER)
    position, written = len(LZ4_HEADER), 0
    while size := int.from_bytes(compressed[position : position + 4], "little"):
        expected = data[written : written + 65536]
        block = compressed[position + 4 : position + 4 + (size & 0x7FFFFFFF)]
        if size & 0x80000000:
            assert block == expected
        else:
            assert len(block) < len(expected)
            assert bytes(cramjam.lz4.decompress_block(block, output_len=len(expected))) == expected
        position += 4 + len(block)
        written += len(expected)
    assert (position + 4, written) == (len(compressed), len(data))


def test_gzip_and_zstd_are_read_by_other_implementations() -> None:
    assert zlib.decompress(compress(GZIP, TEXT), 31) == TEXT
    assert bytes(cramjam.gzip.decompress(compress(GZIP, TEXT))) == TEXT
    assert bytes(cramjam.zstd.decompress(compress(ZSTD, TEXT))) == TEXT


def test_several_members_streams_or_frames_are_read_as_one() -> None:
    members = compress(GZIP, TEXT) + compress(GZIP, b"") + compress(GZIP, NOISE)
    assert decompress(GZIP, members, max_bytes=LIMIT) == TEXT + NOISE
    streams = compress(SNAPPY, TEXT) + compress(SNAPPY, NOISE)
    assert decompress(SNAPPY, streams, max_bytes=LIMIT) == TEXT + NOISE
    frames = compress(ZSTD, TEXT) + bytes.fromhex("5f2a4d18 03000000 616263") + zstd_runs(2, 5) + compress(ZSTD, NOISE)
    assert decompress(ZSTD, frames, max_bytes=LIMIT) == TEXT + b"x" * 10 + NOISE


def test_the_time_for_gzip_members_grows_with_their_number() -> None:
    """Not with its square: a megabyte holds 50,000 empty ones, which took a second of the thread that serves."""

    def seconds(count: int) -> float:
        members = compress(GZIP, b"") * count
        times = []
        for _ in range(3):
            begin = time.process_time()
            assert decompress(GZIP, members, max_bytes=LIMIT) == b""
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(24_000) < 8 * seconds(6_000)


def test_snappy_without_a_container_is_one_raw_block() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("content_checksum", [False, True])
def test_lz4_frames_with_checksums_are_read(content_checksum: bool) -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=content_checksum, block_linked=False)
    compressor.compress(NOISE + TEXT)
    frame = bytes(compressor.finish())
    assert frame[4] == (0x74 if content_checksum else 0x70)
    assert decompress(LZ4, frame, max_bytes=LIMIT) == NOISE + TEXT


@pytest.mark.parametrize(
    ("header", "size"),
    [
        pytest.param("04224d18 60 50 fb", 256 * 1024, id="blocks-of-256-kib"),
        pytest.param("04224d18 60 60 51", MIB, id="blocks-of-1-mib"),
        pytest.param("04224d18 60 70 73", 4 * MIB, id="blocks-of-4-mib"),
        pytest.param("04224d18 68 40 0500000000000000 61", 5, id="content-size"),
    ],
)
def test_lz4_frames_with_larger_blocks_or_a_content_size_are_read(header: str, size: int) -> None:
    for block in (lz4_block(bytes(size)), lz4_stored(bytes(size))):
        frame = lz4_frame(block, header=bytes.fromhex(header))
        assert decompress(LZ4, frame, max_bytes=size) == bytes(size)


@pytest.mark.parametrize("codec", CODECS)
def test_data_that_is_cut_off_is_corrupt(codec: CompressionType) -> None:
    compressed = compress(codec, TEXT)
    whole_stream = {len(XERIAL)} if codec == SNAPPY else set()
    for kept in set(range(len(compressed))) - whole_stream:
        with pytest.raises(CorruptRecordError):
            decompress(codec, compressed[:kept], max_bytes=LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("tail", [b"\x00", b"garbage", bytes(16)])
def test_data_behind_the_end_is_corrupt(codec: CompressionType, tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, compress(codec, TEXT) + tail, max_bytes=LIMIT)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        pytest.param(SNAPPY, XERIAL[:8] + bytes.fromhex("00000000 00000000"), id="xerial-version-0"),
        pytest.param(SNAPPY, XERIAL + bytes.fromhex("ffffffff 00"), id="xerial-negative-length"),
        pytest.param(SNAPPY, XERIAL + bytes.fromhex("7fffffff 00"), id="xerial-length-beyond-the-data"),
        pytest.param(SNAPPY, XERIAL + bytes.fromhex("00000000"), id="xerial-block-of-nothing"),
        pytest.param(SNAPPY, XERIAL + bytes.fromhex("00000006 ffffffff0f 00"), id="xerial-claims-4-gib"),
        pytest.param(SNAPPY, bytes.fromhex("ffffffff0f 00 61"), id="raw-claims-4-gib"),
        pytest.param(SNAPPY, bytes.fromhex("ffffffffff ff"), id="raw-length-without-end"),
        pytest.param(SNAPPY, bytes.fromhex("05 00 61"), id="raw-claims-more-than-it-has"),
        pytest.param(SNAPPY, bytes.fromhex("01 04 6161"), id="raw-has-more-than-it-claims"),
        pytest.param(LZ4, lz4_frame(lz4_stored(b"a"), header=bytes.fromhex("04224d18604083")), id="lz4-header-check"),
        pytest.param(LZ4, lz4_frame(lz4_stored(b"a"), header=bytes.fromhex("05224d18604082")), id="lz4-magic"),
        pytest.param(LZ4, bytes(cramjam.lz4.compress(TEXT)), id="lz4-dependent-blocks"),
        pytest.param(LZ4, lz4_frame(header=bytes.fromhex("04224d18a04082")), id="lz4-version-2"),
        pytest.param(LZ4, lz4_frame(header=bytes.fromhex("04224d18614082")), id="lz4-dictionary"),
        pytest.param(LZ4, lz4_frame(header=bytes.fromhex("04224d18603082")), id="lz4-block-size-code-3"),
        pytest.param(LZ4, lz4_frame(header=bytes.fromhex("04224d1860c082")), id="lz4-reserved-bit"),
        pytest.param(LZ4, lz4_frame(lz4_stored(bytes(65537))), id="lz4-block-too-large"),
        pytest.param(LZ4, lz4_frame(lz4_block(bytes(65537))), id="lz4-block-becomes-too-large"),
        pytest.param(LZ4, lz4_frame(bytes.fromhex("ffffff7f 00")), id="lz4-claims-2-gib"),
        pytest.param(LZ4, bytes.fromhex("04224d18705084 01000080 61 00000000 00000000"), id="lz4-block-checksum"),
        pytest.param(ZSTD, bytes.fromhex("28b52ffd 08 00 010000"), id="zstd-reserved-bit"),
        pytest.param(ZSTD, bytes.fromhex("28b52ffd 00 58 070000"), id="zstd-reserved-block-type"),
        pytest.param(ZSTD, bytes.fromhex("28b52ffd 00 ff 010000"), id="zstd-window-of-3-5-tib"),
        pytest.param(ZSTD, bytes.fromhex("28b52ffd 00 58 fbffff 61"), id="zstd-run-above-128-kib"),
        pytest.param(ZSTD, bytes.fromhex("28b52ffd e0 ffffffffffffffff 0b0000 61"), id="zstd-claims-16-eib"),
        pytest.param(ZSTD, bytes.fromhex("5f2a4d18 ffffffff 00"), id="zstd-skips-4-gib"),
        pytest.param(GZIP, zlib.compress(TEXT, 6, -15), id="deflate-without-gzip"),
        pytest.param(GZIP, zlib.compress(TEXT, 6, 15), id="zlib-instead-of-gzip"),
        pytest.param(GZIP, compress(GZIP, TEXT)[:-8] + bytes(8), id="gzip-wrong-crc"),
    ],
)
def test_malformed_data_is_corrupt(codec: CompressionType, data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, data, max_bytes=LIMIT)


RSS_SCRIPT: Final = """
import resource, sys
from triolog.protocol.errors import RecordTooLargeError
from triolog.protocol.records.compression import compress
from triolog.protocol.records.unpacking import decompress
from triolog.protocol.types import CompressionType

codec = CompressionType(int(sys.argv[1]))
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, b"warm"), max_bytes=4)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, max_bytes=1 << 20)
except RecordTooLargeError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_does_not_grow_the_process(codec: CompressionType) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", RSS_SCRIPT, str(int(codec))], input=BOMBS[codec], capture_output=True, check=True
    )
    with pytest.raises(RecordTooLargeError):
        decompress(codec, BOMBS[codec], max_bytes=LIMIT)
    grown_kib = int(finished.stdout)
    assert grown_kib < 16 * 1024, f"{codec.name}: grew by {grown_kib} KiB for a limit of 1 MiB"


@given(st.sampled_from(CODECS), st.data(), st.integers(0, 20_000))
def test_any_bytes_are_decompressed_in_the_limit_or_fail(codec: CompressionType, data: st.DataObject, max_bytes: int) -> None:
    original = data.draw(st.sampled_from((TEXT, NOISE, b"x", bytes(1000))))
    compressed = data.draw(st.one_of(damaged(compress(codec, original)), st.binary(max_size=100)))
    with contextlib.suppress(CorruptRecordError, RecordTooLargeError):
        assert len(decompress(codec, compressed, max_bytes=max_bytes)) <= max_bytes


def test_codec_libraries_are_imported_when_they_are_needed() -> None:
    script = (
        "import sys\n"
        "from triolog.protocol.records import batch, builder, compression, record\n"
        "records = list(record.iter_records(builder.build_batch([(1, None, b'v', ())])))\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('cramjam', 'lz4', 'zstandard')])\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert finished.stdout.strip() == "[]"
