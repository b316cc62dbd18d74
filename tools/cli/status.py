"""`triolog status`: one screen about a server, and an exit code that says whether it works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from .terminal.failures import EXIT_FAILED
from .terminal.output import count_text, draw, print_json, printable
from .terminal.remote import ServerAddress, call_server
from .terminal.shapes import asks_server

if TYPE_CHECKING:
    from ..client.connection import Client


MAX_TROUBLES: Final = 10
"""Shown of each mirror."""


@click.command
@asks_server
def command(server: ServerAddress, as_json: bool) -> None:
    """Show on one screen whether a server works: logs, disks, connections, lag, problems.

    Exit code 0: the server works. 1: it has a problem, which the last lines name. 3: it cannot be reached.
    """
    from ..statistics.rates import moment

    async def look(client: Client) -> dict[str, Any]:
        from ..client.admin import Admin

        statistics = await Admin(client).statistics()
        return {"version": (await client.hello()).version, **moment(statistics, statistics)}

    now = call_server(server, look)
    problems = list(_problems(now))
    if as_json:
        names = (
            *("version", "time_ms", "connections", "topic_count", "partitions"),
            *("log_bytes", "groups", "lag", "directories", "clock", "mirrors"),
        )
        print_json({"is_healthy": not problems, "problems": problems, **{name: now[name] for name in names}})
    else:
        _draw(now, str(server), problems)
    if problems:
        raise click.exceptions.Exit(EXIT_FAILED)


def _problems(now: dict[str, Any]) -> Iterator[str]:
    for each in now["directories"]:
        if each["error"] is not None:
            yield f"log directory {each['path']} is out of service: {each['error']}. Check the device and restart"
        elif each["is_refusing"]:
            yield f"log directory {each['path']} is full: appends are refused. Free space or delete records"
    if now["partitions_offline"]:
        yield f"{count_text(now['partitions_offline'], 'partition')} offline. `triolog topics list` shows the topics"
    if now["failed_syncs"]:
        yield f"{count_text(now['failed_syncs'], 'sync')} failed. Check the device"


def _draw(now: dict[str, Any], server: str, problems: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from .top.view import directory_text, logs_text, loss_window, mirror_rows

    screen = Table.grid(padding=(0, 2))
    screen.add_row(
        Text("server", "bold"),
        Text(f"{server}, version {printable(now['version'])}, {'has problems' if problems else 'works'}"),
    )
    screen.add_row("logs", logs_text(now))
    connections = ", ".join(f"{count:,} {name}" for name, count in sorted(now["connections"].items()))
    screen.add_row("connections", connections)
    screen.add_row("lag", f"{count_text(now['lag'], 'record')} in {count_text(now['groups'], 'group')}")
    screen.add_row("loss window", loss_window(now))
    if (clock := _clock(now)) is not None:
        screen.add_row("clock", Text(clock, "yellow"))
    for directory in now["directories"]:
        screen.add_row("disk", directory_text(directory, None))
    for row in mirror_rows(now["mirrors"], MAX_TROUBLES):
        screen.add_row(*row)
    if now["insecure"]:
        listeners = ", ".join(map(printable, now["insecure"]))
        screen.add_row("insecure", Text(f"other machines can use {listeners} without a login", "yellow"))
    for problem in problems:
        screen.add_row(Text("problem", "red"), Text(printable(problem), "red"))
    draw(screen)


def _clock(now: dict[str, Any]) -> str | None:
    """Return what is wrong with the server's clock. None: nothing, or the server is too old to say."""
    clock = now["clock"] or {"is_trusted": True}
    if clock["is_trusted"]:
        return None
    if clock["is_plausible"]:
        return "it has jumped: retention.ms and expiry are suspended for an hour"
    return "the wall clock is wrong: append times continue from the last trusted time, retention.ms and expiry are suspended"
