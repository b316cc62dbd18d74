"""`triolog transactions`: what producers have open, who holds committed readers up, and how that is ended (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ....protocol.types import TopicPartition
from ..terminal.failures import FailedError
from ..terminal.grammar import Group
from ..terminal.output import draw, print_json, printable, say, table, timezone_option
from ..terminal.remote import ServerAddress
from ..terminal.shapes import (
    NOT_KNOWN,
    ask,
    asks_server,
    check_confirmed,
    columns,
    known_values,
    limit_option,
    only_partitions_option,
    say_left_out,
    yes_option,
)
from ..terminal.times import Zone, format_time

if TYPE_CHECKING:
    from ....protocol.native.messages import DescribedTransaction, DescribeProducersPartitionResponse
    from ...client.admin import Admin

STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
LIST_COLUMNS: Final = columns(
    *("<transactional id", "<state", ">producer id", ">epoch", ">partitions", ">open for", ">timeout", "<last used")
)
PRODUCER_COLUMNS: Final = columns(
    *(">partition", ">producer id", ">epoch", ">last sequence", "<last wrote", ">open since offset", "<")
)


@click.group(cls=Group)
def command() -> None:
    """List and describe transactions, and abort those that stay open."""


@command.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    metavar="STATE",
    help=f"Only in this state: {', '.join(STATES)}.",
)
@click.option(
    "--open-for", type=click.FloatRange(0), metavar="SECONDS", help="Only transactions that have been open this long."
)
@limit_option
@timezone_option
@asks_server
def list_transactions(
    states: tuple[str, ...], open_for: float | None, limit: int, zone: Zone, server: ServerAddress, as_json: bool
) -> None:
    """List transactional ids: first the open ones, oldest first, then the most recently used."""
    open_for_ms = None if open_for is None else round(open_for * 1000)
    answer = ask(
        server,
        lambda admin: admin.list_transactions(states=states or None, open_for_ms=open_for_ms, max_transactions=limit),
    )
    if as_json:
        listed = [known_values(each.to_body()) for each in answer.transactions]
        print_json({"transactions": listed, "left_out": answer.left_out})
        return
    if answer.transactions:
        draw(table(LIST_COLUMNS, [_cells(each, each.partition_count, zone) for each in answer.transactions]))
    elif not answer.left_out:
        say("no such transactions" if states or open_for is not None else f"{server} knows no transactional ids")
    say_left_out(answer.left_out, "transactional id")


@command.command
@click.argument("transactional_ids", metavar="ID...", nargs=-1, required=True)
@timezone_option
@asks_server
def describe(transactional_ids: tuple[str, ...], zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """Show transactional IDs with the partitions that have joined their transactions."""
    described = ask(server, lambda admin: admin.describe_transactions(*transactional_ids))
    if as_json:
        print_json([_described_json(each) for each in described])
        return
    known = [each for each in described if each.error is None]
    if known:
        draw(table(LIST_COLUMNS, [_cells(each, len(each.partitions), zone) for each in known]))
    for each in known:
        if each.partitions:
            places = ", ".join(f"{printable(place.topic)}-{place.partition}" for place in each.partitions)
            say(f"{printable(each.transactional_id)} has joined {places}")
    _check_errors(described)


@command.command
@click.argument("topic")
@only_partitions_option
@click.option("--open", "open_only", is_flag=True, help="Only producers with an open transaction.")
@limit_option
@timezone_option
@asks_server
def producers(
    topic: str,
    partitions: tuple[int, ...],
    open_only: bool,
    limit: int,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Show the producer state of TOPIC's partitions, and their hanging transactions.

    A transaction hangs when it is open on a partition and belongs to no transactional id. Readers of committed records wait
    there, until the server aborts it after transaction_max_timeout_ms, or you abort it.
    """
    wanted: list[str | TopicPartition] = [TopicPartition(topic, number) for number in partitions] or [topic]
    answers = ask(server, lambda admin: admin.describe_producers(*wanted, open_only=open_only, max_producers=limit))
    if as_json:
        print_json([_producers_json(each) for each in answers])
        return
    rows = [_producer_cells(answer.partition, each, zone) for answer in answers for each in answer.producers]
    if rows:
        draw(table(PRODUCER_COLUMNS, rows))
    else:
        say(f"no producer {'has a transaction open' if open_only else 'is remembered'} in {printable(topic)}")
    say_left_out(sum(each.left_out for each in answers), "producer")
    _check_errors(answers)


