"""How many records a CPU second turns into columns and back: `python -m triolog.tools.spark.bench.codec`.

Process CPU seconds, not time on the clock: other processes of the machine then count as little as they can. Records have a
key of 8 bytes and a value of 100 (of 50 to 150 in the rows called random); data is decoded in pieces of about 4 MiB, as a
reader gets it, and encoded in columns of 50,000 rows. The targets are those of uncompressed records in batches of 1,000.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import click

from ....protocol.limits import MIB
from ....protocol.records.batch import iter_batches
from ....protocol.records.columnar.decode import Wanted, decode_batches
from ....protocol.records.columnar.encode import Encoding, encode_batches
from ....protocol.records.columnar.schema import COLUMNS
from ....protocol.records.record import iter_records
from ....protocol.types import CompressionType

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS: Final = 1_000_000
WARM_UPS: Final = 3
SAMPLES: Final = 7
DECODE_TARGET: Final = 1.8
ENCODE_TARGET: Final = 3.0
SCALAR_RATIO_TARGET: Final = 4.0

KEY_BYTES: Final = 8
VALUE_BYTES: Final = 100
RANDOM_VALUE_BYTES: Final = (50, 150)
PIECE_BYTES: Final = 4 * MIB
ROWS: Final = 50_000
KAFKA_COLUMNS: Final = COLUMNS[:-1]
"""Without headers, as Spark's Kafka source has them by default."""
KINDS: Final = (
    (CompressionType.NONE, 1000),
    (CompressionType.NONE, 100),
    (CompressionType.LZ4, 1000),
    (CompressionType.ZSTD, 1000),
)
"""Compression, and records of a batch."""
SCALAR_SHARE: Final = 10
"""The scalar codec decodes a tenth of the records: it takes its time for each, whatever their number."""


@attrs.frozen
class Figure:
    """Millions of records per CPU second, one value for each sample."""

    name: str
    samples: Sequence[float]
    target: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def __str__(self) -> str:
        target = f"  target >= {self.target:g}" if self.target is not None else ""
        return f"{self.name:<60} {self.median:6.2f}  ({min(self.samples):.2f} - {max(self.samples):.2f}){target}"


def measure_codec(
    name: str, work: Callable[[], object], *, records: int, target: float | None = None, samples: int = SAMPLES
) -> Figure:
    """Do `work`, which handles `records` of them, WARM_UPS times unmeasured and `samples` times measured."""
    rates = []
    for turn in range(WARM_UPS + samples):
        started = time.process_time()
        work()
        if turn >= WARM_UPS:
            rates.append(records / (time.process_time() - started) / 1e6)
    return Figure(name, rates, target)


def make_rows(records: int, *, is_random: bool, seed: int = 1) -> list[pa.RecordBatch]:
    """Columns key, value and timestamp of `records` records, in batches of ROWS."""
    import pyarrow as pa

    draw = random.Random(seed)
    made = []
    for start in range(0, records, ROWS):
        rows = range(start, min(start + ROWS, records))
        sizes = [draw.randint(*RANDOM_VALUE_BYTES) if is_random else VALUE_BYTES for _ in rows]
        filler = draw.randbytes(RANDOM_VALUE_BYTES[1] // 2).hex().encode()
        columns = {
            "key": pa.array([row.to_bytes(KEY_BYTES, "big") for row in rows], pa.binary()),
            "value": pa.array([filler[:size] for size in sizes], pa.binary()),
            "timestamp": pa.array([1_700_000_000_000 + row // 3 for row in rows], pa.int64()),
        }
        made.append(pa.record_batch(columns))
    return made


def pieces_of(rows: Sequence[pa.RecordBatch], encoding: Encoding) -> Iterator[bytes]:
    """The rows as stored, in pieces of whole batches of about PIECE_BYTES."""
    piece = b""
    for part in rows:
        for encoded in encode_batches(part, encoding):
            if piece and len(piece) + len(encoded.data) > PIECE_BYTES:
                yield piece
                piece = b""
            piece += encoded.data
    yield piece


def figures(records: int = RECORDS, samples: int = SAMPLES, *, has_all: bool = False) -> Iterator[Figure]:
    """The rows of the table, one after another: those with targets, or with `has_all` compressed and small batches too."""
    for is_random in (False, True):
        rows = make_rows(records, is_random=is_random)
        kind = "random" if is_random else "100 B"
        for compression, batch_records in KINDS if has_all else KINDS[:1]:
            encoding = Encoding(compression=compression, batch_records=batch_records)
            has_target = compression == CompressionType.NONE and batch_records == 1000
            label = f"{kind}, {compression.name.lower()}, batches of {batch_records}"
            yield measure_codec(
                f"encode {label}",
                partial(_encode, rows, encoding),
                records=records,
                target=ENCODE_TARGET if has_target else None,
                samples=samples,
            )
            pieces = list(pieces_of(rows, encoding))
            decoded = measure_codec(
                f"decode {label}",
                partial(_decode, pieces, KAFKA_COLUMNS),
                records=records,
                target=DECODE_TARGET if has_target else None,
                samples=samples,
            )
            yield decoded
            if has_target:
                yield measure_codec(
                    f"decode offset and timestamp, {label}",
                    partial(_decode, pieces, ("offset", "timestamp")),
                    records=records,
                    samples=samples,
                )
                some = pieces[: max(1, len(pieces) // SCALAR_SHARE)]
                scalar = measure_codec(
                    f"scalar codec, {label}",
                    partial(_read_scalar, some),
                    records=_read_scalar(some),
                    samples=samples,
                )
                yield scalar
                yield Figure(f"decode over the scalar codec, {label}", [decoded.median / scalar.median], SCALAR_RATIO_TARGET)


def _encode(rows: Sequence[pa.RecordBatch], encoding: Encoding) -> None:
    for part in rows:
        encode_batches(part, encoding)


def _decode(pieces: Sequence[bytes], columns: tuple[str, ...]) -> None:
    for piece in pieces:
        decode_batches(piece, Wanted("topic", 0, columns))


def _read_scalar(pieces: Sequence[bytes]) -> int:
    count = 0
    for piece in pieces:
        for header, batch in iter_batches(piece):
            for _ in iter_records(batch, header):
                count += 1
    return count


@click.command
@click.option("--records", type=click.IntRange(min=1000), default=RECORDS, show_default=True)
@click.option("--samples", type=click.IntRange(min=1), default=SAMPLES, show_default=True)
@click.option("--all", "has_all", is_flag=True, help="Compressed and small batches too; takes minutes.")
def main(records: int, samples: int, has_all: bool) -> None:
    """Print millions of records per CPU second: median, least and most of the samples."""
    for figure in figures(records, samples, has_all=has_all):
        click.echo(figure)


if __name__ == "__main__":
    main()
