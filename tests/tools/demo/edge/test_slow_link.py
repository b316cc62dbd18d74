from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
from triolog.tools.demo.edge.slow_link import CHUNK_BYTES, SlowLink


@pytest.fixture
async def link(nursery: trio.Nursery) -> AsyncIterator[SlowLink]:
    """To somebody who answers what comes."""

    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    serve = partial(trio.serve_tcp, echo, 0, host="127.0.0.1")
    listeners = await nursery.start(serve)
    made = SlowLink(lambda: listeners[0].socket.getsockname())
    await nursery.start(made.run)
    yield made
    nursery.cancel_scope.cancel()


async def through(link: SlowLink, data: bytes) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", link.port) as stream:
        got = b""
        try:
            await stream.send_all(data)
            while len(got) < len(data) and (some := await stream.receive_some()):
                got += some
        except trio.BrokenResourceError:
            pass
        return got


async def test_a_link_carries_both_ways_and_turns_everybody_away_when_it_is_down(link: SlowLink) -> None:
    assert await through(link, b"x") == b""
    assert (link.turned_away, link.carried_bytes) == (1, 0)
    link.is_up = True
    data = bytes(range(256)) * 1000
    assert await through(link, data) == data
    assert link.carried_bytes == 2 * len(data)


async def test_what_stands_behind_it_may_be_gone(link: SlowLink) -> None:
    link.is_up = True
    link._target = lambda: ("127.0.0.1", 1)
    assert await through(link, b"x") == b""


async def test_no_more_goes_than_it_carries(link: SlowLink) -> None:
    """By the clock that it waits on."""
    link.is_up, link.bytes_per_second = True, CHUNK_BYTES * 100
    begin = trio.current_time()
    data = bytes(CHUNK_BYTES * 10)
    assert await through(link, data) == data
    assert trio.current_time() - begin >= 0.2 - 1e-6
