"""What a browser sends and takes, over trio: cookies, the token of a page, streams of events. It runs no scripts."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from http.cookies import SimpleCookie
from typing import Any, Final, NamedTuple

import attrs
import h11
import trio

PATIENCE_S: Final = 60.0
FIRST: Final = re.compile(r'<script type="application/json" id="first">(.*?)</script>', re.DOTALL)
TOKEN: Final = re.compile(r'<meta name="csrf-token" content="([0-9a-f]+)">')


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def first(self) -> Any:
        """The value that lies in a page."""
        found = FIRST.search(self.text)
        assert found is not None, self.text
        return json.loads(found[1])


class Event(NamedTuple):
    name: str
    value: Any


@attrs.define
class Browser:
    """A browser's memory of one console. Each request has a connection of its own."""

    address: tuple[str, int]
    cookies: dict[str, str] = attrs.field(factory=dict)
    token: str = ""

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.request("GET", path, headers=headers)

    async def open(self, path: str) -> Reply:
        """A page, whose token is kept."""
        reply = await self.get(path)
        if (found := TOKEN.search(reply.text)) is not None:
            self.token = found[1]
        return reply

    async def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.request(
            "POST", path, json.dumps({} if body is None else body).encode(), headers=self._changing(headers)
        )

    async def delete(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.request(
            "DELETE", path, json.dumps({} if body is None else body).encode(), headers=self._changing(headers)
        )

    def _changing(self, headers: dict[str, str]) -> dict[str, str]:
        return {"content_type": "application/json", "x_csrf_token": self.token, **headers}

    async def request(self, method: str, path: str, body: bytes = b"", *, headers: dict[str, str] | None = None) -> Reply:
        """`headers` have `_` for `-`."""
        with trio.fail_after(PATIENCE_S):
            async with await trio.open_tcp_stream(*self.address) as stream:
                connection = h11.Connection(h11.CLIENT)
                await stream.send_all(self._head(connection, method, path, body, headers or {}))
                return await self._reply(stream, connection)

    @asynccontextmanager
    async def events(self, path: str) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of a stream; leaving the block closes its connection."""
        async with await trio.open_tcp_stream(*self.address) as stream:
            connection = h11.Connection(h11.CLIENT)
            await stream.send_all(self._head(connection, "GET", path, b"", {}))
            head = await _next_event(stream, connection)
            assert isinstance(head, h11.Response)
            assert head.status_code == 200, head
            async with aclosing(_events(stream, connection)) as events:
                yield events

    def _head(self, connection: h11.Connection, method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        host, port = self.address
        named = {"host": f"{host}:{port}", "content-length": str(len(body))}
        if self.cookies:
            named["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = h11.Request(method=method, target=path, headers=list(named.items()))
        sent = [
            connection.send(request),
            *([connection.send(h11.Data(data=body))] if body else []),
            connection.send(h11.EndOfMessage()),
        ]
        return b"".join(piece or b"" for piece in sent)

    async def _reply(self, stream: trio.SocketStream, connection: h11.Connection) -> Reply:
        head = await _next_event(stream, connection)
        assert isinstance(head, h11.Response), head
        body = bytearray()
        while isinstance(event := await _next_event(stream, connection), h11.Data):
            body += event.data
        headers = {name.decode(): value.decode() for name, value in head.headers}
        for morsel in SimpleCookie(headers.get("set-cookie", "")).values():
            self.cookies[morsel.key] = morsel.value
        return Reply(head.status_code, headers, bytes(body))


async def _events(stream: trio.SocketStream, connection: h11.Connection) -> AsyncGenerator[Event, None]:
    text = ""
    while isinstance(event := await _next_event(stream, connection), h11.Data):
        text += event.data.decode()
        *whole, text = text.split("\n\n")
        for each in whole:
            fields = dict(line.split(": ", 1) for line in each.splitlines())
            if "event" in fields:
                yield Event(fields["event"], json.loads(fields["data"]))


async def _next_event(stream: trio.SocketStream, connection: h11.Connection) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        with trio.fail_after(PATIENCE_S):
            connection.receive_data(await stream.receive_some(65536))
    return event
