"""`triolog consume`: print the records of a topic, from an offset or a time on."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from ...protocol.types import Record, TimeRange, TopicPartition
from .terminal.output import flush, timezone_option, write
from .terminal.places import TIME_HELP, read_offset, read_time
from .terminal.record_formats import Formatter, formatter
from .terminal.remote import ServerAddress, call_server
from .terminal.shapes import asks_server
from .terminal.times import Zone

if TYPE_CHECKING:
    from ..client.connection import Client
    from ..client.consumer import Consumer
    from ..client.procedures.topics import Place
    from ..client.reading import FetchedBatch


COMMIT_INTERVAL_S: Final = 5.0
"""Kafka's auto.commit.interval.ms."""
LAST_COMMIT_S: Final = 2.0
"""How long Ctrl-C may wait for a commit: whoever pressed it waits, too."""


@attrs.frozen(kw_only=True)
class Selection:
    """The selection of records to print: partitions (none named: all), a range of times, at most so many."""

    partitions: tuple[int, ...]
    from_ms: int | None
    to_ms: int | None
    is_exact: bool
    max_records: int | None

    @property
    def times(self) -> TimeRange:
        """The range of times."""
        everything = TimeRange()
        return TimeRange(
            everything.start if self.from_ms is None else self.from_ms, everything.end if self.to_ms is None else self.to_ms
        )

    def matches(self, record: Record) -> bool:
        """Return whether the record's timestamp is in the range; called only for an exact range."""
        return self.times.holds(record.timestamp)


