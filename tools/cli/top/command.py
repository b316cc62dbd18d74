"""`triolog top`: what a server does right now, redrawn every second; for programs a line of JSON each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from ...statistics.rates import moment
from ..terminal.output import draw, flush, json_line, terminal, timezone_option, write
from ..terminal.remote import ServerAddress
from ..terminal.shapes import ask, asks_server
from ..terminal.times import Zone

if TYPE_CHECKING:
    from ...client.admin import Admin

SHORTEST_S: Final = 0.1
LONGEST_S: Final = 3600.0
ROWS_ONCE: Final = 20
LINES_BESIDE_TABLES: Final = 22
"""Of the live view: the lines above the tables, and the tables' own heads."""
TABLES: Final = 3


@click.command
@click.option("--interval", type=click.FloatRange(SHORTEST_S, LONGEST_S), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Measure one interval, print it, and end.")
@timezone_option
@asks_server
def command(interval: float, once: bool, zone: Zone, server: ServerAddress, as_json: bool) -> None:
    """Watch a running server: rates, lag, connections, disk, loss window, sync times.

    Ends with Ctrl-C. Without a terminal and without JSON output it prints once.
    """

    async def watch(admin: Admin) -> None:
        watcher = Watcher(admin, interval)
        await watcher.begin()
        if as_json:
            await _print_lines(watcher, once=once)
        elif once or not terminal().is_terminal:
            from .view import view

            draw(view(await watcher.next(), str(server), zone, rows=ROWS_ONCE))
        else:
            await _live(watcher, server, zone)

    ask(server, watch)


class Watcher:
    """A moment every `interval` seconds."""

    def __init__(self, admin: Admin, interval: float) -> None:
        self._admin = admin
        self._interval = interval
        self._before: dict[str, Any] = {}
        self._due = 0.0

    async def begin(self) -> None:
        """The first look, with which others are compared."""
        import trio

        self._before, self._due = await self._admin.statistics(), trio.current_time()

    async def next(self) -> dict[str, Any]:
        """Wait until the next one is due; one that is late does not hurry those behind it."""
        import trio

        self._due = max(self._due + self._interval, trio.current_time())
        await trio.sleep_until(self._due)
        after = await self._admin.statistics()
        told, self._before = moment(self._before, after), after
        return told


async def _print_lines(watcher: Watcher, *, once: bool) -> None:
    while True:
        write(json_line(await watcher.next()))
        flush()
        if once:
            return


async def _live(watcher: Watcher, server: ServerAddress, zone: Zone) -> None:
    from rich.live import Live
    from rich.text import Text

    from .view import view

    console = terminal()
    with Live(Text(f"looking at {server}"), console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        while True:
            told = await watcher.next()
            rows = max(1, (console.height - LINES_BESIDE_TABLES) // TABLES)
            live.update(view(told, str(server), zone, rows=rows), refresh=True)
