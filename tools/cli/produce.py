"""`triolog produce`: lines, JSON lines or CSV rows become records of a topic."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from .terminal.failures import FailedError, NotConnectedError
from .terminal.grammar import ignored, option
from .terminal.input import Input
from .terminal.output import count_text, flush, print_json, say_lines, timezone_option, warn
from .terminal.progress import MB, NoProgress, ProgressBar, open_progress
from .terminal.remote import ServerAddress, call_server
from .terminal.rows import BadRow, CsvReader, LineReader, Row, RowOptions, Rows, UnusableInputError, row_reader
from .terminal.shapes import asks_server, fields, read_configs
from .terminal.table_rows import FORMATS as TABLE_FORMATS
from .terminal.table_rows import TableOptions, produce_table
from .terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ..client.connection import Client
    from ..client.producer import Producer, SentRecord
    from ..client.sending.retention import RetentionWatch

ACKS: Final = {"all": -1, "1": 1, "0": 0}
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
UNITS_MS: Final = {"ms": 1, "s": 1000}
MAX_BAD_ROWS_SHOWN: Final = 10
WATCH_S: Final = 0.1
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as a server lets a transaction be open (Kafka: transaction.max.timeout.ms)."""


@attrs.frozen(kw_only=True)
class Given:
    """The options for parsing rows and sending records."""

    topic: str
    key: str | None
    key_separator: str | None
    headers: tuple[str, ...]
    value: str | None
    timestamp: str | None
    timestamp_unit: str
    delimiter: str
    partition: int | None
    compression: str
    acks: str
    idempotent: bool | None
    transactional_id: str | None
    expected_offset: int | None
    linger_ms: int
    on_error: str
    zone: Zone


