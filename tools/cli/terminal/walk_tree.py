"""A lookup's walk through the indexes, as a tree for the terminal."""

from __future__ import annotations

from typing import Any, Final

from rich.text import Text
from rich.tree import Tree

from .output import count_text, size_text
from .times import Zone, format_time
from .walk_words import answer_text, question, reads_text, warmth

MAX_READS_SHOWN: Final = 8


def walk_tree(partition: str, walk: dict[str, Any], zone: Zone) -> Tree:
    """A tree from the question over each segment looked into to the answer."""
    asked = walk.get("asked", {})
    tree = Tree(Text(f"{partition}: {question(asked, zone)}", style="bold"))
    count, start, end = walk.get("segment_count", 0), walk.get("log_start_offset"), walk.get("high_watermark")
    tree.add(f"log: {count_text(count, 'segment')}, offsets {start} up to {end} (exclusive)")
    for segment in walk.get("segments", ()):
        _add_segment(tree, segment, asked, zone)
    if skipped := walk.get("segments_skipped"):
        tree.add(f"{count_text(skipped, 'segment')} skipped: no timestamp of theirs is in the range")
    if not walk.get("segments"):
        tree.add(f"log: scanned{reads_text(walk)}" if walk.get("reads") else "no segment had to be read")
    tree.add(Text(answer_text(walk.get("answer", {}), asked, zone), style="bold green"))
    return tree


def _add_segment(tree: Tree, segment: dict[str, Any], asked: dict[str, Any], zone: Zone) -> None:
    kind = ", active" if segment.get("is_active") else ""
    largest = f"largest timestamp {format_time(segment.get('max_timestamp', -1), zone)}"
    if "runs" in segment:
        least = segment.get("least_timestamp", -1)
        smallest = "not known yet" if least < 0 else format_time(least, zone)
        reason = f", least {smallest}; {size_text(segment['run_bytes'])} in {count_text(segment['runs'], 'run')} of batches"
    else:
        reason = "" if "offset" in asked else ", which is not before the requested time"
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
    scan = branch.add(f"log: scanned{reads_text(segment)}")
    for read in reads[:MAX_READS_SHOWN]:
        stop = read["position"] + read["bytes"]
        scan.add(f"bytes {read['position']} to {stop}: {size_text(read['bytes'])}, {warmth(read['cached'])}")
    if len(reads) > MAX_READS_SHOWN:
        scan.add(f"and {len(reads) - MAX_READS_SHOWN} more reads")


def _index_line(name: str, index: dict[str, Any], found: str) -> str:
    slot, entries = index.get("slot", -1), index.get("entries", 0)
    if slot < 0:
        return f"{name}: none of {count_text(entries, 'entry', 'entries')} is low enough, so from the start of the segment"
    return f"{name}: slot {slot} of {entries}; {found}"
