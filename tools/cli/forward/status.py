"""`triolog forward status` and `top`: what links do, how long their backlog is, what is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..terminal.failures import FailedError, NotConnectedError
from ..terminal.output import count_text, draw, flush, json_line, json_option, printable, size_text, table, terminal, write
from ..terminal.shapes import columns
from ..terminal.times import duration_text
from .asking import ask_link, link_kind, state_dir_option, state_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

SHORTEST_S: Final = 0.1
LONGEST_S: Final = 3600.0
NOT_RUNNING: Final = "not running"


@click.command
@click.argument("links", nargs=-1, metavar="[LINK]...")
@state_dir_option
@json_option
def status(links: tuple[str, ...], state_dir: str | None, as_json: bool) -> None:
    """Show links: state, backlog, rate, losses and problems.

    Exit code 3 when no link is running.
    """
    told = _look(links, state_dir)
    if as_json:
        for each in told:
            write(json_line(each))
        flush()
    else:
        draw(view(told))
    if all(each["state"] == NOT_RUNNING for each in told):
        raise NotConnectedError(f"no process in {state_folder(state_dir)} runs a link")


@click.command
@click.argument("links", nargs=-1, metavar="[LINK]...")
@click.option("--interval", type=click.FloatRange(SHORTEST_S, LONGEST_S), default=1.0, show_default=True, help="Seconds.")
@state_dir_option
@json_option
def top(links: tuple[str, ...], interval: float, state_dir: str | None, as_json: bool) -> None:
    """Watch links, redrawn every second, until Ctrl-C. Without a terminal it prints once."""
    if as_json:
        while True:
            for each in _look(links, state_dir):
                write(json_line(each))
            flush()
            time.sleep(interval)
    console = terminal()
    if not console.is_terminal:
        draw(view(_look(links, state_dir)))
        return
    from rich.live import Live

    with Live(view(_look(links, state_dir)), console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        while True:
            time.sleep(interval)
            live.update(view(_look(links, state_dir)), refresh=True)


def view(told: list[dict[str, Any]]) -> RenderableType:
    """A row for each link, and what stands in the way below. Raises FailedError for what no link answers."""
    try:
        return _view(told)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as exc:
        raise FailedError(f"a link sent a response that this version does not know ({type(exc).__name__}: {exc})") from exc


def _view(told: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from ...forward.errors import NO_SUCH_TOPIC

    headings, row = TABLES[link_kind()]
    cells = [row(each) if each["state"] != NOT_RUNNING else (NOT_RUNNING, *[""] * (len(headings) - 2)) for each in told]
    rows = [(each["link"], *shown) for each, shown in zip(told, cells, strict=True)]
    drawn: list[RenderableType] = [table(columns(*headings), rows)]
    for each in told:
        for topic, message in each.get("troubles", {}).items():
            state, style = ("waits", "yellow") if message == NO_SUCH_TOPIC else ("is stopped", "red")
            drawn.append(Text(f"{printable(each['link'])}: {printable(topic)} {state}: {printable(message)}", style))
        if each.get("error") is not None:
            when = datetime.fromtimestamp(each["error_ms"] / 1000).strftime("%Y-%m-%d %H:%M:%S")
            drawn.append(Text(f"{printable(each['link'])}: {when} {printable(each['error'])}"))
    return Group(*drawn)


def _look(links: tuple[str, ...], state_dir: str | None) -> list[dict[str, Any]]:
    from ...forward.process.place import links_in

    told = []
    for link in links or links_in(state_folder(state_dir)):
        try:
            told.append(ask_link(link, state_dir, {"command": "status"}))
        except NotConnectedError:
            told.append({"link": link, "state": NOT_RUNNING})
    return told


def _forward_row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["state"],
        count_text(each["backlog_records"], "record"),
        size_text(each["backlog_bytes"]),
        duration_text(each["backlog_ms"] / 1000),
        f"{size_text(int(each['bytes_per_second']))}/s",
        "" if each["eta_s"] is None else duration_text(each["eta_s"]),
        count_text(each["records"], "record"),
        count_text(each["lost_records"], "record"),
    )


def _ingest_row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["state"],
        each["delivery"],
        count_text(each["records"], "record"),
        f"{each['records_per_second']:,.0f}/s",
        f"{size_text(int(each['bytes_per_second']))}/s",
        count_text(each["duplicates"], "message"),
        count_text(each["dead_letter_records"], "record"),
    )


TABLES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], tuple[str, ...]]]]] = {
    "forward": (("<link", "<state", ">backlog", ">bytes", ">behind", ">rate", ">left", ">forwarded", ">lost"), _forward_row),
    "ingest": (("<link", "<state", "<delivery", ">stored", ">rate", ">bytes", ">duplicates", ">dead letters"), _ingest_row),
}
"""Headings, and the cells of a link after its name."""
