"""Partition directories written by triolog's log in each way that shapes their files: codecs, clocks, what rolls a segment.

Every function of `WRITERS` fills a new directory, closes the log and answers how many data records it holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from triolog.protocol.limits import INT32_MAX
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import CompressionType
from triolog.server.config import LogConfig
from triolog.server.storage.disk.paths import segment_file

from tests.support.logs import START_MS, DrivenLog, open_driven
from tests.support.record_batches import RecordTuple

SEED: Final = 4
DENSE_INDEXES: Final = {"index.interval.bytes": "100", "segment.index.bytes": "4096"}

Writer = Callable[[Path], int]


def mixed_records(rng: random.Random, count: int, timestamp: int) -> list[RecordTuple]:
    """Records with and without keys, values and headers, of sizes around the varint boundaries, out of time order."""
    records: list[RecordTuple] = []
    for number in range(count):
        key = rng.choice((None, b"", b"key-%d" % (number % 7)))
        value = rng.choice((None, b"", b"v" * rng.choice((1, 60, 63, 64, 500)), rng.randbytes(100)))
        headers = rng.choice(((), (("h", b"1"),), (("empty", None), ("h", b""))))
        records.append((timestamp + rng.randrange(-500, 1000), key, value, headers))
    return records


def open_new(directory: Path, **config: str) -> DrivenLog:
    overrides = {**DENSE_INDEXES, **{key.replace("_", "."): value for key, value in config.items()}}
    return open_driven(directory, config=LogConfig().overlay(overrides))


def append_mixed(log: DrivenLog, batches: int, *codecs: CompressionType) -> int:
    """Batches of 1 to 30 records, each with the next codec, one second after the other. Answers the number of records."""
    rng, written = random.Random(SEED), 0
    for number in range(batches):
        records = mixed_records(rng, rng.randint(1, 30), log.clock())
        log.append(build_batch(records, compression_type=(codecs or (CompressionType.NONE,))[number % max(len(codecs), 1)]))
        log.clock.advance(1000)
        written += len(records)
    return written


def _of_codec(codec: CompressionType) -> Writer:
    def write(directory: Path) -> int:
        log = open_new(directory, segment_bytes="40000")
        written = append_mixed(log, 40, codec)
        log.close()
        return written

    return write


def _written_with(*codecs: CompressionType, **config: str) -> Writer:
    def write(directory: Path) -> int:
        log = open_new(directory, **config)
        written = append_mixed(log, 60, *codecs)
        log.close()
        return written

    return write


def _in_groups(directory: Path) -> int:
    """Many batches in one write: index entries are per append, not per batch."""
    log = open_new(directory, segment_bytes="60000")
    for number in range(30):
        log.append_group([log.prepare(build_batch([(START_MS + number, None, b"x" * 90, ())])) for _ in range(number + 1)])
    log.close()
    return sum(range(31))


def _reopened(directory: Path) -> int:
    """A clean stop and a crash in the middle of segments."""
    log = open_new(directory, segment_bytes="30000")
    written = append_mixed(log, 20)
    log.close()
    log = log.reopen(was_clean=True)
    written += append_mixed(log, 20)
    log = log.reopen(was_clean=False)
    written += append_mixed(log, 20)
    log.close()
    return written


def _offset_overflow(directory: Path) -> int:
    """The next offset does not fit behind the base offset of the segment, as after a long compaction."""
    directory.mkdir()
    near_the_end = INT32_MAX - 1
    batches = [build_batch([(START_MS, None, b"x", ())], base_offset=offset) for offset in (0, near_the_end)]
    (directory / segment_file(0, ".log")).write_bytes(b"".join(batches))
    log = open_driven(directory, config=LogConfig().overlay(DENSE_INDEXES), was_clean=False)
    for _ in range(3):
        log.append(build_batch([(START_MS, None, b"x", ())]))
    log.close()
    return 5


def _empty(directory: Path) -> int:
    open_new(directory).close()
    return 0


WRITERS: Final[Mapping[str, Writer]] = {
    **{f"codec-{codec.name.lower()}": _of_codec(codec) for codec in CompressionType},
    "all-codecs": _written_with(*CompressionType),
    "recompressed": _written_with(*CompressionType, compression_type="zstd", segment_bytes="30000"),
    "append-time": _written_with(*CompressionType, message_timestamp_type="LogAppendTime", segment_bytes="30000"),
    "rolled-by-size": _written_with(segment_bytes="20000"),
    "rolled-by-time": _written_with(segment_ms="4000"),
    "rolled-by-full-offset-index": _written_with(segment_index_bytes="24"),
    "rolled-by-full-time-index": _written_with(segment_index_bytes="60", index_interval_bytes="0"),
    "rolled-by-offset-overflow": _offset_overflow,
    "entry-for-every-append": _written_with(index_interval_bytes="0"),
    "preallocated": _written_with(preallocate="true", segment_bytes="30000"),
    "in-groups": _in_groups,
    "reopened": _reopened,
    "empty": _empty,
}


def files_of(directory: Path, *suffixes: str) -> list[Path]:
    """The files of a partition with these suffixes, logs and indexes by default, by name."""
    wanted = suffixes or (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return sorted(path for path in directory.iterdir() if path.suffix in wanted)