@click.command
@click.argument("topic")
@click.argument("file", default="-", metavar="[FILE|-]")
@option(
    *("-m", "--message", "messages"),
    also=("--value-text",),
    multiple=True,
    metavar="TEXT",
    help="Send this message (repeatable).",
)
@option(
    *("-f", "--format", "format_name"),
    metavar="FORMAT",
    type=click.Choice(["lines", "json", "csv", *TABLE_FORMATS]),
    default="lines",
    show_default=True,
    help="lines (each is a value), json (lines), csv (column names first), or a table: parquet, arrow.",
)
@option(
    "-k", "--key", metavar="KEY", help="Key of all messages or lines, or with other formats the field or column with the key."
)
@option("-K", "--key-separator", metavar="TEXT", help="Split each line at the first TEXT into key and value.")
@option(
    *("-H", "--header", "headers"),
    also=("--headers",),
    multiple=True,
    metavar="NAME=VALUE",
    help="Add a header (repeatable).",
)
@click.option("--value", metavar="NAME", help="Field or column with the value.  [default: the whole object or row]")
@click.option("--timestamp", metavar="NAME", help="Field or column with the time: ISO 8601 or a number.")
@click.option(
    "--timestamp-unit", type=click.Choice(["ms", "s"]), default="ms", show_default=True, help="Unit of times that are numbers."
)
@click.option("--delimiter", default=",", show_default=True, help="Separator of CSV fields.")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Send all records to this partition.  [default: by key, as Kafka]",
)
@option("--compression", also=("-z", "--compression-codec"), type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True, help="Meaning of an acknowledgement.")
@click.option(
    "--idempotent/--no-idempotent", default=None, help="Store each record once, even after retries.  [default: with --acks all]"
)
@click.option("--transactional-id", metavar="ID", help="Send everything in one transaction: everything is visible, or nothing.")
@click.option(
    "--expected-offset",
    type=click.IntRange(0),
    help="Append everything as one batch to --partition, if its log ends at this offset; else nothing.",
)
@click.option("--linger-ms", type=click.IntRange(0), default=5, show_default=True, help="Time that a batch may wait to grow.")
@click.option(
    "--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True, help="Reaction to a bad row."
)
@ignored("-P", "-q")
@option("--property", "properties", also=("--reader-property",), multiple=True, hidden=True)
@timezone_option
@asks_server
def command(
    file: str,
    messages: tuple[str, ...],
    format_name: str,
    properties: tuple[str, ...],
    server: ServerAddress,
    as_json: bool,
    **options: Any,
) -> None:
    """Send messages, the rows of FILE, or those of standard input to TOPIC.

    lines: each line is a value. json: each line is an object with key, value, timestamp (ms or ISO 8601), headers, partition,
    as `consume --format json` prints it. With --key, --value or --timestamp it is any object, and the whole line is the value.
    csv: each row becomes a JSON object of its columns. parquet, arrow: the same for the rows of a file, with numbers and times
    as what they are, in one idempotent producer. The command ends when every record is acknowledged, or with --transactional-id
    when the transaction is committed; a bad row aborts it. With --expected-offset it keeps all records in memory and appends
    them at once.
    """
    given = Given(**options)
    reader = read_configs(properties, "--property", "parse.key=true")
    if reader.get("parse.key") == "true":  # of kafka-console-producer
        given = attrs.evolve(given, key_separator=reader.get("key.separator", "\t"))
    if messages and (file != "-" or format_name != "lines"):
        raise click.UsageError("-m sends its text as it is. Leave out FILE and --format")
    rows = RowOptions(
        key=given.key,
        key_separator=given.key_separator,
        headers=_headers(given.headers),
        value=given.value,
        timestamp=given.timestamp,
        timestamp_unit_ms=UNITS_MS[given.timestamp_unit],
        zone=given.zone,
        delimiter=given.delimiter,
    )
    if format_name == "lines" and (given.value is not None or given.timestamp is not None):
        raise click.UsageError("--value and --timestamp need --format json or csv")
    if format_name != "lines" and (given.key_separator is not None or given.headers):
        raise click.UsageError("--key-separator and --header need --format lines")
    is_plain = given.acks == "all" and given.idempotent is not False and given.transactional_id is None
    if format_name in TABLE_FORMATS:
        if not is_plain or given.expected_offset is not None or given.on_error != "stop" or given.timestamp_unit != "ms":
            others = "--acks, --no-idempotent, --transactional-id, --expected-offset, --on-error and --timestamp-unit"
            raise click.UsageError(
                f"--format {format_name} accepts no {others}: each row is written once, or the command stops"
            )
        names = ("topic", "key", "value", "timestamp", "partition", "compression")
        table = TableOptions(format_name=format_name, **fields(given, *names))
        _say(produce_table(server, file, table), as_json=as_json)
        return
    if given.acks != "all" and (given.idempotent or given.transactional_id is not None):
        raise click.UsageError("--idempotent and --transactional-id need --acks all")
    if given.transactional_id is not None and given.idempotent is False:
        raise click.UsageError("--transactional-id needs an idempotent producer. Leave out --no-idempotent")
    if given.expected_offset is not None and (given.partition is None or not is_plain):
        raise click.UsageError("--expected-offset needs --partition and --acks all, an idempotent producer and no transaction")
    if len(given.delimiter) != 1:
        raise click.BadParameter(f"{given.delimiter!r} is not one character", param_hint="--delimiter")
    with Input.of_messages(messages) if messages else Input.open(file) as source:
        progress = open_progress(f"{given.topic} <- {Path(source.name).name}", source.size_bytes)
        sending = Sending(source, row_reader(format_name, rows), given, progress)

        async def call(client: Client) -> None:
            with progress:
                await sending.run(client)

        try:
            call_server(server, call)
        except (FailedError, NotConnectedError) as exc:
            raise type(exc)(f"{exc.message} ({sending.outcome})") from exc
    _say(sending.summary(), as_json=as_json)


def _headers(texts: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value.encode()) for name, value in read_configs(texts, "--header", "trace=42").items())


