"""Describes the walk of a lookup (docs/native-protocol.md, `explain`), in the terms of `triolog explain`."""

from __future__ import annotations

from typing import Any, Final

from ....protocol.limits import INT64_MAX
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from .output import count_text, size_text
from .times import Zone, format_time

_SPECIAL: Final = {
    LATEST_TIMESTAMP: "latest (the high watermark)",
    EARLIEST_TIMESTAMP: "earliest (the log start offset)",
    MAX_TIMESTAMP: "max (the first record with the largest timestamp)",
}


def question(asked: dict[str, Any], zone: Zone) -> str:
    """Describe the lookup."""
    if "offset" in asked:
        return f"which batch holds offset {asked['offset']}?"
    if "start_timestamp" in asked:
        return f"records from {_moment(asked['start_timestamp'], zone)} until before {_moment(asked['end_timestamp'], zone)}?"
    timestamp = asked.get("timestamp", LATEST_TIMESTAMP)
    return _SPECIAL.get(timestamp) or f"first record at or after {format_time(timestamp, zone)} ({timestamp} ms)?"


def reads_text(step: dict[str, Any]) -> str:
    """` 8.0 KiB in 1 read, cached`."""
    reads = step.get("reads", ())
    if not reads:
        return " nothing"
    origin = warmth(all(read["cached"] for read in reads))
    return f" {size_text(step.get('bytes_scanned', 0))} in {count_text(len(reads), 'read')}, {origin}"


def warmth(cached: object) -> str:
    """Describe the origin of the bytes read: cache or device."""
    return "cached" if cached else "cold (from the device)"


def answer_text(answer: dict[str, Any], asked: dict[str, Any], zone: Zone) -> str:
    """Describe the result of the lookup."""
    offset = answer.get("offset", -1)
    if offset < 0:
        return "answer: no such record (yet)"
    if "runs" in answer:
        size = f"{size_text(answer['bytes'])} in {count_text(answer['runs'], 'run')} of batches"
        return f"answer: offsets {offset} up to {answer.get('end_offset')} (exclusive), {size}"
    if "offset" in asked:
        first, last = answer.get("batch_base_offset"), answer.get("batch_last_offset")
        place = f"{size_text(answer.get('batch_bytes', 0))} at position {answer.get('position')}"
        return f"answer: offset {offset} is in the batch of offsets {first} to {last}, {place}"
    timestamp = answer.get("timestamp", -1)
    when = "" if timestamp == -1 else f", timestamp {format_time(timestamp, zone)} ({timestamp} ms)"
    return f"answer: offset {offset}{when}"


def _moment(timestamp: int, zone: Zone) -> str:
    if timestamp >= INT64_MAX:
        return "the end"
    return f"{format_time(timestamp, zone)} ({timestamp} ms)"
