"""Measures the records that a CPU second turns into columns and back, without Spark.

Process CPU seconds, not time on the clock: other processes of the machine then count as little as they can. Records have a
key of 8 bytes and a value of 100 (of 50 to 150 in the lines called random), uncompressed, in batches of 1,000; data is decoded
in pieces of about 4 MiB, as a reader gets it, and encoded in columns of 50,000 rows.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol.limits import MIB
from ....protocol.records.batch import iter_batches
from ....protocol.records.columnar.decode import Wanted, decode_batches
from ....protocol.records.columnar.encode import Encoding, encode_batches
from ....protocol.records.columnar.schema import COLUMNS
from ....protocol.records.record import iter_records
from ...bench.measuring.report import Line, at_least

if TYPE_CHECKING:
    import pyarrow as pa

WARM_UPS: Final = 3
KEY_BYTES: Final = 8
VALUE_BYTES: Final = 100
RANDOM_VALUE_BYTES: Final = (50, 150)
PIECE_BYTES: Final = 4 * MIB
ROWS: Final = 50_000
ENCODING: Final = Encoding(batch_records=1000)
KAFKA_COLUMNS: Final = COLUMNS[:-1]
"""Without headers, as Spark's Kafka source has them by default."""
SCALAR_SHARE: Final = 10
"""The scalar codec decodes a tenth of the records: it takes its time for each, whatever their number."""


def codec_lines(records: int, samples: int) -> Iterator[Line]:
    """Measure millions of records per CPU second, both ways, and beside the codec that reads record by record."""
    for kind in ("100 B", "random"):
        rows = make_rows(records, is_random=kind == "random")
        pieces = list(pieces_of(rows))
        some = pieces[: max(1, len(pieces) // SCALAR_SHARE)]
        works: dict[str, tuple[Callable[[], object], int, float | None]] = {
            f"encode {kind}": (partial(_encode, rows), records, 3.0),
            f"decode {kind}": (partial(_decode, pieces, KAFKA_COLUMNS), records, 1.8),
            f"decode offset and timestamp, {kind}": (partial(_decode, pieces, ("offset", "timestamp")), records, None),
            f"scalar codec, {kind}": (partial(_read_scalar, some), _read_scalar(some), None),
        }
        rates = {name: _rates(work, count, samples) for name, (work, count, _) in works.items()}
        for name, (_, _, bound) in works.items():
            yield Line(name, "M/CPU-s", rates[name], None if bound is None else at_least(bound, "M/CPU-s"))
        times = statistics.median(rates[f"decode {kind}"]) / statistics.median(rates[f"scalar codec, {kind}"])
        yield Line(f"decode over the scalar codec, {kind}", "x", [times], at_least(4, "x"))


def _rates(work: Callable[[], object], records: int, samples: int) -> list[float]:
    rates = []
    for turn in range(WARM_UPS + samples):
        started = time.process_time()
        work()
        if turn >= WARM_UPS:
            rates.append(records / (time.process_time() - started) / 1e6)
    return rates


def make_rows(records: int, *, is_random: bool, seed: int = 1) -> list[pa.RecordBatch]:
    """Return columns key, value and timestamp of `records` records, in batches of ROWS."""
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


def pieces_of(rows: Sequence[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the rows as stored, in pieces of whole batches of about PIECE_BYTES."""
    piece = b""
    for part in rows:
        for encoded in encode_batches(part, ENCODING):
            if piece and len(piece) + len(encoded.data) > PIECE_BYTES:
                yield piece
                piece = b""
            piece += encoded.data
    yield piece


def _encode(rows: Sequence[pa.RecordBatch]) -> None:
    for part in rows:
        encode_batches(part, ENCODING)


def _decode(pieces: Sequence[bytes], columns: tuple[str, ...]) -> None:
    for piece in pieces:
        decode_batches(piece, Wanted("topic", 0, columns))


def _read_scalar(pieces: Sequence[bytes]) -> int:
    return sum(1 for piece in pieces for header, batch in iter_batches(piece) for _ in iter_records(batch, header))
