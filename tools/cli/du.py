"""`triolog du`: where the room on the disk goes, by topic, partition, segment and age, with bars, or as a picture."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ..pictures.option import one_way_to_print, svg_option, write_picture
from .terminal.failures import UnreadableError
from .terminal.output import count_text, draw, json_option, print_json, printable, size_text, table, timezone_option
from .terminal.shapes import columns, fields
from .terminal.stopped import directory_argument, topics_option
from .terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ...server.offline.space import PartitionSpace, SegmentSpace, Space
    from ..pictures.space_picture import Line

BAR_WIDTH: Final = 24
EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_HOUR_MS: Final = 3_600_000
AGES: Final = (
    ("up to 1 hour", _HOUR_MS),
    ("up to 1 day", 24 * _HOUR_MS),
    ("up to 1 week", 7 * 24 * _HOUR_MS),
    ("up to 30 days", 30 * 24 * _HOUR_MS),
    ("up to 1 year", 365 * 24 * _HOUR_MS),
    ("older", None),
)


@click.command
@directory_argument
@topics_option
@click.option(
    "--by",
    "view",
    type=click.Choice(["topic", "partition", "segment", "age"]),
    default="topic",
    show_default=True,
    help="Unit of a line.",
)
@timezone_option
@svg_option
@json_option
def command(directory: str, topics: tuple[str, ...], view: str, zone: Zone, svg: str | None, as_json: bool) -> None:
    """Show the disk space that the log directory DIR, or one partition's directory, takes.

    `on disk` is the space that the device allocated. Indexes are preallocated sparse, so it can be less than `content`, the
    size that `ls` shows. A segment is as old as its newest record. The command reads only sizes, so a server may be running.
    """
    one_way_to_print(svg, as_json)
    from ...server.offline.space import Space, measure_partition, measure_rest
    from ...server.storage.directory.inventory import read_directory
    from ...server.storage.disk.filesystem import OsFileSystem
    from ...server.storage.errors import StorageError

    fs = OsFileSystem()
    try:
        found = read_directory(fs, directory.rstrip("/") or "/", topics=frozenset(topics) or None)
        partitions = [measure_partition(fs, files) for files in found.partitions]
        rest = measure_rest(fs, found) if found.is_whole else Space()
    except StorageError as exc:
        raise UnreadableError(printable(str(exc))) from exc
    except OSError as exc:
        raise UnreadableError(f"{printable(exc.filename or directory)}: {exc.strerror}") from exc
    if not partitions:
        raise UnreadableError(f"{printable(directory)} holds no partition of a log")
    if as_json:
        print_json(_as_json(partitions, rest))
    elif svg is not None:
        from ..pictures.space_picture import space_picture

        write_picture(svg, space_picture(directory, partitions, rest, _lines_to_draw(partitions, view)))
    else:
        _draw(partitions, rest, view, zone)


def _draw(partitions: Sequence[PartitionSpace], rest: Space, view: str, zone: Zone) -> None:
    from ...server.offline.space import total

    everything = total(partition.all for partition in partitions) + rest
    lines = {"topic": _by_topic, "partition": _by_partition}.get(view)
    if lines is not None:
        headings = columns(f"<{view}", ">segments", ">log", ">indexes", ">content")
        rows = [*lines(partitions), ("(beside partitions)", "", "", "", rest)]
        if not rest.allocated_bytes:
            rows.pop()
    else:
        headings = columns(f"<{view}", ">segments" if view == "age" else "<newest record", ">content")
        rows = _by_age(partitions) if view == "age" else _by_segment(partitions, zone)
    largest = max((row[-1].allocated_bytes for row in rows), default=0)
    cells = [
        (*map(str, row[:-1]), *_size_cells(row[-1]), _bar(row[-1].allocated_bytes, largest, everything.allocated_bytes))
        for row in rows
    ]
    draw(table(headings | columns(">on disk", "<"), cells))
    draw(
        f"{count_text(len(partitions), 'partition')}, {size_text(everything.logical_bytes)} of content, "
        f"{size_text(everything.allocated_bytes)} on disk"
    )


def _lines_to_draw(partitions: Sequence[PartitionSpace], view: str) -> list[Line] | None:
    """Return the items that the lines of a picture represent; None by topic, since the picture finds them itself."""
    from ..pictures.space_picture import partition_line, segments_line

    if view == "partition":
        return [partition_line(part) for part in partitions]
    if view == "segment":
        segments = ((part.topic_partition, segment) for part in partitions for segment in part.segments)
        return [segments_line(f"{name}/{segment.base_offset}", [segment]) for name, segment in segments]
    return None if view == "topic" else [segments_line(words, held) for words, held in _aged(partitions)]


def _size_cells(space: Space) -> tuple[str, str]:
    return size_text(space.logical_bytes), size_text(space.allocated_bytes)


def _by_topic(partitions: Sequence[PartitionSpace]) -> list[tuple[Any, ...]]:
    from ...server.offline.space import total

    topics: dict[str, list[PartitionSpace]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic_partition.topic, []).append(partition)
    rows = []
    for topic, parts in topics.items():
        name = f"{topic} ({count_text(len(parts), 'partition')})"
        rows.append(_row(name, [segment for part in parts for segment in part.segments], total(part.all for part in parts)))
    return sorted(rows, key=lambda row: -row[-1].allocated_bytes)


def _by_partition(partitions: Sequence[PartitionSpace]) -> list[tuple[Any, ...]]:
    return [_row(str(part.topic_partition), part.segments, part.all) for part in partitions]


def _row(name: str, segments: Sequence[SegmentSpace], space: Space) -> tuple[Any, ...]:
    from ...server.offline.space import total

    log, indexes = total(segment.log for segment in segments), total(segment.indexes for segment in segments)
    return name, f"{len(segments):,}", size_text(log.allocated_bytes), size_text(indexes.allocated_bytes), space


def _by_segment(partitions: Sequence[PartitionSpace], zone: Zone) -> list[tuple[Any, ...]]:
    return [
        (f"{part.topic_partition}/{segment.base_offset:020d}", format_time(segment.largest_timestamp, zone), segment.all)
        for part in partitions
        for segment in part.segments
    ]


def _by_age(partitions: Sequence[PartitionSpace]) -> list[tuple[Any, ...]]:
    from ...server.offline.space import total

    return [(words, f"{len(held):,}", total(segment.all for segment in held)) for words, held in _aged(partitions)]


def _aged(partitions: Sequence[PartitionSpace]) -> list[tuple[str, list[SegmentSpace]]]:
    """The segments of each of AGES."""
    now_ms = time.time_ns() // 1_000_000
    segments = [segment for part in partitions for segment in part.segments]
    rows, youngest = [], None
    for words, limit in AGES:
        rows.append((words, [each for each in segments if _is_aged(now_ms - each.largest_timestamp, youngest, limit)]))
        youngest = limit
    return rows


def _is_aged(age_ms: int, above: int | None, limit: int | None) -> bool:
    return (above is None or age_ms > above) and (limit is None or age_ms <= limit)


def _bar(part: int, largest: int, everything: int) -> str:
    """A bar against the largest line, and the share of all in percent."""
    eighths = max(round(part * BAR_WIDTH * 8 / largest), 1) if part else 0
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (EIGHTHS[rest] if rest else "")
    share = 100 * part / everything if everything else 0
    return f"{drawn} {share:.0f}%"


def _as_json(partitions: Iterable[PartitionSpace], rest: Space) -> dict[str, Any]:
    return {
        "partitions": [
            {
                **part.topic_partition._asdict(),
                **_bytes(part.all),
                "others": _bytes(part.others),
                "segments": [
                    {
                        **fields(segment, "base_offset", "largest_timestamp"),
                        "log": _bytes(segment.log),
                        "indexes": _bytes(segment.indexes),
                    }
                    for segment in part.segments
                ],
            }
            for part in partitions
        ],
        "beside_partitions": _bytes(rest),
    }


def _bytes(space: Space) -> dict[str, int]:
    return fields(space, "logical_bytes", "allocated_bytes")