@command.command
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("--topic", help="Topic of the hanging transaction.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Partition of the hanging transaction.")
@click.option("--producer-id", type=click.IntRange(0), help="Producer of the hanging transaction.")
@yes_option
@asks_server
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    yes: bool,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Abort the open transaction of a transactional ID, or a hanging one, by --topic, --partition and --producer-id.

    Readers of committed records never see its records. Its producer can only abort, too.
    """
    hanging = (topic, partition, producer_id)
    if (transactional_id is None) == (None in hanging) or (transactional_id is not None and hanging != (None,) * 3):
        raise click.UsageError(
            "no transaction. Give a transactional ID, or --topic, --partition and --producer-id of a hanging one"
        )
    if transactional_id is not None:
        what = f"the transaction of {printable(transactional_id)}"
    else:
        what = f"the transaction of producer {producer_id} on {printable(str(topic))}-{partition}"
    check_confirmed(yes, f"Abort {what}?", f"{what} was not aborted; --yes does it")

    async def aborted(admin: Admin) -> int | None:
        if transactional_id is not None:
            await admin.abort_transaction(transactional_id)
            return None
        assert topic is not None
        assert partition is not None
        assert producer_id is not None
        return await admin.abort_hanging_transaction(TopicPartition(topic, partition), producer_id)

    start = ask(server, aborted)
    if not as_json:
        say(f"aborted {what}" + ("" if start is None else f", open since offset {start:,}"))
    elif transactional_id is not None:
        print_json({"transactional_id": transactional_id, "aborted": True})
    else:
        place = {"topic": topic, "partition": partition, "producer_id": producer_id}
        print_json({**place, "aborted": True, "start_offset": start})


def _check_errors(answers: Sequence[Any]) -> None:
    if wrong := [each for each in answers if each.error is not None]:
        raise FailedError("; ".join(printable(str(each.error)) for each in wrong))


def _cells(each: Any, partitions: int, zone: Zone) -> list[str]:
    return [
        printable(each.transactional_id),
        each.state,
        str(each.producer_id),
        str(each.producer_epoch),
        f"{partitions:,}",
        NOT_KNOWN if each.open_ms < 0 else f"{each.open_ms / 1000:,.1f} s",
        f"{each.timeout_ms / 1000:,g} s",
        _time(each.last_update_timestamp, zone),
    ]


def _producer_cells(partition: int, each: Any, zone: Zone) -> list[str]:
    is_open = each.transaction_start_offset >= 0
    return [
        str(partition),
        str(each.producer_id),
        str(each.producer_epoch),
        NOT_KNOWN if each.last_sequence < 0 else f"{each.last_sequence:,}",
        _time(each.last_timestamp, zone),
        f"{each.transaction_start_offset:,}" if is_open else NOT_KNOWN,
        "hanging" if each.is_hanging else "open" if is_open else "",
    ]


def _time(timestamp: int, zone: Zone) -> str:
    return NOT_KNOWN if timestamp < 0 else format_time(timestamp, zone)


def _described_json(each: DescribedTransaction) -> dict[str, Any]:
    if each.error is not None:
        return {"transactional_id": each.transactional_id, "error": str(each.error)}
    return known_values(each.to_body())


def _producers_json(answer: DescribeProducersPartitionResponse) -> dict[str, Any]:
    if answer.error is not None:
        return {"topic": answer.topic, "partition": answer.partition, "error": str(answer.error)}
    return {**answer.to_body(), "producers": [known_values(each.to_body()) for each in answer.producers]}
