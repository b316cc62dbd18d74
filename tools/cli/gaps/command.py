"""`triolog gaps`: the offsets that damage took out of logs, and which of them readers pass over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from ....protocol.types import TopicPartition
from ..terminal.failures import FailedError
from ..terminal.grammar import Group
from ..terminal.output import draw, print_json, printable, say, size_text, table, timezone_option
from ..terminal.remote import ServerAddress
from ..terminal.shapes import NOT_KNOWN, ask, asks_server, columns, known
from ..terminal.stopped import stopped
from ..terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ....protocol.native.messages import TopicGaps
    from ....server.storage.directory.inventory import PartitionFiles
    from ....server.storage.disk.filesystem import FileSystem

COLUMNS: Final = columns("<topic", ">partition", ">start", ">end", "<bytes kept in", ">size", "<found", "<accepted")

data_dir_option = click.option(
    "--data-dir", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="Log directory of a stopped server."
)


@attrs.frozen(kw_only=True)
class Row:
    """A gap, or with an error a partition whose gaps are not known."""

    topic: str
    partition: int
    start_offset: int | None = None
    end_offset: int | None = None
    file: str | None = None
    size_bytes: int | None = None
    found_ms: int | None = None
    accepted_ms: int | None = None
    error: str | None = None


@click.group(cls=Group)
def command() -> None:
    """List and acknowledge gaps: data lost to corruption.

    The topic key gap.policy decides what consumers see when they reach a gap.
    """


@command.command("list")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@data_dir_option
@timezone_option
@asks_server
def list_gaps(topics: tuple[str, ...], data_dir: str | None, zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """List the gaps of all topics, or of these: offsets from START (inclusive) to END (exclusive)."""
    if data_dir is None:
        rows = [row for topic in ask(server, lambda admin: admin.list_gaps(*topics)) for row in _rows(topic)]
    else:
        with stopped(data_dir, topics, writes=False) as (fs, found):
            rows = [row for files in found.partitions for row in _rows_of(fs, files)]
    if as_json:
        print_json([attrs.asdict(row) for row in rows])
    elif rows:
        draw(table(COLUMNS, [_cells(row, zone) for row in rows]))
        for row in rows:
            if row.error is not None:
                say(f"{printable(row.topic)}-{row.partition} is not known: {printable(row.error)}")
    else:
        say("nothing is missing")


@command.command
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("start", type=click.IntRange(0))
@data_dir_option
@asks_server
def accept(topic: str, partition: int, start: int, data_dir: str | None, server: ServerAddress, as_json: bool) -> None:
    """Accept the gap that starts at offset START in PARTITION of TOPIC.

    Readers then skip it, even if the topic has gap.policy=refuse. Readers that set their own policy to refuse still get an
    error. The acceptance is stored beside the log and cannot be undone.
    """
    if data_dir is None:
        end = ask(server, lambda admin: admin.accept_gap(TopicPartition(topic, partition), start))
    else:
        end = _accept_stopped(data_dir, topic, partition, start)
    if as_json:
        print_json({"topic": topic, "partition": partition, "start_offset": start, "end_offset": end})
    else:
        say(f"accepted: readers of {printable(topic)}-{partition} skip offsets {start} to {end - 1}")


def _rows(topic: TopicGaps) -> Iterator[Row]:
    for partition in topic.partitions:
        if partition.error is not None:
            yield Row(topic=topic.name, partition=partition.partition, error=partition.error.message)
        for gap in partition.gaps:
            yield _row((topic.name, partition.partition), gap, gap.file, known(gap.size_bytes))


def _row(place: tuple[str, int], gap: Any, file: str | None, size_bytes: int | None) -> Row:
    return Row(
        topic=place[0],
        partition=place[1],
        start_offset=gap.start_offset,
        end_offset=gap.end_offset,
        file=file,
        size_bytes=size_bytes,
        found_ms=known(gap.found_ms),
        accepted_ms=known(gap.accepted_ms),
    )


def _rows_of(fs: FileSystem, files: PartitionFiles) -> Iterator[Row]:
    from ....server.storage.errors import CheckpointError
    from ....server.storage.log.gaps import read_gaps

    try:
        gaps = read_gaps(fs, files.path)
    except CheckpointError as exc:
        yield Row(**files.topic_partition._asdict(), error=str(exc))
        return
    for gap in gaps:
        size_bytes = None if gap.side_file is None else fs.file_size(f"{files.path}/{gap.side_file}")
        yield _row(files.topic_partition, gap, gap.side_file, size_bytes)


def _accept_stopped(data_dir: str, topic: str, partition: int, start: int) -> int:
    from ....protocol.errors import RequestError
    from ....server.storage.errors import CheckpointError
    from ....server.storage.log.gaps import accepted, gap_at, read_gaps, write_gaps
    from ....server.system.clock import system_now_ms

    with stopped(data_dir, (topic,), writes=True) as (fs, found):
        path = next((files.path for files in found.partitions if files.topic_partition == (topic, partition)), None)
        if path is None:
            raise FailedError(f"{printable(data_dir)} has no partition {partition} of {printable(topic)}")
        try:
            gaps = accepted(read_gaps(fs, path), start, system_now_ms())
        except (RequestError, CheckpointError) as exc:
            raise FailedError(f"{printable(topic)}-{partition}: {printable(getattr(exc, 'message', str(exc)))}") from exc
        write_gaps(fs, path, gaps)
    gap = gap_at(gaps, start)
    assert gap is not None
    return gap.end_offset


def _cells(row: Row, zone: Zone) -> tuple[str, ...]:
    def at(ms: int | None) -> str:
        return NOT_KNOWN if ms is None else format_time(ms, zone)

    if row.error is not None:
        return printable(row.topic), str(row.partition), *["?"] * 6
    return (
        printable(row.topic),
        str(row.partition),
        str(row.start_offset),
        str(row.end_offset),
        NOT_KNOWN if row.file is None else printable(row.file),
        NOT_KNOWN if row.size_bytes is None else size_text(row.size_bytes),
        at(row.found_ms),
        "no" if row.accepted_ms is None else at(row.accepted_ms),
    )
