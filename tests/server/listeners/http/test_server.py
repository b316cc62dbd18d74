"""The HTTP listener: what it answers, what it refuses, and how connections end. Which HTTP requests are answered: not those
that a page of somebody else has a browser send, nor those without the token. Peers that hold connections of an HTTP listener
and ask for nothing keep no probe out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import InvalidConfigError
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Listener
from triolog.server.listeners.http import session as http
from triolog.server.listeners.http.access import Answer, HttpAccess, HttpAnswer, HttpRequest, Send, Stream, read_token
from triolog.server.listeners.http.server import http_listener
from triolog.server.system.open_files import http_connections
from triolog.tools.console.process.serving import MAX_CONNECTIONS, ConsoleListener, listening_socket

GET: Final = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HELD: Final = {"silent": b"", "half a head": GET[:-2], "keep-alive": GET}
MORE: Final = 5
"""Peers than there are places."""


async def says_ok(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer.text(200, "ok")


@asynccontextmanager
async def listener(answer: Answer, *, changes_nothing: bool = False) -> AsyncIterator[tuple[Address, int]]:
    """One of the server's, with its number of places."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(http_listener(LOCALHOST, answer, changes_nothing=changes_nothing).run), http_connections()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def console(answer: Answer) -> AsyncIterator[tuple[Address, int]]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(ConsoleListener(listening_socket(LOCALHOST), answer).run), MAX_CONNECTIONS
        nursery.cancel_scope.cancel()


async def connected(stack: AsyncExitStack, address: Address, sent: bytes) -> trio.SocketStream:
    stream = await stack.enter_async_context(await trio.open_tcp_stream(*address))
    if sent:
        await stream.send_all(sent)
    return stream


async def is_answered(stream: trio.SocketStream) -> bool:
    received = b""
    with trio.fail_after(30), suppress(trio.BrokenResourceError):
        while not received.endswith(b"ok\n"):
            some = await stream.receive_some(1000)
            if not some:
                break
            received += some
    return received.startswith(b"HTTP/1.1 200") and received.endswith(b"ok\n")


@pytest.mark.parametrize("serving", [listener, console])
@pytest.mark.parametrize("held", HELD)
async def test_peers_that_ask_for_nothing_keep_no_probe_out(serving: Callable[..., Any], held: str) -> None:
    async with serving(says_ok) as (address, places), AsyncExitStack() as stack:
        for _ in range(places + MORE):
            stream = await connected(stack, address, HELD[held])
            if HELD[held] == GET:
                assert await is_answered(stream)
        assert await is_answered(await connected(stack, address, GET))


async def test_the_peer_that_was_answered_last_stays() -> None:
    async with listener(says_ok) as (address, places), AsyncExitStack() as stack:
        first = await connected(stack, address, GET)
        assert await is_answered(first)
        for _ in range(places - 1):
            await connected(stack, address, b"")
        await first.send_all(GET)
        assert await is_answered(first)
        for _ in range(MORE):
            assert await is_answered(await connected(stack, address, GET))
        await first.send_all(GET)
        assert await is_answered(first)


async def test_peers_that_read_no_answer_keep_no_probe_out() -> None:
    taken = 0

    async def endless(send: Send) -> None:
        nonlocal taken
        taken += 1
        while True:
            await send(bytes(100_000))

    async def answer(request: HttpRequest) -> HttpAnswer:
        return await says_ok(request) if request.path == "/" else HttpAnswer(200, b"", stream=endless)

    async with listener(answer) as (address, places), AsyncExitStack() as stack:
        for number in range(places):
            await connected(stack, address, GET.replace(b"/", b"/stream", 1))
            while taken <= number:
                await trio.lowlevel.checkpoint()
        for _ in range(MORE):
            assert await is_answered(await connected(stack, address, GET))


@pytest.mark.parametrize("changes_nothing", [True, False])
async def test_a_request_that_is_being_answered_goes_only_where_answers_change_nothing(changes_nothing: bool) -> None:
    taken, go_on = 0, trio.Event()

    async def answer(request: HttpRequest) -> HttpAnswer:
        nonlocal taken
        taken += 1
        if request.path != "/":
            await go_on.wait()
        return await says_ok(request)

    async with listener(answer, changes_nothing=changes_nothing) as (address, places), AsyncExitStack() as stack:
        slow = []
        for number in range(places):
            slow.append(await connected(stack, address, GET.replace(b"/", b"/slow", 1)))
            while taken <= number:
                await trio.lowlevel.checkpoint()
        probe = await connected(stack, address, GET)
        if changes_nothing:
            assert await is_answered(probe)
            go_on.set()
            assert not await is_answered(slow[0])
        else:
            go_on.set()
            assert all([await is_answered(each) for each in slow])
            assert await is_answered(probe)


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


