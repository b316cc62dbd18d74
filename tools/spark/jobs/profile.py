"""Profile: per topic how many records come when, how large they are, how unevenly keys are spread, how late records are.

Exact: counts, sizes, records per hour. Estimates, because they are made from what every piece keeps of its own: the number of
different keys (the DISTINCT_KEPT smallest hashes, about 3% off), the most frequent keys (a key that is below the TOP_KEPT most
frequent of a piece is not counted there), and lateness, which is behind the largest timestamp *before it in its piece*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...client.sending.key_hashes import murmur2_of_keys
from ...export.log_pieces import LogSource, Splits, plan_pieces
from ...export.manifest import Manifest, Result
from ...segments.segment_damage import ReadMode
from ...segments.segment_reader import SegmentRead, read_split
from .job_session import Progress, no_progress, run_pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_US: Final = 3_600_000_000
TOP_KEPT: Final = 1000
"""Keys whose counts a piece answers."""
DISTINCT_KEPT: Final = 1024
"""Hashes that a piece answers; the error of the estimate is 1 over their square root (Bar-Yossef et al., k minimum values)."""
SHOWN_KEYS: Final = 20
_HASHES: Final = 2**32
_COLUMNS: Final = ("key", "value", "timestamp", "offset")


@attrs.frozen(kw_only=True)
class TopicProfile:
    """The profile of one topic. Histograms have powers of two as keys: bytes of values, ms of lateness, each up to that."""

    topic: str
    partitions: Mapping[int, int]
    """Records by partition."""
    records: int
    stored_bytes: int
    key_bytes: int
    value_bytes: int
    null_keys: int
    null_values: int
    hours: Mapping[int, int]
    """Records by hour since 1970, UTC; those without a timestamp are left out."""
    without_timestamp: int
    sizes: Mapping[int, int]
    distinct_keys: int
    top_keys: Sequence[tuple[bytes, int]]
    late_records: int
    max_late_ms: int
    lateness: Mapping[int, int]


def profile(
    spark: SparkSession, source: LogSource, *, manifest: Path | None = None, progress: Progress = no_progress
) -> list[TopicProfile]:
    """Profile every topic of the source. JobError, ManifestError, StorageError, OSError."""
    kept = Manifest.open(manifest, "profile", attrs.asdict(source), is_repeatable=True)
    pieces = plan_pieces(source, kept)
    results = run_pieces(spark, pieces, profile_piece, kept, progress)
    kept.complete()
    by_topic: dict[str, list[Result]] = {}
    for piece, result in zip(pieces, results, strict=True):
        by_topic.setdefault(piece.what[0].topic, []).append({**result, "partition": piece.what[0].partition})
    return [merge(topic, by_topic[topic]) for topic in sorted(by_topic)]


def profile_piece(splits: Splits) -> Result:
    """In a task: what one piece holds. DamagedSegmentError, SegmentGoneError, OSError."""
    found = _Found()
    read = SegmentRead(columns=_COLUMNS, mode=ReadMode.PERMISSIVE)
    for split in splits:
        for batch in read_split(split, read):
            found.take(batch)
    return {"stored_bytes": sum(split.size_bytes for split in splits), **found.result()}


def merge(topic: str, results: Iterable[Result]) -> TopicProfile:
    """Merge the results of one topic's pieces."""
    totals: Counter[str] = Counter()
    maps: dict[str, Counter[int]] = {name: Counter() for name in ("hours", "sizes", "lateness")}
    partitions: Counter[int] = Counter()
    keys: Counter[bytes] = Counter()
    hashes: set[int] = set()
    max_late_ms = 0
    for result in results:
        totals.update({name: result[name] for name in _TOTALS})
        partitions[result["partition"]] += result["records"]
        for name, counter in maps.items():
            counter.update({int(key): count for key, count in result[name].items()})
        keys.update({bytes.fromhex(key): count for key, count in result["top_keys"]})
        hashes.update(result["hashes"])
        max_late_ms = max(max_late_ms, result["max_late_ms"])
    return TopicProfile(
        topic=topic,
        partitions=dict(sorted(partitions.items())),
        records=totals["records"],
        stored_bytes=totals["stored_bytes"],
        key_bytes=totals["key_bytes"],
        value_bytes=totals["value_bytes"],
        null_keys=totals["null_keys"],
        null_values=totals["null_values"],
        hours=dict(sorted(maps["hours"].items())),
        without_timestamp=totals["without_timestamp"],
        sizes=dict(sorted(maps["sizes"].items())),
        distinct_keys=_distinct(hashes),
        top_keys=keys.most_common(SHOWN_KEYS),
        late_records=totals["late_records"],
        max_late_ms=max_late_ms,
        lateness=dict(sorted(maps["lateness"].items())),
    )


