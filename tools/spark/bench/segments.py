"""How many bytes reads of segment files take, whole and 1% of the time: `python -m triolog.tools.spark.bench.segments`.

Counted are the bytes of all read calls of this process (`rchar` of /proc/self/io), those of planning and of the indexes among
them, whether they come from the device or from the page cache. Spark is not there: what its tasks do is done in one process.
Records have a value of 100 bytes, batches 100 records, timestamps are out of order by up to 50 records. The targets: a window
of 1% reads at most 2% of the bytes, and 20 times fewer than the whole does.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import click

from ....protocol.limits import MIB
from ....protocol.records.batch import parse_header, stamp
from ....protocol.records.columnar.encode import Encoding, encode_batches
from ....server.config import LogConfig
from ....server.offline.repair import reindex
from ....server.storage.directory.inventory import read_partition
from ....server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, encode_clean_shutdown
from ....server.storage.producers.producer_snapshots import encode_snapshot, snapshot_path
from ....server.storage.producers.producer_state import ProducerState
from ...segments.segment_bytes import FILES
from ..segments.segments_options import SegmentOptions
from ..segments.segments_source import SegmentsReader

TOPIC: Final = "bench"
START_MS: Final = 1_700_000_000_000
VALUE_BYTES: Final = 100
BATCH_RECORDS: Final = 100
DISORDER: Final = 50
COLUMNS: Final = ("key", "value", "offset", "timestamp")
ROWS: Final = 50_000
MOST_SHARE: Final = 0.02
LEAST_RATIO: Final = 20.0


@attrs.frozen
class ScanFigures:
    """What one read took."""

    records: int
    bytes_read: int
    cpu_s: float
    wall_s: float


def write_topic(directory: Path, size_bytes: int, segment_bytes: int) -> tuple[int, int]:
    """One partition of about this size, a record for each ms; answers its bytes and records."""
    import pyarrow as pa

    draw = random.Random(1)
    values = pa.array([draw.randbytes(VALUE_BYTES) for _ in range(ROWS)], pa.binary())
    keys = pa.array([row.to_bytes(8, "big") for row in range(ROWS)], pa.binary())
    jitter = [draw.randrange(DISORDER) for _ in range(ROWS)]
    partition = directory / f"{TOPIC}-0"
    partition.mkdir()
    written = offset = 0
    segment = b""
    base_offset = 0
    while written < size_bytes:
        times = pa.array([START_MS + offset + row + jitter[row] for row in range(ROWS)], pa.int64())
        rows = pa.record_batch({"key": keys, "value": values, "timestamp": times})
        parts = []
        for encoded in encode_batches(rows, Encoding(batch_records=BATCH_RECORDS)):
            parts.append(stamp(offset, parse_header(encoded.data), 0) + encoded.data[16:])
            offset += encoded.records
        segment += b"".join(parts)
        if len(segment) >= segment_bytes or written + len(segment) >= size_bytes:
            (partition / f"{base_offset:020d}.log").write_bytes(segment)
            written, segment, base_offset = written + len(segment), b"", offset
    list(reindex(FILES, read_partition(FILES, str(partition)), LogConfig(), ProducerState(0), lambda size: None))
    # As a stop in order leaves them.
    Path(snapshot_path(str(partition), offset)).write_bytes(encode_snapshot([]))
    (directory / CLEAN_SHUTDOWN_FILE).write_bytes(encode_clean_shutdown())
    return written, offset


def measure_scan(directory: Path, **options: str) -> ScanFigures:
    """Plan and read, as driver and tasks would."""
    made = SegmentsReader(SegmentOptions.from_options({"path": str(directory), **options}), COLUMNS)
    bytes_before, cpu_before, wall_before = _bytes_read(), time.process_time(), time.monotonic()
    records = sum(batch.num_rows for task in made.partitions() for batch in made.read(task))
    return ScanFigures(records, _bytes_read() - bytes_before, time.process_time() - cpu_before, time.monotonic() - wall_before)


def _bytes_read() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def figures(directory: Path, size_bytes: int, segment_bytes: int) -> Iterator[str]:
    """The rows of the table."""
    written, records = write_topic(directory, size_bytes, segment_bytes)
    yield f"topic: {written / MIB:.0f} MiB, {records} records, segments of {segment_bytes // MIB} MiB"
    measure_scan(directory, endingTimestamp=str(START_MS + 1000))
    whole = measure_scan(directory)
    assert whole.records == records
    yield _row("whole topic", whole, written)
    for name, first in (("1% in the middle", records // 2), ("1% at the end", records - records // 100)):
        window = measure_scan(
            directory, startingTimestamp=str(START_MS + first), endingTimestamp=str(START_MS + first + records // 100)
        )
        yield _row(name, window, written)
        share, ratio = window.bytes_read / written, whole.bytes_read / window.bytes_read
        said = "met" if share <= MOST_SHARE and ratio >= LEAST_RATIO else "MISSED"
        yield f"  {ratio:.1f} times fewer than the whole; targets {MOST_SHARE:.0%} and {LEAST_RATIO:.0f} times: {said}"


def _row(name: str, reading: ScanFigures, written: int) -> str:
    rate = reading.records / reading.cpu_s / 1e6
    return (
        f"{name}: {reading.records} records, {reading.bytes_read} bytes read ({reading.bytes_read / written:.2%} of the log), "
        f"{reading.cpu_s:.2f} CPU s ({rate:.2f} M/CPU s), {reading.wall_s:.2f} s"
    )


@click.command
@click.option("--mib", type=click.IntRange(min=1), default=256, show_default=True, help="Size of the topic.")
@click.option("--segment-mib", type=click.IntRange(min=1), default=64, show_default=True)
def main(mib: int, segment_mib: int) -> None:
    """Print the bytes that reads of a topic take; the topic is made in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="triolog-bench-") as directory:
        for line in figures(Path(directory), mib * MIB, segment_mib * MIB):
            click.echo(line)


if __name__ == "__main__":
    main()
