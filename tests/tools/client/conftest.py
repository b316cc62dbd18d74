"""A server behind memory streams, and a clock that jumps; never the clock together with sockets or threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
import triolog
from trio.testing import MockClock
from triolog.server.embedded import BlockingBroker

from tests.support.native_server import NativeServer

from .asyncio_door import AsyncioThread
from .doors import Door, Served


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    return autojump_clock


@pytest.fixture
async def server(nursery: trio.Nursery) -> NativeServer:
    """Topic t with two partitions."""
    return NativeServer(nursery, t=2)


@pytest.fixture(params=["trio", *(pytest.param(name, marks=pytest.mark.merge) for name in ("asyncio", "blocking"))])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    if request.param != "asyncio":
        yield Door(request.param)
        return
    thread = AsyncioThread()
    yield Door(request.param, thread)
    thread.stop()


@pytest.fixture
async def served(nursery: trio.Nursery, door: Door) -> AsyncIterator[Served]:
    """Topic t with two partitions, on a socket; clock and waits are real, so they are short."""
    made = Served(door, NativeServer(nursery, t=2))
    await made.listen()
    yield made
    nursery.cancel_scope.cancel()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    """Topic t with one partition, on a real broker; nothing crashes, so nothing is synced."""
    with triolog.blocking.open(tmp_path, durability="os", native="127.0.0.1:0") as running:
        running.create_topic("t")
        yield running