_TOTALS: Final = (
    "records",
    "stored_bytes",
    "key_bytes",
    "value_bytes",
    "null_keys",
    "null_values",
    "without_timestamp",
    "late_records",
)


class _Found:
    """The counts of a piece so far. Owner: its task."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(_TOTALS, 0))
        self._maps: dict[str, Counter[int]] = {name: Counter() for name in ("hours", "sizes", "lateness")}
        self._keys: Counter[bytes] = Counter()
        self._hashes = np.zeros(0, np.uint32)
        self._newest = np.iinfo(np.int64).min
        self._max_late_ms = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Rows, in the order of their offsets."""
        self._counts["records"] += batch.num_rows
        self._take_values(batch.column("value"))
        self._take_keys(batch.column("key"))
        self._take_times(batch.column("timestamp").view(pa.int64()).to_numpy())

    def result(self) -> Result:
        """For the manifest: what JSON can hold."""
        return {
            **{name: self._counts[name] for name in _TOTALS if name != "stored_bytes"},
            **{name: {str(key): count for key, count in counter.items()} for name, counter in self._maps.items()},
            "top_keys": [[key.hex(), count] for key, count in self._keys.most_common(TOP_KEPT)],
            "hashes": self._hashes.tolist(),
            "max_late_ms": self._max_late_ms,
        }

    def _take_values(self, values: pa.Array) -> None:
        sizes = pc.binary_length(values).drop_null().to_numpy(zero_copy_only=False)
        self._counts["null_values"] += values.null_count
        self._counts["value_bytes"] += int(sizes.sum())
        self._maps["sizes"].update(_powers(sizes))

    def _take_keys(self, keys: pa.Array) -> None:
        self._counts["null_keys"] += keys.null_count
        self._counts["key_bytes"] += pc.sum(pc.binary_length(keys)).as_py() or 0
        if keys.null_count == len(keys):
            return
        counted = pc.value_counts(keys.drop_null())
        different = counted.field("values")
        self._keys.update(dict(zip(different.to_pylist(), counted.field("counts").to_pylist(), strict=True)))
        if len(self._keys) > 10 * TOP_KEPT:
            self._keys = Counter(dict(self._keys.most_common(5 * TOP_KEPT)))
        self._hashes = np.unique(np.concatenate([self._hashes, murmur2_of_keys(different)]))[:DISTINCT_KEPT]

    def _take_times(self, times: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._counts["without_timestamp"] += int((times < 0).sum())
        times = times[times >= 0]
        if not len(times):
            return
        hours, counts = np.unique(times // HOUR_US, return_counts=True)
        self._maps["hours"].update(dict(zip(hours.tolist(), counts.tolist(), strict=True)))
        newest = np.maximum.accumulate(np.concatenate([[self._newest], times]))
        late = (newest[1:] - times)[times < newest[:-1]] // 1000
        self._newest = int(newest[-1])
        self._counts["late_records"] += len(late)
        if len(late):
            self._max_late_ms = max(self._max_late_ms, int(late.max()))
            self._maps["lateness"].update(_powers(late))


def _powers(numbers: np.ndarray[Any, Any]) -> dict[int, int]:
    """Return, for each power of two, the count of numbers at most that, and above the power before."""
    exponents = np.ceil(np.log2(np.maximum(numbers, 1))).astype(np.int64)
    found, counts = np.unique(exponents, return_counts=True)
    return {1 << exponent: count for exponent, count in zip(found.tolist(), counts.tolist(), strict=True)}


def _distinct(hashes: set[int]) -> int:
    """Estimate the number of distinct keys of which these are the smallest hashes."""
    if len(hashes) < DISTINCT_KEPT:
        return len(hashes)
    smallest = sorted(hashes)[:DISTINCT_KEPT]
    return round((DISTINCT_KEPT - 1) * _HASHES / max(1, smallest[-1]))