async def test_requests_are_handed_over_and_answered_in_order() -> None:
    async with listening() as (_, address):
        answer = await exchange(address, request("POST /a/b?c=d&e HTTP/1.1", b"body"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"content-type: application/json\r\n" in answer.lower()
        assert answer.endswith(b'["POST", "/a/b", "c=d&e", "body"]\n')
        pipelined = request("GET /1 HTTP/1.1", closes=False) + request("GET /2 HTTP/1.1")
        answer = await exchange(address, pipelined)
        assert answer.index(b'"/1"') < answer.index(b'"/2"')
        head = await exchange(address, request("HEAD /x HTTP/1.1"))
        assert b"content-length: 23" in head.lower()
        assert head.endswith(b"\r\n\r\n")


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


TOKEN = "0123456789abcdef"


def status(access: HttpAccess, method: str = "GET", body: bytes = b"", **headers: str) -> int:
    """What a request is answered with; 200 stands for that it is."""
    named = {"host": "127.0.0.1:4000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    refusal = access.refusal(HttpRequest(method, "/reset", "", {name: text for name, text in named.items() if text}, body))
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:4000", 200),
        ("localhost:4000", 200),
        ("LOCALHOST", 200),
        ("a.localhost:1", 200),
        ("[::1]:4000", 200),
        ("[::1]", 200),
        ("10.0.0.1:4000", 200),
        ("", 200),
        ("evil.example:4000", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:4000", 403),
        ("evil.example:4000@localhost", 403),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str, expected: int) -> None:
    assert status(HttpAccess(), host=host) == expected
    assert status(HttpAccess(is_loopback=False), host=host) == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:4001"}, 403),
        ({"origin": "https://127.0.0.1:4000"}, 403),
        ({"origin": "http://127.0.0.1:4000"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
    ],
)
@pytest.mark.parametrize("is_loopback", [True, False])
def test_a_page_of_another_site_is_refused(headers: dict[str, str], expected: int, is_loopback: bool) -> None:
    assert status(HttpAccess(is_loopback=is_loopback), **headers) == expected


@pytest.mark.parametrize(
    ("method", "body", "content_type", "expected"),
    [
        ("POST", b"", "", 415),
        ("POST", b"{}", "text/plain", 415),
        ("POST", b"{}", "application/x-www-form-urlencoded", 415),
        ("POST", b"{}", "application/json", 200),
        ("POST", b"", "Application/JSON; charset=utf-8", 200),
        ("PUT", b"", "", 415),
        ("DELETE", b"", "", 200),
        ("DELETE", b"{}", "text/plain", 415),
        ("GET", b"", "", 200),
        ("GET", b"{}", "text/plain", 415),
    ],
)
def test_what_changes_something_is_json(method: str, body: bytes, content_type: str, expected: int) -> None:
    assert status(HttpAccess(), method, body, content_type=content_type) == expected


@pytest.mark.parametrize(("content_type", "expected"), [("", 200), ("application/json", 200), ("text/plain", 415)])
@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_change_without_a_content_type_is_accepted_where_allowed(content_type: str, expected: int, body: bytes) -> None:
    access = HttpAccess(accepts_untyped=True)
    assert status(access, "POST", body, content_type=content_type) == expected
    assert status(access, "POST", body, content_type=content_type, origin="http://evil.example") == 403


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
    ],
)
def test_a_token_is_asked_for(authorization: str, expected: int) -> None:
    access = HttpAccess.of(Address("0.0.0.0", 1), TOKEN)
    assert not access.is_loopback
    assert status(access, authorization=authorization) == expected
    assert TOKEN not in repr(access)


def test_a_token_is_read_from_a_file_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(str(file)) == TOKEN
    for wrong in (b"short", b"", b"\xff" * 20, b"with spaces " * 5, b"x" * 5000):
        file.write_bytes(wrong)
        with pytest.raises(InvalidConfigError) as caught:
            read_token(str(file))
        assert not wrong or wrong.decode("latin-1") not in str(caught.value)
    with pytest.raises(InvalidConfigError, match="cannot read a token from"):
        read_token(str(tmp_path / "missing"))
