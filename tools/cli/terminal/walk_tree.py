"""The walk of a lookup (docs/native-protocol.md, `explain`) as a tree for the terminal. Keys it does not know are skipped."""

from __future__ import annotations

from typing import Any, Final

from rich.text import Text
from rich.tree import Tree

from ....protocol.limits import INT64_MAX
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from .output import count_text, size_text
from .times import Zone, format_time

MAX_READS_SHOWN: Final = 8

_SPECIAL: Final = {
    LATEST_TIMESTAMP: "latest (the high watermark)",
    EARLIEST_TIMESTAMP: "earliest (the log start offset)",
    MAX_TIMESTAMP: "max (the first record with the largest timestamp)",
}


def walk_tree(partition: str, walk: dict[str, Any], zone: Zone) -> Tree:
    """A tree from the question over each segment looked into to the answer."""
    asked = walk.get("asked", {})
    tree = Tree(Text(f"{partition}: {_question(asked, zone)}", style="bold"))
    count, start, end = walk.get("segment_count", 0), walk.get("log_start_offset"), walk.get("high_watermark")
    tree.add(f"log: {count_text(count, 'segment')}, offsets {start} up to {end} (exclusive)")
    for segment in walk.get("segments", ()):
        _add_segment(tree, segment, asked, zone)
    if skipped := walk.get("segments_skipped"):
        tree.add(f"{count_text(skipped, 'segment')} passed over: no timestamp of theirs lies in the range")
    if not walk.get("segments"):
        tree.add(f"log: scanned{_reads_text(walk)}" if walk.get("reads") else "no segment needed to be looked into")
    tree.add(Text(_answer(walk.get("answer", {}), asked, zone), style="bold green"))
    return tree


def _question(asked: dict[str, Any], zone: Zone) -> str:
    if "offset" in asked:
        return f"which batch holds offset {asked['offset']}?"
    if "start_timestamp" in asked:
        return f"records from {_moment(asked['start_timestamp'], zone)} until before {_moment(asked['end_timestamp'], zone)}?"
    timestamp = asked.get("timestamp", LATEST_TIMESTAMP)
    return _SPECIAL.get(timestamp) or f"first record at or after {format_time(timestamp, zone)} ({timestamp} ms)?"


def _moment(timestamp: int, zone: Zone) -> str:
    if timestamp >= INT64_MAX:
        return "the end"
    return f"{format_time(timestamp, zone)} ({timestamp} ms)"


def _add_segment(tree: Tree, segment: dict[str, Any], asked: dict[str, Any], zone: Zone) -> None:
    kind = ", active" if segment.get("is_active") else ""
    largest = f"largest timestamp {format_time(segment.get('max_timestamp', -1), zone)}"
    if "runs" in segment:
        least = segment.get("least_timestamp", -1)
        smallest = "not known yet" if least < 0 else format_time(least, zone)
        reason = f", least {smallest}; {size_text(segment['run_bytes'])} in {count_text(segment['runs'], 'run')} of batches"
    else:
        reason = "" if "offset" in asked else ", which is not before the time asked for"
    head = f"segment {segment.get('segment', 0):020d} (number {segment.get('number')}{kind}): "
    branch = tree.add(Text(f"{head}{size_text(segment.get('size_bytes', 0))}, {largest}{reason}", style="cyan"))
    if (index := segment.get("time_index")) is not None:
        found = f"timestamp {format_time(index.get('timestamp', -1), zone)} -> offset {index.get('offset')}"
        branch.add(_index_line("time index", index, f"greatest entry not after it: {found}"))
    if (index := segment.get("offset_index")) is not None:
        found = f"offset {index.get('offset')} -> position {index.get('position')}"
        branch.add(_index_line("offset index", index, f"greatest entry up to offset {index.get('looked_up')}: {found}"))
    reads = segment.get("reads", ())
    if not segment.get("cached", True) and all(read["cached"] for read in reads):
        branch.add("an index had no map in memory and was mapped for this lookup")
    scan = branch.add(f"log: scanned{_reads_text(segment)}")
    for read in reads[:MAX_READS_SHOWN]:
        stop = read["position"] + read["bytes"]
        scan.add(f"bytes {read['position']} to {stop}: {size_text(read['bytes'])}, {_warmth(read['cached'])}")
    if len(reads) > MAX_READS_SHOWN:
        scan.add(f"and {len(reads) - MAX_READS_SHOWN} more reads")


def _index_line(name: str, index: dict[str, Any], found: str) -> str:
    slot, entries = index.get("slot", -1), index.get("entries", 0)
    if slot < 0:
        return f"{name}: none of {count_text(entries, 'entry', 'entries')} is low enough, so from the start of the segment"
    return f"{name}: slot {slot} of {entries}; {found}"


def _reads_text(step: dict[str, Any]) -> str:
    reads = step.get("reads", ())
    if not reads:
        return " nothing"
    warmth = _warmth(all(read["cached"] for read in reads))
    return f" {size_text(step.get('bytes_scanned', 0))} in {count_text(len(reads), 'read')}, {warmth}"


def _warmth(cached: object) -> str:
    return "cached" if cached else "cold (from the device)"


def _answer(answer: dict[str, Any], asked: dict[str, Any], zone: Zone) -> str:
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
