"""`triolog groups reset`: let a group read on from another place. Shows what it would do; `--execute` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..terminal.failures import FailedError
from ..terminal.grammar import ignored, option
from ..terminal.output import draw, print_json, say, table, timezone_option
from ..terminal.places import POSITION_HELP, position_option, read_position
from ..terminal.remote import ServerAddress
from ..terminal.shapes import ask, asks_server, columns, only_partitions_option
from ..terminal.times import Zone
from .share_group import number

if TYPE_CHECKING:
    from ...client.admin import Admin
    from ...groups.offsets import Move


@click.command("reset")
@click.argument("group")
@click.argument("topic", required=False)
@click.option("--all-topics", is_flag=True, help="Reset every topic for which the group has offsets.")
@only_partitions_option
@position_option(
    *("-o", "--offset", "position"),
    also=("--to", "--to-offset"),
    times=("--to-time", "--to-datetime"),
    means={"--to-earliest": "start", "--to-latest": "end"},
    help=f"Continue at this position: {POSITION_HELP}.",
)
@option("--shift", also=("--shift-by",), type=int, metavar="N", help="Shift offsets by N records (negative moves back).")
@click.option("--execute", is_flag=True, help="Reset the offsets.  [default: preview only]")
@ignored("--dry-run")
@timezone_option
@asks_server
def command(
    group: str,
    topic: str | None,
    all_topics: bool,
    partitions: tuple[int, ...],
    position: str | None,
    shift: int | None,
    execute: bool,
    zone: Zone,
    server: ServerAddress,
    as_json: bool,
) -> None:
    """Reset the committed offsets of GROUP for TOPIC. A missing group is created.

    Members of a share group get the records after that position again, whether or not they acknowledged them.
    """
    if (topic is None) is not all_topics:
        raise click.UsageError("no topic. Give TOPIC, or --all-topics for all topics with offsets of the group")
    if partitions and topic is None:
        raise click.UsageError("--partition needs one TOPIC")
    if (position is None) is (shift is None):
        raise click.UsageError("no new position. Give either --offset POSITION or --shift N")
    target = shift or 0 if position is None else read_position(position, zone, "--offset")

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
        say("nothing was changed. --execute resets the offsets")


def _row(move: Move) -> tuple[str, ...]:
    numbers = (move.current, move.offset, move.high_watermark, move.lag)
    return move.partition.topic, str(move.partition.partition), *map(number, numbers)
