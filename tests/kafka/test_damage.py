"""One flipped bit in a log whose server was killed: how many of its records Apache Kafka still has, and how many triolog.

`python -m tests.kafka.test_damage --flips 500` prints the table of docs/benchmarks. Both sides open the same files, as a
broker does after an unclean stop (Kafka: UnifiedLog and LogLoader on Kafka's own jars), and everything is then read by a reader
that checks CRCs and goes past every error. A record counts when it is at the offset where it was written.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import attrs
import pytest
from click.testing import CliRunner
from triolog.protocol.errors import RequestError
from triolog.protocol.records.batch import crc32c, iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.server.config import LogConfig
from triolog.server.storage.errors import StorageError
from triolog.server.storage.lookups import fetch
from triolog.tools.cli.main import main

from tests.kafka.written_logs import files_of
from tests.support.counts import counts
from tests.support.kafka_jars import KafkaCalls, class_path
from tests.support.logs import START_MS, DrivenLog, open_driven

RECORDS: Final = 20_000
BATCH_RECORDS: Final = 10
VALUE_BYTES: Final = 100
READ_BYTES: Final = 1 << 20
SEGMENT_BYTES: Final = 260_000
CRC_START: Final = 21


@attrs.frozen(kw_only=True)
class Layout:
    """How the log is cut up, and how much of it the recovery point promises."""

    name: str
    config: dict[str, str]
    flushed_segments: int


LAYOUTS: Final = (
    Layout(name="one segment, nothing flushed", config={}, flushed_segments=0),
    Layout(name="many segments, half of them flushed", config={"segment.bytes": str(SEGMENT_BYTES)}, flushed_segments=5),
)


class Kept(NamedTuple):
    """Right records after one flip; None: the partition is not served."""

    file: str
    bit: int
    kafka: int | None
    triolog: int | None
    repaired: int | None
    """By triolog after `triolog repair`, which is run where more than one batch is out of reach."""


def write_log(directory: Path, layout: Layout) -> int:
    """A log of numbered records that is never closed, as SIGKILL leaves it. Answers the recovery point."""
    log = open_driven(directory, config=LogConfig().overlay({"segment.index.bytes": "65536", **layout.config}))
    for first in range(0, RECORDS, BATCH_RECORDS):
        numbers = range(first, first + BATCH_RECORDS)
        log.append(build_batch([(START_MS + number, None, b"%010d".ljust(VALUE_BYTES) % number, ()) for number in numbers]))
    bases = [segment.base_offset for segment in log.log.segments]
    return bases[layout.flushed_segments]


def flips(directory: Path, recovery_point: int, count: int, seed: int, calls: KafkaCalls, scratch: Path) -> Iterator[Kept]:
    """Flip one random bit in a copy, `count` times, and let both open it."""
    rng = random.Random(seed)
    logs = files_of(directory, ".log")
    sizes = [path.stat().st_size for path in logs]
    for _ in range(count):
        path = rng.choices(logs, sizes)[0]
        bit = rng.randrange(path.stat().st_size * 8)
        with _flipped(path, bit, scratch / "kafka-0") as copy:
            kafka = calls.salvage(copy, recovery_point=recovery_point)
        with _flipped(path, bit, scratch / "triolog-0") as copy:
            repaired = triolog = salvage(copy, recovery_point)
        if triolog is None or triolog < RECORDS - BATCH_RECORDS:
            with _flipped(path, bit, scratch / "triolog-0") as copy:
                CliRunner().invoke(main, ["repair", str(copy)])
                repaired = salvage(copy, recovery_point)
        yield Kept(path.name, bit, kafka, triolog, repaired)


@contextmanager
def _flipped(path: Path, bit: int, copy: Path) -> Iterator[Path]:
    """A copy of the file's directory in which one bit is another, for the time of the block."""
    shutil.copytree(path.parent, copy)
    try:
        with (copy / path.name).open("r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ (1 << bit % 8)]))
        yield copy
    finally:
        shutil.rmtree(copy)


def salvage(directory: Path, recovery_point: int) -> int | None:
    """Right records that a reader of triolog gets, past what recovery took out; None when the log is not opened."""
    try:
        log = open_driven(directory, was_clean=False, recovery_point=recovery_point)
    except (StorageError, RequestError):
        return None
    offset, right = log.log.log_start_offset, 0
    while offset < log.log.log_end_offset:
        found = _right_records(log, offset)
        right += len(found)
        offset = max(found, default=offset) + 1
    log.close_files()
    return right


def _right_records(log: DrivenLog, offset: int) -> list[int]:
    """Offsets of the right records of one fetch; none when it fails."""
    right: list[int] = []
    try:
        fetched = log.run(fetch.fetch_batches(log.log.snapshot(), offset, READ_BYTES, min_one_batch=True, skip_gaps=True))
        for header, batch in iter_batches(fetched.records):
            if crc32c(batch[CRC_START:]) == header.crc:
                records = ((each.offset, int(bytes(each.value or b"")[:10])) for each in iter_records(batch, header))
                right += [found for found, number in records if found == number and found >= offset]
    except (RequestError, StorageError):
        return right
    return right


def row(name: str, found: Sequence[int | None]) -> str:
    kept = [each or 0 for each in found]
    lost = [RECORDS - each for each in kept]
    at_most_one_batch = sum(each <= BATCH_RECORDS for each in lost)
    return (
        f"| {name} | {statistics.mean(kept):,.0f} | {statistics.median(kept):,.0f} | {min(kept):,} | "
        f"{at_most_one_batch} of {len(kept)} | {sum(each is None for each in found)} |"
    )


def print_table() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=500, help="single-bit flips for each layout")
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    logging.disable()  # a line for each damage
    lines = []
    with tempfile.TemporaryDirectory() as folder, KafkaCalls.start(class_path()) as calls:
        for layout in LAYOUTS:
            directory = Path(folder, "log-0")
            recovery_point = write_log(directory, layout)
            found = list(flips(directory, recovery_point, arguments.flips, arguments.seed, calls, Path(folder)))
            lines += [f"\n**{layout.name}** ({len(files_of(directory, '.log'))} `.log` files)\n"]
            lines += [
                f"| {RECORDS:,} records, 1 flipped bit | kept, mean | median | worst | at most one batch lost | not served |"
            ]
            lines += ["|---|---:|---:|---:|---:|---:|"]
            lines += [row("Apache Kafka 4.1.0", [each.kafka for each in found])]
            lines += [row("triolog", [each.triolog for each in found])]
            lines += [row("triolog, then `triolog repair`", [each.repaired for each in found])]
            shutil.rmtree(directory)
    print("\n".join(lines))  # noqa: T201 - this is what it is for


if __name__ == "__main__":
    print_table()


SEED: Final = 4


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.name for layout in LAYOUTS])
def test_a_flipped_bit_costs_triolog_one_batch_and_never_more_than_kafka(
    kafka: KafkaCalls, layout: Layout, tmp_path: Path
) -> None:
    directory = tmp_path / "log-0"
    recovery_point = write_log(directory, layout)
    for kept in flips(directory, recovery_point, counts(50), SEED, kafka, tmp_path):
        assert kept.triolog is not None, kept
        assert kept.repaired is not None, kept
        assert kept.repaired >= RECORDS - BATCH_RECORDS, kept
        assert kept.triolog >= (kept.kafka or 0), kept


def test_without_damage_both_have_everything(kafka: KafkaCalls, tmp_path: Path) -> None:
    directory = tmp_path / "log-0"
    recovery_point = write_log(directory, LAYOUTS[1])
    assert salvage(directory, recovery_point) == RECORDS
    assert kafka.salvage(directory, recovery_point=recovery_point) == RECORDS
