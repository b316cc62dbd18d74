"""`triolog connections`: who is connected to a server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from ..terminal.output import count_text, draw, json_option, print_json, printable, say, size_text, table
from ..terminal.remote import ServerAddress, call_server, server_option
from ..terminal.times import duration_text

if TYPE_CHECKING:
    from ....protocol.native.messages import ListConnectionsResponse, ListedConnection
    from ...client.connection import Client

MOST: Final = 10_000
COLUMNS: Final = {
    "peer": "left",
    "protocol": "left",
    "client id": "left",
    "software": "left",
    "user": "left",
    "for": "right",
    "requests": "right",
    "in flight": "right",
    "received": "right",
    "sent": "right",
    "": "left",
}
NOTHING: Final = "-"


@click.command
@click.option("--limit", type=click.IntRange(0, MOST), default=1_000, show_default=True, help="At most so many.")
@server_option
@json_option
def command(limit: int, server: ServerAddress, as_json: bool) -> None:
    """List the connections of a server, the oldest of each listener first; this command's own is one of them.

    Bytes are those on the wire since the connection began.
    """

    async def call(client: Client) -> ListConnectionsResponse:
        from ...client.admin import Admin

        return await Admin(client).list_connections(limit)

    answer = call_server(server, call)
    if as_json:
        print_json({"connections": [_as_json(each) for each in answer.connections], "left_out": answer.left_out})
        return
    if answer.connections:
        now_ms = time.time() * 1000
        draw(table(COLUMNS, [_cells(each, now_ms) for each in answer.connections]))
    if answer.left_out:
        say(f"{count_text(answer.left_out, 'more connection')}; --limit shows more, up to {MOST:,}")


def _cells(each: ListedConnection, now_ms: float) -> list[str]:
    signs = [*(["TLS"] if each.is_encrypted else []), *(["throttled"] if each.is_throttled else [])]
    return [
        printable(each.peer),
        printable(each.protocol),
        printable(each.client_id) or NOTHING,
        printable(f"{each.software_name} {each.software_version}".strip()) or NOTHING,
        printable(each.user),
        duration_text(max(0.0, now_ms - each.since_timestamp) / 1000),
        f"{each.requests:,}",
        f"{each.requests_in_flight:,}",
        _size(each.received_bytes),
        _size(each.sent_bytes),
        ", ".join(signs),
    ]


def _size(size_bytes: int) -> str:
    return NOTHING if size_bytes < 0 else size_text(size_bytes)


def _as_json(each: ListedConnection) -> dict[str, Any]:
    """What the client has not said, or the system does not tell, as null."""
    return {key: None if value in ("", -1) else value for key, value in each.to_body().items()}
