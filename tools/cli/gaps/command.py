"""`triolog gaps`: the offsets that damage took out of logs, and which of them readers pass over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import click

from ..terminal.failures import FailedError
from ..terminal.output import draw, json_option, print_json, printable, say, size_text, table, timezone_option
from ..terminal.remote import ServerAddress, call_server, server_option
from ..terminal.stopped import stopped
from ..terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ....protocol.native.messages import TopicGaps
    from ....server.storage.directory.inventory import PartitionFiles
    from ....server.storage.disk.filesystem import FileSystem
    from ...client.connection import Client

COLUMNS: Final = {
    "topic": "left",
    "partition": "right",
    "start": "right",
    "end": "right",
    "bytes kept in": "left",
    "size": "right",
    "found": "left",
    "accepted": "left",
}
NOT_KNOWN: Final = "-"

data_dir_option = click.option(
    "--data-dir", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="Of a stopped server, in this directory."
)


@attrs.frozen(kw_only=True)
class Row:
    """One gap, or with an error a partition whose gaps are not known."""

    topic: str
    partition: int
    start_offset: int | None = None
    end_offset: int | None = None
    file: str | None = None
    size_bytes: int | None = None
    found_ms: int | None = None
    accepted_ms: int | None = None
    error: str | None = None


@click.group
def command() -> None:
    """List the offsets that damage took out of logs, and accept that they are missing.

    What a reader gets who comes to such offsets, the topic key gap.policy says.
    """


@command.command("list")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@data_dir_option
@timezone_option
@server_option
@json_option
def list_gaps(topics: tuple[str, ...], data_dir: str | None, zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """List what is missing of all topics, or of these: offsets from START up to END, which is the first that is there again."""
    if data_dir is None:
        told = call_server(server, lambda client: _told(client, topics))
        rows = list(_rows(told))
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
@server_option
@json_option
def accept(topic: str, partition: int, start: int, data_dir: str | None, server: ServerAddress, as_json: bool) -> None:
    """Accept that the offsets from START on are missing in PARTITION of TOPIC.

    Readers pass over them from then on, also where the topic has gap.policy=refuse; those that say themselves that they want to
    be refused are still refused. It is written down beside the log and cannot be taken back.
    """
    if data_dir is None:
        end = call_server(server, lambda client: _accept(client, topic, partition, start))
    else:
        end = _accept_stopped(data_dir, topic, partition, start)
    if as_json:
        print_json({"topic": topic, "partition": partition, "start_offset": start, "end_offset": end})
    else:
        say(f"accepted: readers of {printable(topic)}-{partition} pass over offsets {start} to {end - 1}")


# ---- a server --------------------------------------------------------------------------------------------------------------


async def _told(client: Client, topics: Sequence[str]) -> Sequence[TopicGaps]:
    from ...client.admin import Admin

    return await Admin(client).list_gaps(*topics)


async def _accept(client: Client, topic: str, partition: int, start: int) -> int:
    from ....protocol.types import TopicPartition
    from ...client.admin import Admin

    return await Admin(client).accept_gap(TopicPartition(topic, partition), start)


def _rows(told: Sequence[TopicGaps]) -> Iterator[Row]:
    for topic in told:
        for partition in topic.partitions:
            if partition.error is not None:
                yield Row(topic=topic.name, partition=partition.partition, error=partition.error.message)
            for gap in partition.gaps:
                yield Row(
                    topic=topic.name,
                    partition=partition.partition,
                    start_offset=gap.start_offset,
                    end_offset=gap.end_offset,
                    file=gap.file,
                    size_bytes=_known(gap.size_bytes),
                    found_ms=_known(gap.found_ms),
                    accepted_ms=_known(gap.accepted_ms),
                )


def _known(value: int) -> int | None:
    return None if value < 0 else value


# ---- a directory -----------------------------------------------------------------------------------------------------------


def _rows_of(fs: FileSystem, files: PartitionFiles) -> Iterator[Row]:
    from ....server.storage.errors import CheckpointError
    from ....server.storage.log.gaps import read_gaps

    topic, partition = files.topic_partition
    try:
        gaps = read_gaps(fs, files.path)
    except CheckpointError as exc:
        yield Row(topic=topic, partition=partition, error=str(exc))
        return
    for gap in gaps:
        yield Row(
            topic=topic,
            partition=partition,
            start_offset=gap.start_offset,
            end_offset=gap.end_offset,
            file=gap.side_file,
            size_bytes=None if gap.side_file is None else fs.file_size(f"{files.path}/{gap.side_file}"),
            found_ms=_known(gap.found_ms),
            accepted_ms=_known(gap.accepted_ms),
        )


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


# ---- what people see -------------------------------------------------------------------------------------------------------


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
