"""The commands that change existing topics: configuration, number of partitions, log start offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ....protocol.types import TopicPartition
from ..terminal.failures import FailedError
from ..terminal.grammar import nearest, option
from ..terminal.output import count_text, draw, print_json, say, table, timezone_option
from ..terminal.places import POSITION_HELP, position_option, read_position
from ..terminal.remote import ServerAddress
from ..terminal.shapes import (
    ask,
    asks_server,
    check_confirmed,
    columns,
    config_option,
    only_partitions_option,
    read_configs,
    yes_option,
)
from ..terminal.times import Zone

if TYPE_CHECKING:
    from ...client.admin import Admin


@contextlib.contextmanager
def nearest_keys(config: Iterable[str]) -> Iterator[None]:
    """Name the nearest topic key in the error about an unknown one."""
    try:
        yield
    except FailedError as exc:
        if "unknown topic configuration key" not in exc.message:
            raise
        from ....server.config import TOPIC_KEYS

        near = [each[0] for key in config if key not in TOPIC_KEYS and (each := nearest(key, TOPIC_KEYS))]
        raise FailedError(exc.message + (f". Did you mean {near[0]}?" if near else "")) from exc


@click.command
@click.argument("name")
@config_option
@option(
    *("--unset", "unsets"),
    also=("--delete-config", "--delete"),
    multiple=True,
    metavar="KEY",
    help="Return to the server's default (repeatable).",
)
@asks_server
def alter(name: str, configs: tuple[str, ...], unsets: tuple[str, ...], server: ServerAddress, as_json: bool) -> None:
    """Change configuration keys of topic NAME: all of them, or none when one is refused."""
    values = read_configs(configs, "--config")
    if not values and not unsets:
        raise click.UsageError("nothing to change. Give --config KEY=VALUE or --unset KEY")
    if twice := values.keys() & set(unsets):
        raise click.UsageError(f"{', '.join(sorted(twice))} is both set and unset")

    async def changed(admin: Admin) -> dict[str, str]:
        await admin.alter_config(name, values, unsets)
        return (await admin.describe_topic(name)).config

    with nearest_keys(values):
        config = ask(server, changed)
    if as_json:
        print_json({"name": name, "config": config})
    else:
        own = " ".join(f"{key}={value}" for key, value in config.items())
        say(f"{name} overrides {own}" if own else f"{name} overrides nothing")


@click.command("add-partitions")
@click.argument("name")
@click.argument("total", type=click.IntRange(1))
@asks_server
def add_partitions(name: str, total: int, server: ServerAddress, as_json: bool) -> None:
    """Grow topic NAME to TOTAL partitions.

    A record with a key goes to the partition given by the key's hash modulo the number of partitions. After the change, new
    records of a key probably go to another partition than its old records.
    """
    ask(server, lambda admin: admin.create_partitions(name, total))
    if as_json:
        print_json({"name": name, "partitions": total})
    else:
        say(f"{name} has {count_text(total, 'partition')}")


@click.command
@click.argument("name")
@position_option(
    *("-o", "--offset", "position"),
    also=("--before",),
    times=("--before-time",),
    required=True,
    help=f"Delete the records before this position: {POSITION_HELP}.",
)
@only_partitions_option
@yes_option
@timezone_option
@asks_server
def trim(
    name: str,
    position: str,
    partitions: tuple[int, ...],
    yes: bool,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Delete the oldest records of topic NAME. Clients stop seeing them at once. The files are deleted soon after."""
    place = read_position(position, zone, "--offset")

    async def look(admin: Admin) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        from ...client.procedures.topics import EARLIEST

        starts = await admin.offsets(name, EARLIEST)
        wanted = {partition: start for partition, start in starts.items() if not partitions or partition[1] in partitions}
        if missing := set(partitions) - {partition for _, partition in wanted}:
            raise FailedError(f"{name} has no partition {min(missing)}")
        targets = await admin.offsets(name, place)
        return wanted, {partition: max(targets[partition], start) for partition, start in wanted.items()}

    starts, targets = ask(server, look)
    count = sum(targets[partition] - start for partition, start in starts.items())
    question = f"Delete the oldest {count_text(count, 'record')} of {name}?"
    check_confirmed(yes, question, f"{name} was not trimmed; --yes deletes")
    found = ask(server, lambda admin: admin.delete_records(targets))
    if as_json:
        print_json([{**partition._asdict(), "log_start_offset": start} for partition, start in found.items()])
        return
    headings = columns("<topic", ">partition", ">log start before", ">log start")
    rows = [(*map(str, partition), f"{starts[partition]:,}", f"{start:,}") for partition, start in found.items()]
    draw(table(headings, rows))
