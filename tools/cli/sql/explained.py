"""What was read for an answer: the scans of its topics with their ranges, and DuckDB's plan."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ....protocol.limits import INT64_MAX
from ..terminal.output import count_text, say, size_text
from ..terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ...sql.session import Answer
    from ...sql.topic import Scan


def explain_answer(answer: Answer, zone: Zone) -> None:
    """Take all rows, then tell."""
    begin = time.perf_counter()
    rows = sum(batch.num_rows for batch in answer.batches())
    seconds = time.perf_counter() - begin
    if answer.plan:
        say(answer.plan)
    for number, scan in enumerate(answer.scans, 1):
        _explain_scan(number, scan, zone)
    say(f"{count_text(rows, 'row')} in {seconds:.2f} s")


def _explain_scan(number: int, scan: Scan, zone: Zone) -> None:
    ranges = scan.ranges
    say(f"scan {number}: topic {scan.topic}, columns {', '.join(scan.columns)}")
    say(f"  condition: {' '.join((scan.condition or 'none').split())}")
    bounds = []
    if ranges.low or ranges.high < INT64_MAX:
        bounds.append(f"offsets {ranges.low} to {'the end' if ranges.high == INT64_MAX else ranges.high}")
    if ranges.start_timestamp or ranges.end_timestamp is not None:
        start = format_time(ranges.start_timestamp or 0, zone)
        end = "the end" if ranges.end_timestamp is None else format_time(ranges.end_timestamp, zone)
        bounds.append(f"times {start} to {end}")
    partitions = f"{len(ranges.partitions)} of {count_text(len(scan.there), 'partition')}"
    say(f"  range: {' and '.join(bounds) or 'everything'}; {partitions}")
    read = {span.name: span for span in scan.spans}
    for there in scan.there:
        span = read.get(there.name)
        what = "not read" if span is None or span.low >= span.high else f"read from offset {span.low} to {span.high}"
        say(f"  {there.name}: {what}, of {there.low} to {there.high}")
    say(
        f"  {count_text(scan.report.rows, 'record')} of the range in {size_text(scan.report.log_bytes)} of log, "
        f"{count_text(scan.rows, 'row')} for DuckDB"
    )
