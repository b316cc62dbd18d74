"""Peers that hold connections of an HTTP listener and ask for nothing keep no probe out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import pytest
import trio
from triolog.server.config.address import Address
from triolog.server.listeners.http.access import Answer, HttpAnswer, HttpRequest, Send
from triolog.server.listeners.http.server import http_listener
from triolog.server.system.open_files import http_connections
from triolog.tools.console.listening import MAX_CONNECTIONS, ConsoleListener, listening_socket

LOCALHOST: Final = Address("127.0.0.1", 0)
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
