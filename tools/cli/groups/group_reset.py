"""`triolog groups reset`: let a group read on from another place. Shows what it would do; `--execute` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..terminal.failures import FailedError
from ..terminal.output import draw, print_json, say, table, timezone_option
from ..terminal.places import TIME_HELP, read_offset, read_time
from ..terminal.remote import ServerAddress
from ..terminal.shapes import ask, asks_server, columns
from ..terminal.times import Zone
from .share_group import number

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...client.procedures.topics import Place
    from ...groups.offsets import Move


@click.command("reset")
@click.argument("group")
@click.argument("topic", required=False)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets for.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated.")
@click.option("--to", "to_offset", metavar="N|earliest|latest", help="Read on from this offset.")
@click.option("--to-time", metavar="TIME", help=f"Read on from the first record at or after: {TIME_HELP}.")
@click.option("--shift", type=int, metavar="N", help="Go so many records on, or back when it is negative.")
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@timezone_option
@asks_server
def command(
    group: str,
    topic: str | None,
    all_topics: bool,
    partitions: tuple[int, ...],
    to_offset: str | None,
    to_time: str | None,
    shift: int | None,
    execute: bool,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Let GROUP read TOPIC on from another place, forwards or backwards. A group that is not there is made.

    A share group is given what lies behind that place once more, done or not.
    """
    if (topic is None) is not all_topics:
        raise click.UsageError("name a TOPIC, or all that the group has offsets for with --all-topics")
    if partitions and topic is None:
        raise click.UsageError("--partition belongs to one TOPIC")
    target = _read_target(to_offset, to_time, shift, zone)

    async def moved(admin: Admin) -> list[Move]:
        from ...groups.offsets import ResetError, reset, resettable
        from ...groups.offsets import moves as planned

        try:
            described = await resettable(admin, group)
            moves = await planned(admin, described, topic, partitions, target)
        except ResetError as exc:
            raise FailedError(str(exc)) from exc
        if execute:
            await reset(admin, described, {move.partition: move.offset for move in moves})
        return moves

    moves = ask(server, moved)
    if as_json:
        print_json({"group": group, "executed": execute, "offsets": [move.entry() for move in moves]})
        return
    headings = columns("<topic", ">partition", ">now at", ">goes to", ">high watermark", ">lag")
    draw(table(headings, [_row(move) for move in moves], title=f"group {group}"))
    if not execute:
        say("nothing was changed; --execute does it")


def _read_target(to_offset: str | None, to_time: str | None, shift: int | None, zone: Zone) -> int | Place:
    from ...client.procedures.topics import AtTime

    if [to_offset, to_time, shift].count(None) != 2:
        raise click.UsageError("--to N, --to-time TIME or --shift N says where to; give one of them")
    if to_offset is not None:
        return read_offset(to_offset, "--to")
    return AtTime(read_time(to_time, zone, "--to-time")) if to_time is not None else shift or 0


def _row(move: Move) -> tuple[str, ...]:
    numbers = (move.current, move.offset, move.high_watermark, move.lag)
    return move.partition.topic, str(move.partition.partition), *map(number, numbers)
