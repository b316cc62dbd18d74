"""The HTTP listener: what it answers, what it refuses, and how connections end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Listener
from triolog.server.listeners.http import session as http
from triolog.server.listeners.http.access import HttpAnswer, HttpRequest, Send, Stream
from triolog.server.listeners.http.server import http_listener

LOCALHOST = Address("127.0.0.1", 0)


async def echo(request: HttpRequest) -> HttpAnswer:
    """What was asked, as JSON; /bug is one."""
    if request.path == "/bug":
        raise ValueError("a bug")
    return HttpAnswer.json(200, [request.method, request.path, request.query, request.body.decode()])


@asynccontextmanager
async def listening(**options: int) -> AsyncIterator[tuple[Listener, Address]]:
    async with trio.open_nursery() as nursery:
        listener = http_listener(LOCALHOST, echo, **options)
        yield listener, await nursery.start(listener.run)
        nursery.cancel_scope.cancel()


async def exchange(address: Address, *pieces: bytes) -> bytes:
    """Everything that is answered to these bytes, until the server closes."""
    async with await trio.open_tcp_stream(*address) as stream:
        for piece in pieces:
            await stream.send_all(piece)
        return await rest(stream)


async def rest(stream: trio.SocketStream) -> bytes:
    """What comes until the end."""
    answer = b""
    with trio.fail_after(30):
        while data := await stream.receive_some(65536):
            answer += data
    return answer


def request(head: str, body: bytes = b"", *, closes: bool = True) -> bytes:
    lines = [head, "Host: h", f"Content-Length: {len(body)}", *(["Connection: close"] if closes else []), "", ""]
    return "\r\n".join(lines).encode() + body


async def test_a_request_is_handed_over_and_its_answer_sent() -> None:
    async with listening() as (_, address):
        answer = await exchange(address, request("POST /a/b?c=d&e HTTP/1.1", b"body"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"content-type: application/json\r\n" in answer.lower()
        assert answer.endswith(b'["POST", "/a/b", "c=d&e", "body"]\n')


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with listening() as (_, address):
        pipelined = request("GET /1 HTTP/1.1", closes=False) + request("GET /2 HTTP/1.1")
        answer = await exchange(address, pipelined)
        assert answer.index(b'"/1"') < answer.index(b'"/2"')


async def test_a_head_request_gets_the_head_only() -> None:
    async with listening() as (_, address):
        answer = await exchange(address, request("HEAD /x HTTP/1.1"))
        assert b"content-length: 23" in answer.lower()
        assert answer.endswith(b"\r\n\r\n")


async def test_a_body_may_come_in_chunks_and_after_it_was_asked_for() -> None:
    async with listening() as (_, address), await trio.open_tcp_stream(*address) as stream:
        head = b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        await stream.send_all(head)
        with trio.fail_after(30):
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        assert (await rest(stream)).endswith(b'["PUT", "/", "", "abc"]\n')


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("POST / HTTP/1.1", b"x" * 11), b"413"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 40_000, b"431"),
        (request("GET /bug HTTP/1.1"), b"500"),
    ],
    ids=["large body", "not http", "no host", "large head", "bug"],
)
async def test_what_is_wrong_is_answered_with_its_status(sent: bytes, status: bytes) -> None:
    async with listening(max_body_bytes=10) as (_, address):
        answer = await exchange(address, sent)
        assert answer.startswith(b"HTTP/1.1 " + status)


async def test_a_request_that_does_not_come_in_time_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.05)
    async with listening() as (listener, address):
        assert await exchange(address, b"GET / HT") == b""
        assert listener.connections == 0


async def test_a_stop_ends_idle_connections_and_answers_what_was_taken() -> None:
    taken, go_on = trio.Event(), trio.Event()

    async def slow(request: HttpRequest) -> HttpAnswer:
        taken.set()
        await go_on.wait()
        return HttpAnswer.text(200, "done")

    async with trio.open_nursery() as nursery:
        listener = http_listener(LOCALHOST, slow)
        address = await nursery.start(listener.run)
        idle = await trio.open_tcp_stream(*address)
        busy = await trio.open_tcp_stream(*address)
        await busy.send_all(request("GET / HTTP/1.1", closes=False))
        await taken.wait()
        listener.stop(30)
        with trio.fail_after(30):
            assert await idle.receive_some(100) == b""
        go_on.set()
        answer = await rest(busy)
        assert b"connection: close" in answer.lower()
        assert answer.endswith(b"done\n")
        await idle.aclose()
        await busy.aclose()


def _no_bug(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


async def test_a_body_in_chunks_of_a_byte_leaves_others_their_turns() -> None:
    """Everything has come before the first look, so whatever turns there are, reading has given them."""
    chunks = 4000
    client, server = trio.testing.memory_stream_pair()
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    await client.send_all(head + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    stream: Any = server
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await http.HttpSession(stream, "peer", echo, _no_bug).serve()
        nursery.cancel_scope.cancel()
    assert (await client.receive_some()).startswith(b"HTTP/1.1 200")
    assert turns >= chunks / http.PIECES_PER_TURN


@asynccontextmanager
async def streaming(stream: Stream) -> AsyncIterator[tuple[Listener, Address]]:
    """Whose answers are all this stream."""

    async def answer(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, b"", stream=stream)

    async with trio.open_nursery() as nursery:
        listener = http_listener(LOCALHOST, answer)
        yield listener, await nursery.start(listener.run)
        nursery.cancel_scope.cancel()


async def test_a_stream_is_sent_piece_by_piece_and_its_end_is_an_end() -> None:
    go_on = trio.Event()

    async def two_pieces(send: Send) -> None:
        await send(b"one")
        await go_on.wait()
        await send(b"")
        await send(b"two")

    async with streaming(two_pieces) as (_, address), await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(request("GET / HTTP/1.1", closes=False))
        answer = b""
        with trio.fail_after(30):
            while b"one" not in answer:
                answer += await stream.receive_some(1000)
        assert b"transfer-encoding: chunked" in answer.lower()
        go_on.set()
        answer += await rest(stream)
        assert answer.endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


async def test_a_stream_is_cancelled_when_the_peer_closes() -> None:
    ended = trio.Event()

    async def endless(send: Send) -> None:
        try:
            await send(b"begun")
            await trio.sleep_forever()
        finally:
            ended.set()

    async with streaming(endless) as (_, address):
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(request("GET / HTTP/1.1"))
            assert b"200" in await stream.receive_some(1000)
        with trio.fail_after(30):
            await ended.wait()


async def test_a_stop_ends_streams() -> None:
    async def endless(send: Send) -> None:
        await send(b"begun")
        await trio.sleep_forever()

    async with streaming(endless) as (listener, address), await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(request("GET / HTTP/1.1"))
        assert b"200" in await stream.receive_some(1000)
        listener.stop(30)
        await rest(stream)


async def test_a_stream_that_meets_a_bug_does_not_look_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(send: Send) -> None:
        await send(b"begun")
        raise ValueError("a bug")

    async with streaming(broken) as (_, address):
        answer = await exchange(address, request("GET / HTTP/1.1"))
        assert b"begun" in answer
        assert not answer.endswith(b"0\r\n\r\n")
    assert "a bug" in caplog.text


async def test_a_head_request_for_a_stream_gets_no_body() -> None:
    async def never(send: Send) -> None:
        raise AssertionError("nobody asked for a body")

    async with streaming(never) as (_, address):
        answer = await exchange(address, request("HEAD / HTTP/1.1"))
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"\r\n\r\n")