def _say(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(summary)
    else:
        say_lines(_sentence(summary).rstrip("\n"))
        flush()


class Sending:
    """The transfer of one input to one topic. Owner: the command."""

    def __init__(
        self,
        source: Input,
        reader: LineReader | CsvReader,
        given: Given,
        progress: ProgressBar | NoProgress,
    ) -> None:
        self._source = source
        self._reader = reader
        self._given = given
        self._progress = progress
        self._begin = time.perf_counter()
        self._elapsed_s = 0.0
        self._unsettled: deque[SentRecord] = deque()
        self._partitions: dict[int, list[int]] = {}
        self._commits = False  # the transaction's end was reached
        self._retention: RetentionWatch | None = None  # until it has warned
        self._read_bytes = self._sent_bytes = self._sent = self._records = self._skipped = 0

    async def run(self, client: Client) -> None:
        """Read, send, wait for the last acknowledgement. Raises FailedError for a bad row, RequestError for a refused one."""
        import trio

        from ...protocol.types import CompressionType
        from ..client.admin import Admin
        from ..client.producer import open_producer
        from ..client.sending.retention import RetentionWatch

        given = self._given
        config = await Admin(client).describe_config(given.topic)
        self._retention = RetentionWatch(given.topic, config, time.time_ns() // 1_000_000)
        self._begin = time.perf_counter()
        if given.expected_offset is not None:
            await self._append_all(client, given.expected_offset)
            self._elapsed_s = time.perf_counter() - self._begin
            return
        async with open_producer(
            client,
            acks=ACKS[given.acks],
            linger_ms=given.linger_ms,
            compression_type=CompressionType[given.compression.upper()],
            enable_idempotence=given.idempotent,
            transactional_id=given.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        ) as producer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                try:
                    if given.transactional_id is None:
                        await self._send_all(producer)
                    else:
                        async with producer.transaction():
                            await self._send_all(producer)
                            self._commits = True
                finally:
                    nursery.cancel_scope.cancel()
        self._elapsed_s = time.perf_counter() - self._begin

    @property
    def outcome(self) -> str:
        """Describe the outcome for the records of an input that was not sent to its end."""
        if self._given.transactional_id is None:
            return f"{count_text(self._records, 'record')} acknowledged before"
        return "the transaction may or may not have been committed" if self._commits else "nothing was committed"

    def summary(self) -> dict[str, Any]:
        """Return the totals of the sent records; offsets are inclusive and -1 with acks 0."""
        seconds = max(self._elapsed_s, 1e-9)
        return {
            "topic": self._given.topic,
            "records": self._records,
            "skipped": self._skipped,
            "bytes": self._sent_bytes,
            "elapsed_s": round(self._elapsed_s, 6),
            "records_per_s": round(self._records / seconds, 1),
            "mb_per_s": round(self._sent_bytes / seconds / MB, 3),
            "partitions": [
                {"partition": number, "records": count, "first_offset": first, "last_offset": last}
                for number, (count, first, last) in sorted(self._partitions.items())
            ],
        }

    async def _send_all(self, producer: Producer) -> None:
        try:
            while data := await self._source.read():
                self._read_bytes += len(data)
                await self._send(producer, self._reader.feed(data))
            await self._send(producer, self._reader.finish())
        except (UnusableInputError, FailedError) as exc:
            await producer.flush()  # what came before is sent
            self._settle()
            if isinstance(exc, FailedError):
                raise
            raise FailedError(f"{self._source.name}, {exc}") from exc
        await producer.flush()
        self._settle()

    async def _append_all(self, client: Client, expected_offset: int) -> None:
        """All rows as one batch, which is appended where the partition is expected to end or not at all."""
        from ...protocol.native.messages import PlainRecord
        from ...protocol.types import CompressionType
        from ..client.appender import Appender

        partition = self._given.partition or 0
        records: list[PlainRecord] = []

        def take(rows: Rows) -> None:
            for row in rows:
                if isinstance(row, BadRow):
                    self._refuse(row)
                else:
                    records.append(PlainRecord(row.timestamp, row.key, row.value, tuple(row.headers)))
                    self._sent_bytes += len(row.key or b"") + len(row.value or b"")

        try:
            while data := await self._source.read():
                self._read_bytes += len(data)
                take(self._reader.feed(data))
            take(self._reader.finish())
        except UnusableInputError as exc:
            raise FailedError(f"{self._source.name}, {exc}") from exc
        if not records:
            return
        appender = Appender(client, compression_type=CompressionType[self._given.compression.upper()])
        appended = await appender.append(self._given.topic, records, partition=partition, expected_offset=expected_offset)
        self._sent = self._records = len(records)
        self._partitions[partition] = [len(records), appended.base_offset, appended.last_offset]
        self._progress.update(done_bytes=self._read_bytes, records=self._records)

    async def _watch(self) -> None:
        """Show what is acknowledged, and notice what is refused, while the input has nothing to say."""
        import trio

        while True:
            await trio.sleep(WATCH_S)
            self._settle()

    async def _send(self, producer: Producer, rows: Rows) -> None:
        from ...protocol.errors import InvalidRequestError

        chosen = self._given.partition
        for row in rows:
            if isinstance(row, BadRow):
                self._refuse(row)
                continue
            if self._retention is not None and self._retention.is_too_old(row.timestamp):
                self._warn_of_retention(self._retention, row)
            try:
                sent = await self._send_row(producer, row)
            except InvalidRequestError as exc:
                if row.partition is None or chosen is not None:
                    raise
                self._refuse(BadRow(row.line, exc.message))
                continue
            self._unsettled.append(sent)
            self._sent += 1
            self._sent_bytes += len(row.key or b"") + len(row.value or b"")
        self._settle()

    async def _send_row(self, producer: Producer, row: Row) -> SentRecord:
        """A checkpoint only while the buffer is full; reading the next piece is one."""
        import trio

        topic, partition = self._given.topic, self._given.partition
        content: dict[str, Any] = {"key": row.key, "timestamp_ms": row.timestamp, "headers": row.headers}
        content["partition"] = row.partition if partition is None else partition
        try:
            return producer.send_nowait(topic, row.value, **content)
        except trio.WouldBlock:
            self._settle()
            return await producer.send(topic, row.value, **content)

    def _settle(self) -> None:
        """Take note of what is acknowledged; raises what a record failed with."""
        unsettled = self._unsettled
        while unsettled and unsettled[0].is_done:
            metadata = unsettled.popleft().value()
            self._records += 1
            seen = self._partitions.get(metadata.partition)
            if seen is None:
                self._partitions[metadata.partition] = [1, metadata.offset, metadata.offset]
            else:
                seen[0] += 1
                seen[2] = metadata.offset
        share = self._records / max(self._sent, 1)
        self._progress.update(done_bytes=round(self._read_bytes * share), records=self._records)

    def _warn_of_retention(self, retention: RetentionWatch, row: Row) -> None:
        """Once."""
        assert row.timestamp is not None
        self._retention = None
        time_text = format_time(row.timestamp, self._given.zone)
        warn(f"Warning: {self._source.name}, line {row.line}: {retention.warning(time_text)}")

    def _refuse(self, row: BadRow) -> None:
        where = f"{self._source.name}, line {row.line}: {row.reason}"
        if self._given.on_error != "skip":
            raise FailedError(f"{where}; --on-error skip leaves such rows out")
        self._skipped += 1
        if self._skipped <= MAX_BAD_ROWS_SHOWN:
            warn(f"skipped {where}")
        elif self._skipped == MAX_BAD_ROWS_SHOWN + 1:
            warn("more rows are skipped without a word")


def _sentence(summary: dict[str, Any]) -> str:
    text = f"produced {count_text(summary['records'], 'record')} to {summary['topic']} in {summary['elapsed_s']:.2f} s: "
    text += f"{summary['records_per_s']:,.0f} records/s, {summary['mb_per_s']:.1f} MB/s"
    return text + (f"; {count_text(summary['skipped'], 'bad row')} skipped\n" if summary["skipped"] else "\n")