@click.command
@click.argument("topic")
@click.option("--from", "from_time", metavar="TIME", help=f"Start at the first record at or after: {TIME_HELP}.")
@click.option("--to", "to_time", metavar="TIME", help="Stop before the first record at or after this time.")
@click.option("--exact", is_flag=True, help="Exactly the records from --from until before --to, also those written late.")
@click.option("--offset", metavar="N|earliest|latest", help="Start at this offset.  [default: earliest; latest with --follow]")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are printed.",
)
@click.option("--group", metavar="NAME", help="Start where this group is, and commit what is printed.")
@click.option(
    "--skip-gaps/--refuse-gaps",
    default=None,
    help="Pass over offsets that damage took out of the log, or end with an error there.  [default: the topic's gap.policy]",
)
@click.option("--follow", is_flag=True, help="Wait for new records at the end of the log.")
@click.option("--max-records", type=click.IntRange(1), help="Stop after so many.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["json", "raw", "table"]),
    help="JSON lines, values alone, or columns.  [default: table on a terminal, else json]",
)
@timezone_option
@asks_server
def command(
    topic: str,
    from_time: str | None,
    to_time: str | None,
    exact: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    isolation: str,
    group: str | None,
    skip_gaps: bool | None,
    follow: bool,
    max_records: int | None,
    format_name: str | None,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Print the records of TOPIC up to the end of the log, or with --follow for ever.

    --from and --to are looked up in the time index and bound a range of offsets. Where records are written out of the
    order of their times, the range holds some of other times and misses the late ones; --exact prints those that have
    the time, wherever they lie: the server finds them. --json is --format json.

    With --group, --offset and --from say where to start only in partitions that the group has no offset for.
    """
    if offset is not None and from_time is not None:
        raise click.UsageError("--offset and --from both say where to start; give one of them")
    if exact and from_time is None and to_time is None:
        raise click.UsageError("--exact needs --from or --to")
    if follow and to_time is not None:
        raise click.UsageError("--to ends the reading and --follow does not; give one of them")
    selection = Selection(
        partitions=partitions,
        from_ms=None if from_time is None else read_time(from_time, zone, "--from"),
        to_ms=None if to_time is None else read_time(to_time, zone, "--to"),
        is_exact=exact,
        max_records=max_records,
    )
    name = "json" if as_json else format_name or ("table" if sys.stdout.isatty() else "json")
    start = _start(selection, offset or ("latest" if follow else "earliest"))
    printer = Printer(formatter(name, zone), selection)

    async def call(client: Client) -> None:
        from trio.lowlevel import enable_ki_protection

        from ..client.consumer import open_consumer

        options: dict[str, Any] = {"isolation": isolation, "group": group, "skip_gaps": skip_gaps}
        async with open_consumer(client, follow=follow, **options) as consumer:
            await _assign(consumer, topic, start, selection, follow=follow)
            if group is not None:
                await consumer.seek_to_committed()
            printer.start()
            await enable_ki_protection(_print_all)(consumer, printer, commits=group is not None)
            flush()

    call_server(server, call)


def _start(selection: Selection, offset: str) -> Place:
    from ..client.procedures.topics import AtTime

    return read_offset(offset, "--offset") if selection.from_ms is None else AtTime(selection.from_ms)


async def _assign(consumer: Consumer, topic: str, start: Place, selection: Selection, *, follow: bool) -> None:
    from ..client.procedures.topics import AtTime

    end = None if selection.to_ms is None or selection.is_exact else AtTime(selection.to_ms)
    partitions: str | list[TopicPartition] = topic
    if selection.partitions:
        partitions = [TopicPartition(topic, number) for number in dict.fromkeys(selection.partitions)]
    times = selection.times if selection.is_exact and not follow else None
    await consumer.assign(partitions, start=start, end=end, times=times)


async def _print_all(consumer: Consumer, printer: Printer, *, commits: bool) -> None:
    """Each batch is handed to the reader as a whole, so that a follower sees records as they come. What is committed was
    handed over; a crash in between prints it again. Ctrl-C comes where it waits or hands over, never in between."""
    import trio

    hand_over = trio.lowlevel.disable_ki_protection(_hand_over)
    commit_at = math.inf
    printing: FetchedBatch | None = None
    try:
        while True:
            with trio.move_on_at(commit_at) as waiting:
                batch = await consumer.next_batch()
            if waiting.cancelled_caught:  # also when no batch comes any more
                await consumer.commit()
                commit_at = math.inf
                continue
            if batch is None:
                break
            printing = batch
            is_enough = hand_over(printer, batch)
            printing = None
            if is_enough:
                break
            if commits:
                commit_at = min(commit_at, trio.current_time() + COMMIT_INTERVAL_S)
    except (KeyboardInterrupt, trio.Cancelled):  # Ctrl-C is how following ends
        if commit_at < math.inf:
            await _commit_at_last(consumer, printing)
        raise
    if commits:
        await consumer.commit(consumer.positions() | printer.cut_short)


def _hand_over(printer: Printer, batch: FetchedBatch) -> bool:
    """True when --max-records is reached."""
    is_enough = printer.print(batch.partition, batch.records())
    flush()
    return is_enough


async def _commit_at_last(consumer: Consumer, unprinted: FetchedBatch | None) -> None:
    """Commit before the command ends, if that is done soon; without the batch that was only partly handed over."""
    import trio

    from ...protocol.errors import TriologError

    positions = consumer.positions()
    if unprinted is not None:
        positions[unprinted.partition] = max(unprinted.first_offset, unprinted.header.base_offset)
    with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_COMMIT_S), contextlib.suppress(TriologError):
        await consumer.commit(positions)


class Printer:
    """Writes the records that are wanted, until there are enough. Owner: the command."""

    def __init__(self, formatter: Formatter, selection: Selection) -> None:
        self._formatter = formatter
        self._remaining = selection.max_records
        self.cut_short: dict[TopicPartition, int] = {}
        """Where the batch goes on in which --max-records was reached."""
        self._matches: Callable[[Record], bool] | None = selection.matches if selection.is_exact else None

    def start(self) -> None:
        """Write what stands before the first record."""
        write(self._formatter.head())

    def print(self, partition: TopicPartition, records: Iterable[Record]) -> bool:
        """Write them; True when --max-records is reached."""
        if self._matches is not None:
            records = filter(self._matches, records)
        found = list(records)
        wanted = found[: self._remaining]
        if len(wanted) < len(found):
            self.cut_short[partition] = found[len(wanted)].offset
        write(b"".join([self._formatter.record(partition, record) for record in wanted]))
        if self._remaining is not None:
            self._remaining -= len(wanted)
        return self._remaining == 0
