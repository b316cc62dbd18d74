"""`triolog connections`: who is connected to a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from ..terminal.output import draw, print_json, printable, size_text, table
from ..terminal.remote import ServerAddress
from ..terminal.shapes import NOT_KNOWN, ask, asks_server, columns, known_values, limit_option, say_left_out
from ..terminal.times import duration_text

if TYPE_CHECKING:
    from ....protocol.native.messages import ListedConnection

COLUMNS: Final = columns(
    *("<peer", "<protocol", "<client id", "<software", "<user"),
    *(">for", ">requests", ">in flight", ">received", ">sent", "<"),
)


@click.command
@limit_option
@asks_server
def command(limit: int, server: ServerAddress, as_json: bool) -> None:
    """List the connections of a server, the oldest of each listener first, including the connection of this command.

    Bytes are counted on the wire since the connection opened.
    """
    answer = ask(server, lambda admin: admin.list_connections(limit))
    if as_json:
        listed = [known_values(each.to_body()) for each in answer.connections]
        print_json({"connections": listed, "left_out": answer.left_out})
        return
    if answer.connections:
        now_ms = time.time() * 1000
        draw(table(COLUMNS, [_cells(each, now_ms) for each in answer.connections]))
    say_left_out(answer.left_out, "connection")


def _cells(each: ListedConnection, now_ms: float) -> list[str]:
    signs = [*(["TLS"] if each.is_encrypted else []), *(["throttled"] if each.is_throttled else [])]
    return [
        printable(each.peer),
        printable(each.protocol),
        printable(each.client_id) or NOT_KNOWN,
        printable(f"{each.software_name} {each.software_version}".strip()) or NOT_KNOWN,
        printable(each.user),
        duration_text(max(0.0, now_ms - each.since_timestamp) / 1000),
        f"{each.requests:,}",
        f"{each.requests_in_flight:,}",
        _size(each.received_bytes),
        _size(each.sent_bytes),
        ", ".join(signs),
    ]


def _size(size_bytes: int) -> str:
    return NOT_KNOWN if size_bytes < 0 else size_text(size_bytes)
