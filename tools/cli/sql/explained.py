"""Explains the reads of a query: the scans of its topics with their ranges, and DuckDB's plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....protocol.limits import INT64_MAX
from ....protocol.types import TimeRange, TopicPartition
from ..terminal.output import count_text, say, say_lines, size_text
from ..terminal.remote import ServerAddress
from ..terminal.shapes import ask
from ..terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...sql.session import Answer
    from ...sql.topic import Scan


def explain_answer(answer: Answer, zone: Zone, server: ServerAddress | None) -> None:
    """Take all rows, then tell. A server says itself how it finds a range of times."""
    begin = time.perf_counter()
    rows = sum(batch.num_rows for batch in answer.batches())
    seconds = time.perf_counter() - begin
    if answer.plan:
        say_lines(answer.plan)
    for number, scan in enumerate(answer.scans, 1):
        times = scan.ranges.times
        walks = {} if server is None or times is None else _walks(server, scan, times)
        _explain_scan(number, scan, zone, walks)
    say(f"{count_text(rows, 'row')} in {seconds:.2f} s")


def _walks(server: ServerAddress, scan: Scan, times: TimeRange) -> dict[TopicPartition, dict[str, Any]]:
    """The way to the range, of each partition that was read."""
    names = [span.name for span in scan.spans if span.low < span.high]

    async def explained(admin: Admin) -> list[dict[str, Any]]:
        return [await admin.explain(name, times) for name in names]

    return dict(zip(names, ask(server, explained), strict=True))


def _walked(walk: Mapping[str, Any]) -> str:
    answer = walk["answer"]
    if answer["offset"] < 0:
        return "no batch can hold the range"
    segments: Sequence[Any] = walk["segments"]
    return (
        f"offsets {answer['offset']} to {answer['end_offset']}, {size_text(answer['bytes'])} in "
        f"{count_text(answer['runs'], 'run')} of {len(segments)} of {count_text(walk['segment_count'], 'segment')}"
    )


def _explain_scan(number: int, scan: Scan, zone: Zone, walks: Mapping[TopicPartition, Mapping[str, Any]]) -> None:
    ranges = scan.ranges
    say(f"scan {number}: topic {scan.topic}, columns {', '.join(scan.columns)}")
    say(f"  condition: {' '.join((scan.condition or 'none').split())}")
    bounds = []
    if ranges.low or ranges.high < INT64_MAX:
        bounds.append(f"offsets {ranges.low} to {'the end' if ranges.high == INT64_MAX else ranges.high}")
    if ranges.times is not None:
        start = format_time(ranges.start_timestamp or 0, zone)
        end = "the end" if ranges.end_timestamp is None else format_time(ranges.end_timestamp, zone)
        bounds.append(f"times {start} to {end}")
    partitions = f"{len(ranges.partitions)} of {count_text(len(scan.there), 'partition')}"
    say(f"  range: {' and '.join(bounds) or 'everything'}; {partitions}")
    read = {span.name: span for span in scan.spans}
    for there in scan.there:
        span = read.get(there.name)
        what = "not read" if span is None or span.low >= span.high else f"read from offset {span.low} to {span.high}"
        walk = walks.get(there.name)
        found = "" if walk is None else f"; the range: {_walked(walk)}"
        say(f"  {there.name}: {what}, of {there.low} to {there.high}{found}")
    say(
        f"  {count_text(scan.report.rows, 'record')} of the range in {size_text(scan.report.log_bytes)} of log, "
        f"{count_text(scan.rows, 'row')} for DuckDB"
    )
