"""Ranges of offsets, and how they are cut into the tasks of a read.

1. A range larger than `splitBytes` is cut where the server says (`split_points`: at entries of its sparse index); by an older
   server, or where it does not know, at even offsets.
2. `maxRecordsPerPartition` cuts what has more offsets than that into even parts.
3. `minPartitions` cuts further while there are fewer: first a part each for ranges that would get one, then the rest shares
   what is left by size (Spark: KafkaOffsetRangeCalculator).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import attrs
from pyspark.sql.datasource import InputPartition

from ....protocol.types import TopicPartition
from .bounds import PartitionRange
from .broker import Broker, Cut
from .options import ReadOptions

SMALLEST_SPLIT_BYTES: Final = 64 * 1024
"""`minPartitions` never asks the server for smaller pieces: an index entry stands for 4 KiB, a task costs 20 ms."""


@attrs.frozen
class OffsetRange(InputPartition):
    """Offsets of one partition from `low` up to `high`, exclusive: what one task reads."""

    topic: str
    partition: int
    low: int
    high: int

    @property
    def name(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """Offsets in it; records, where compaction and markers have taken none."""
        return self.high - self.low


def plan_ranges(
    broker: Broker, options: ReadOptions, ranges: Iterable[OffsetRange], known: Mapping[TopicPartition, PartitionRange]
) -> list[OffsetRange]:
    """The tasks that read these ranges: together they are the ranges, without overlap. `known` is what `Broker.ranges` says."""
    wanted = [range_ for range_ in ranges if range_.count > 0]
    sizes = {range_: estimated_bytes(range_, known.get(range_.name)) for range_ in wanted}
    target = options.split_bytes
    if options.min_partitions is not None:
        target = min(target, max(SMALLEST_SPLIT_BYTES, sum(sizes.values()) // options.min_partitions))
    pieces = _cut_by_bytes(broker, wanted, sizes, target)
    if options.max_records_per_partition is not None:
        most = options.max_records_per_partition
        pieces = [part for piece in pieces for part in divide(piece, -(-piece.count // most))]
    if options.min_partitions is not None:
        pieces = raise_count(pieces, options.min_partitions)
    return pieces


def estimated_bytes(range_: OffsetRange, known: PartitionRange | None) -> int:
    """Estimate the log bytes of these offsets, as if all were alike; 0 when the size is unknown."""
    offsets = known.high - known.low if known is not None else 0
    return 0 if known is None or offsets <= 0 else known.size_bytes * range_.count // offsets


def divide(range_: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of as even a size as can be, but none without an offset."""
    parts = max(1, min(parts, range_.count))
    edges = [range_.low + range_.count * part // parts for part in range(parts + 1)]
    return [attrs.evolve(range_, low=low, high=high) for low, high in pairwise(edges)]


def raise_count(ranges: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    """Cut ranges until there are about `least` of them, the larger ones into more parts; no change where there are enough."""
    if len(ranges) >= least:
        return list(ranges)
    total = sum(range_.count for range_ in ranges)
    whole = {range_ for range_ in ranges if _share(range_.count, total, least) == 1}
    rest, left = sum(range_.count for range_ in ranges if range_ not in whole), least - len(whole)
    return [part for range_ in ranges for part in divide(range_, 1 if range_ in whole else _share(range_.count, rest, left))]


def _share(count: int, total: int, parts: int) -> int:
    return max(1, math.floor(count / total * parts + 0.5))  # halves up, as Java's Math.round


def _cut_by_bytes(
    broker: Broker, ranges: Sequence[OffsetRange], sizes: Mapping[OffsetRange, int], target: int
) -> list[OffsetRange]:
    large = [range_ for range_ in ranges if sizes[range_] > target]
    answer = broker.split_points([Cut(range_.name, range_.low, range_.high, target) for range_ in large])
    cuts: dict[OffsetRange, list[OffsetRange]] = {}
    for index, range_ in enumerate(large):
        if answer is None:
            cuts[range_] = divide(range_, -(-sizes[range_] // target))
        else:
            inner = sorted({point.offset for point in answer[index] if range_.low < point.offset < range_.high})
            edges = [range_.low, *inner, range_.high]
            cuts[range_] = [attrs.evolve(range_, low=low, high=high) for low, high in pairwise(edges)]
    return [piece for range_ in ranges for piece in cuts.get(range_, [range_])]
