"""`triolog topics segments`: what lies on the disk of a topic, segment by segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.types import TopicPartition
from ..terminal.failures import FailedError
from ..terminal.output import count_text, draw, print_json, printable, say, size_text, table, timezone_option
from ..terminal.remote import ServerAddress
from ..terminal.shapes import MOST, NOT_KNOWN, ask, asks_server, columns, known, limit_option, only_partitions_option
from ..terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ....protocol.native.messages import DescribedSegment, DescribeSegmentsPartitionResponse

LOG_COLUMNS: Final = columns(
    *(">partition", ">log start", ">last stable", ">high watermark", ">log end"),
    *(">on the device", ">compacted", ">segments", ">size"),
)
SEGMENT_COLUMNS: Final = columns(
    *(">partition", ">base offset", ">next offset", ">size", "<not before", "<last", "<", ">entries", ">aborted")
)


@click.command
@click.argument("name")
@only_partitions_option
@limit_option
@timezone_option
@asks_server
def segments(name: str, partitions: tuple[int, ...], limit: int, zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """Show the segments of topic NAME: offsets, size, time span, and their synced, compacted and missing parts.

    No record has a time before NOT BEFORE. A server knows it for records that were appended since its start. ENTRIES counts the
    entries of the offset index, and ABORTED the aborted transactions of a segment.
    """
    wanted: list[str | TopicPartition] = [TopicPartition(name, number) for number in partitions] or [name]
    logs = ask(server, lambda admin: admin.describe_segments(*wanted, max_segments=limit))
    if as_json:
        print_json([_as_json(log) for log in logs])
        return
    served = [log for log in logs if log.error is None]
    draw(table(LOG_COLUMNS, [_log_cells(log) for log in served], title=f"topic {printable(name)}"))
    draw(table(SEGMENT_COLUMNS, [_segment_cells(log, each, zone) for log in served for each in log.segments]))
    for line in _remarks(logs):
        say(line)
    if len(served) < len(logs):
        raise FailedError(f"cannot describe {count_text(len(logs) - len(served), 'partition')}")


def _log_cells(log: DescribeSegmentsPartitionResponse) -> Sequence[str]:
    offsets = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset, log.recovery_point)
    cleaned = NOT_KNOWN if log.cleaned_up_to < 0 else f"{log.cleaned_up_to:,}"
    numbers = [f"{offset:,}" for offset in offsets]
    return [str(log.partition), *numbers, cleaned, f"{log.segment_count:,}", size_text(log.size_bytes)]


def _segment_cells(log: DescribeSegmentsPartitionResponse, segment: DescribedSegment, zone: Zone) -> Sequence[str]:
    def at(timestamp: int) -> str:
        return NOT_KNOWN if timestamp < 0 else format_time(timestamp, zone)

    return [
        str(log.partition),
        f"{segment.base_offset:,}",
        f"{segment.next_offset:,}",
        size_text(segment.size_bytes),
        at(segment.least_timestamp),
        at(segment.max_timestamp),
        "active" if segment.is_active else "compacted" if segment.is_cleaned else "",
        f"{segment.offset_index_entries:,}",
        f"{segment.transaction_index_entries:,}",
    ]


def _remarks(logs: Sequence[DescribeSegmentsPartitionResponse]) -> Iterator[str]:
    for log in logs:
        place = f"{printable(log.topic)}-{log.partition}"
        if log.error is not None:
            yield f"{place}: {printable(str(log.error))}"
        if log.waiting is not None:
            yield f"{place} takes no appends: {printable(log.waiting)}"
        for gap in log.gaps:
            accepted = "readers skip them" if gap.accepted_ms >= 0 else "see `triolog gaps`"
            yield f"{place}: offsets {gap.start_offset:,} to {gap.end_offset - 1:,} were lost to corruption; {accepted}"
        if log.gaps_left_out:
            yield (f"{place}: {log.gaps_left_out:,} more such ranges; `triolog gaps list {printable(log.topic)}` lists them")
        if log.left_out:
            yield f"{place}: {count_text(log.left_out, 'more segment')}; --max shows more, up to {MOST:,}"


def _as_json(log: DescribeSegmentsPartitionResponse) -> dict[str, Any]:
    """Without what is not known, as null."""
    if log.error is not None:
        return {"topic": log.topic, "partition": log.partition, "error": str(log.error)}
    body = log.to_body()
    body["cleaned_up_to"] = known(log.cleaned_up_to)
    for each in body["segments"]:
        each |= {key: known(each[key]) for key in ("least_timestamp", "max_timestamp")}
    for each in body["gaps"]:
        del each["size_bytes"]
        each |= {key: known(each[key]) for key in ("found_ms", "accepted_ms")}
    return body
