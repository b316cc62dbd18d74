"""`triolog export`: the records of a stopped log as JSON lines or CSV, straight from its files; with --target as files by day.

A CSV row has topic, partition, offset, timestamp, key, value, headers. Bytes that are no text are `base64:...` there, and so is
text that begins like that; null is an empty field and an empty text is `""` in quotes, as PostgreSQL and DuckDB read it.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from ....protocol.extras import how_to_install
from ...export.writers import CSV_HEAD, FORMATS
from ..terminal.failures import EXIT_FAILED, FailedError
from ..terminal.output import as_json_value, count_text, flush, printable, say, size_text, timezone_option, warn, write
from ..terminal.places import position_option, read_position, time_of
from ..terminal.progress import open_progress
from ..terminal.stopped import directory_argument, relative, stopped, topics_option
from ..terminal.times import Zone

if TYPE_CHECKING:
    from ....protocol.types import Record, TopicPartition
    from ....server.offline.stored_records import RecordRange
    from ....server.storage.directory.inventory import PartitionFiles, StoppedDirectory
    from ....server.storage.disk.filesystem import FileSystem
    from ....server.storage.recovery.salvage import Damage
    from ...export.layout import Export, Exported
    from ...export.writers import ToLine


BASE64_PREFIX: Final = "base64:"


@click.command
@directory_argument
@topics_option
@click.option("-f", "--format", "format_name", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@click.option("--target", type=click.Path(file_okay=False), help="Write files into this folder instead of printing.")
@click.option(
    "--partition-by", type=click.Choice(["day"]), help="Create a folder for each topic and UTC day. [default with --target]"
)
@click.option(
    "--compression",
    default="zstd",
    show_default=True,
    type=click.Choice(["zstd", "lz4", "snappy", "gzip", "none"]),
    help="Compression of Parquet and Arrow files.",
)
@position_option(
    *("-o", "--offset"),
    also=("--from-offset",),
    times=("--from-time",),
    multiple=True,
    help="Export the records from here on: an offset of each partition, a time, or both.  [default: start]",
)
@position_option(
    "--until",
    also=("--to-offset",),
    times=("--to-time",),
    multiple=True,
    help="Export the records before this position.  [default: end]",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help=(
        "read_committed leaves out aborted transactions and stops at the first open one. [default: "
        "read_uncommitted, with --target read_committed]"
    ),
)
@timezone_option
def command(
    directory: str,
    topics: tuple[str, ...],
    format_name: str,
    target: str | None,
    partition_by: str | None,
    compression: str,
    offset: tuple[str, ...],
    until: tuple[str, ...],
    isolation: str | None,
    zone: Zone,
) -> None:
    """Print the records of the log directory DIR, or of one partition's directory. Stop the server first.

    With --target they become files, topic=<topic>/day=<day>/part-<partition>-<offset>.<format>, which appear when they are
    complete. The same command continues an interrupted run, up to the end offsets of that run. With --target a server may be
    running.

    `triolog produce --format json` reads the JSON lines. Records come by partition, in the order of their offsets; each is
    compared with the times of --offset and --until. A damaged batch is left out and reported on standard error, with
    exit code 1.
    """
    from ....protocol.limits import INT64_MAX
    from ....server.offline.stored_records import RecordRange

    from_offset, from_ms = _bound(offset, zone, "--offset")
    to_offset, to_ms = _bound(until, zone, "--until")
    if target is not None:
        if format_name == "arrow" and compression not in ("zstd", "lz4", "none"):
            raise click.BadParameter("Arrow files have zstd, lz4 or none", param_hint="--compression")
        _check_installed()
        from ...export.layout import Export
        from ...export.log_pieces import LogSource

        source = LogSource(
            directories=(directory,),
            topics=topics,
            committed=isolation != "read_uncommitted",
            from_offset=from_offset,
            to_offset=to_offset,
        )
        job = Export(
            source=source,
            target=target,
            compression=compression,
            format=format_name,
            start_timestamp=from_ms,
            end_timestamp=to_ms,
        )
        _export_files(job, target, {"jsonl": _json_line, "csv": _csv_line}.get(format_name))
        return
    if format_name not in ("jsonl", "csv") or partition_by is not None:
        raise click.UsageError("--format parquet and arrow, and --partition-by, need --target FOLDER")
    wanted = RecordRange(
        from_offset=from_offset or 0,
        to_offset=INT64_MAX if to_offset is None else to_offset,
        from_ms=from_ms,
        to_ms=to_ms,
        committed=isolation == "read_committed",
    )
    with stopped(directory, topics, writes=False) as (fs, found):
        damages = _export(fs, found, wanted, format_name)
    if damages:
        raise click.exceptions.Exit(EXIT_FAILED)


def _bound(texts: tuple[str, ...], zone: Zone, option: str) -> tuple[int | None, int | None]:
    """Return the offset and the time at which an export begins or ends; None where no position names one."""
    from ...client.procedures.topics import EARLIEST, LATEST, AtOffset

    offset = time_ms = None
    for text in texts:
        place = read_position(text, zone, option)
        if isinstance(place, AtOffset):
            offset = place.offset
        elif (found := time_of(place)) is not None:
            time_ms = found
        elif place != (EARLIEST if option == "--offset" else LATEST):
            raise click.BadParameter(f"{text} is unknown without a server. Use an offset or a time", param_hint=option)
    return offset, time_ms


def _export(fs: FileSystem, directory: StoppedDirectory, wanted: RecordRange, format_name: str) -> int:
    """Print it all; answers how many places were damaged."""
    from ....server.offline.findings import Observer
    from ....server.offline.verify import read_directory_files

    starts = read_directory_files(fs, directory, Observer()).log_start_offsets
    passes = 2 if wanted.committed else 1
    log_bytes = passes * sum(files.log_bytes for files in directory.partitions)
    to_line = _json_line if format_name == "jsonl" else partial(_csv_line, in_lines=sys.stdout.isatty())
    write(b"" if format_name == "jsonl" else CSV_HEAD)
    with open_progress("exporting", log_bytes) as bar:
        exporting = _Exporting(fs, directory, lambda done, records: bar.update(done_bytes=done, records=records))
        for files in directory.partitions:
            start = max(wanted.from_offset, starts.get(files.topic_partition, 0))
            exporting.partition(files, wanted, start, to_line)
    flush()
    return exporting.damages


class _Exporting:
    """Counts what is done. Owner: one export."""

    def __init__(self, fs: FileSystem, directory: StoppedDirectory, show: Callable[[int, int], None]) -> None:
        self._fs = fs
        self._directory = directory
        self._show = show
        self._bytes = self._records = 0
        self.damages = 0

    def partition(
        self, files: PartitionFiles, wanted: RecordRange, start: int, to_line: Callable[[TopicPartition, Record], bytes]
    ) -> None:
        """Print the wanted records from `start` on. Raises FailedError for records that cannot be read."""
        import attrs

        from ....protocol.errors import RequestError
        from ....server.offline.stored_records import DecidedTransactions, find_transactions, stored_batches

        wanted = attrs.evolve(wanted, from_offset=start)
        partition = files.topic_partition
        try:
            decided = find_transactions(self._fs, files, self._advance) if wanted.committed else DecidedTransactions()
            batches = stored_batches(self._fs, files, wanted, decided, damaged=self._damaged, advance=self._advance)
            for records in batches:
                write(b"".join([to_line(partition, record) for record in records]))
                self._records += len(records)
        except RequestError as exc:
            raise FailedError(f"{partition}: {exc.message}. `triolog verify` lists every such batch") from exc

    def _advance(self, log_bytes: int) -> None:
        self._bytes += log_bytes
        self._show(self._bytes, self._records)

    def _damaged(self, path: str, damage: Damage) -> None:
        self.damages += 1
        where = f"{relative(path, self._directory)} at position {damage.position}"
        what = "is read anyway" if damage.stamp is not None else "is left out"
        warn(f"warning: {where}: {printable(damage.reason)}; the batch {what}")


def _json_line(partition: TopicPartition, record: Record) -> bytes:
    from ..terminal.output import json_line
    from ..terminal.record_formats import record_as_json

    return json_line(record_as_json(partition, record))


def _csv_line(partition: TopicPartition, record: Record, *, in_lines: bool = False) -> bytes:
    """`in_lines`: one line whatever is in the record, for people."""
    headers = ""
    if record.headers:
        pairs = [[name, as_json_value(value)] for name, value in record.headers]
        headers = _quoted(json.dumps(pairs, ensure_ascii=False, separators=(",", ":")))
    timestamp = "" if record.timestamp < 0 else str(record.timestamp)
    fields = [_quoted(partition.topic), str(partition.partition), str(record.offset), timestamp]
    line = ",".join([*fields, _csv_field(record.key), _csv_field(record.value), headers])
    return (printable(line) if in_lines else line).encode() + b"\n"


def _csv_field(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or text.startswith(BASE64_PREFIX):
        return BASE64_PREFIX + base64.b64encode(data).decode()
    return _quoted(text) if text else '""'


def _quoted(text: str) -> str:
    """RFC 4180: quoted where a reader would stumble."""
    if any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _check_installed() -> None:
    try:
        import numpy as _numpy  # noqa: F401
        import pyarrow as _  # noqa: F401
    except ImportError:
        raise FailedError(f"--target needs pyarrow: {how_to_install('arrow')}") from None


def _export_files(job: Export, target: str, to_line: ToLine | None) -> None:
    """Write what is not there yet. FailedError in one line."""
    from ....protocol.errors import TriologError

    try:
        done = _write_files(job, to_line)
    except (TriologError, OSError) as exc:
        raise FailedError(str(exc)) from exc
    files = f"{count_text(done.files, 'file')}, {size_text(done.size_bytes)}"
    say(f"{count_text(done.records, 'record')} in {files}, in {target}")


def _write_files(job: Export, to_line: ToLine | None) -> Exported:
    from ...export.layout import begin, export_piece, finish

    manifest, pieces = begin(job)
    done_bytes = sum(piece.size_bytes for piece in pieces if piece.name in manifest.done)
    records = sum(result["records"] for result in manifest.done.values())
    with open_progress("exporting", sum(piece.size_bytes for piece in pieces)) as bar:

        def show(log_bytes: int, rows: int) -> None:
            nonlocal done_bytes, records
            done_bytes += log_bytes
            records += rows
            bar.update(done_bytes=done_bytes, records=records)

        for piece in pieces:
            if piece.name not in manifest.done:
                manifest.add({piece.name: export_piece(job, piece.what, to_line, show)})
    return finish(job, manifest, [manifest.done[piece.name] for piece in pieces])
