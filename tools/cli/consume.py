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
from .terminal.grammar import ignored, option
from .terminal.output import flush, timezone_option, write
from .terminal.places import POSITION_HELP, position_option, read_position, time_of, time_range
from .terminal.record_formats import Decode, Formatter, formatter
from .terminal.remote import ServerAddress, call_server
from .terminal.shapes import asks_server, only_partitions_option
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
    """The selection of records to print: partitions (none named: all), from a position up to another, at most so many."""

    partitions: tuple[int, ...]
    start: Place
    until: Place | None
    is_exact: bool
    max_records: int | None

    @property
    def times(self) -> TimeRange:
        """The range of times."""
        return time_range(self.start, self.until)

    def matches(self, record: Record) -> bool:
        """Return whether the record's timestamp is in the range; called only for an exact range."""
        return self.times.holds(record.timestamp)


@click.command
@click.argument("topic")
@position_option(
    *("-o", "--offset"),
    times=("--from",),
    means={"--from-beginning": "start"},
    help=f"Start there: {POSITION_HELP}.  [default: start; end with --follow]",
)
@position_option("--until", times=("--to",), help="Stop before this position.")
@click.option("--exact", is_flag=True, help="Select by timestamp, from --offset to before --until, including late records.")
@only_partitions_option
@option(
    "--isolation",
    also=("--isolation-level",),
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Print or hide records of open and aborted transactions.",
)
@option(
    *("-g", "--group"),
    also=("-G", "--group-id"),
    metavar="NAME",
    help="Start at this group's committed offsets, and commit the offsets of printed records.",
)
@click.option(
    "--skip-gaps/--refuse-gaps",
    default=None,
    help="Skip gaps (offsets lost to corruption), or end with an error there.  [default: the topic's gap.policy]",
)
@click.option("--follow", is_flag=True, help="Wait for new records at the end of the log.")
@option(
    *("-n", "--max", "max_records"),
    also=("--max-records", "--max-messages", "--num", "--count", "-c"),
    metavar="N",
    type=click.IntRange(1),
    help="Stop after N records.",
)
@option(
    *("-f", "--format", "format_name"),
    also=("--output",),
    metavar="json|raw|table",
    type=click.Choice(["json", "raw", "table"]),
    help="JSON lines, values alone, or columns.  [default: table on a terminal, else json]",
)
@click.option(
    "--schema-registry",
    "registry_url",
    metavar="URL",
    help="Decode keys and values by the schemas in this registry.  [default: print them as they are]",
)
@ignored("-e", "--exit", "-C", "-q", "-u")
@ignored("--timeout-ms", "--property", "--formatter-property", takes_value=True)
@timezone_option
@asks_server
def command(
    topic: str,
    offset: str | None,
    until: str | None,
    exact: bool,
    partitions: tuple[int, ...],
    isolation: str,
    group: str | None,
    skip_gaps: bool | None,
    follow: bool,
    max_records: int | None,
    format_name: str | None,
    registry_url: str | None,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Print the records of TOPIC up to the end of the log, or with --follow until Ctrl-C.

    The time index turns the times in --offset and --until into a range of offsets. If records are written out of order, that
    range contains records of other times and misses late ones. With --exact the server selects by timestamp instead. --json is
    --format json.

    With --group, --offset applies only to partitions for which the group has no committed offset.
    """
    selection = Selection(
        partitions=partitions,
        start=read_position(offset or ("end" if follow else "start"), zone, "--offset"),
        until=None if until is None else read_position(until, zone, "--until"),
        is_exact=exact,
        max_records=max_records,
    )
    given = [place for text, place in ((offset, selection.start), (until, selection.until)) if text is not None]
    if exact and (not given or None in map(time_of, given)):
        raise click.UsageError("--exact selects by timestamp: give --offset or --until a time, such as 10m")
    if follow and until is not None:
        raise click.UsageError("--until ends the reading and --follow does not. Give one of them")
    name = "json" if as_json else format_name or ("table" if sys.stdout.isatty() else "json")
    printer = Printer(formatter(name, zone, None if registry_url is None else _decoder(registry_url)), selection)

    async def call(client: Client) -> None:
        from trio.lowlevel import enable_ki_protection

        from ..client.consumer import open_consumer

        options: dict[str, Any] = {"isolation": isolation, "group": group, "skip_gaps": skip_gaps}
        async with open_consumer(client, follow=follow, **options) as consumer:
            await _assign(consumer, topic, selection, follow=follow)
            if group is not None:
                await consumer.seek_to_committed()
            printer.start()
            await enable_ki_protection(_print_all)(consumer, printer, commits=group is not None)
            flush()

    call_server(server, call)


def _decoder(url: str) -> Decode:
    """Return what decodes by a registry, whose packages are loaded here."""
    from .terminal.schema_values import SchemaValues, registry_at

    return SchemaValues(registry_at(url)).decode


async def _assign(consumer: Consumer, topic: str, selection: Selection, *, follow: bool) -> None:
    end = None if selection.is_exact else selection.until
    partitions: str | list[TopicPartition] = topic
    if selection.partitions:
        partitions = [TopicPartition(topic, number) for number in dict.fromkeys(selection.partitions)]
    times = selection.times if selection.is_exact and not follow else None
    await consumer.assign(partitions, start=selection.start, end=end, times=times)


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
    """True when --max is reached."""
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
        """Where the batch goes on in which --max was reached."""
        self._matches: Callable[[Record], bool] | None = selection.matches if selection.is_exact else None

    def start(self) -> None:
        """Write what stands before the first record."""
        write(self._formatter.head())

    def print(self, partition: TopicPartition, records: Iterable[Record]) -> bool:
        """Write them; True when --max is reached."""
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
