"""A console of a broker in the same loop, and browsers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import triolog
from triolog.server.config.values import Address
from triolog.server.embedded import EmbeddedBroker
from triolog.tools.console.process.serving import serve_console
from triolog.tools.console.routes import ConsoleSettings

from tests.support.browser_wire import Browser

ANY_PORT = Address("127.0.0.1", 0)


def _nobody(address: Address) -> None:
    """Nobody wants to know where."""


@asynccontextmanager
async def showing(server: tuple[str, int], **settings: Any) -> AsyncIterator[Browser]:
    chosen = ConsoleSettings(server=server, listen=ANY_PORT, **settings)
    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve_console, chosen, _nobody))
        yield Browser(tuple(address))
        nursery.cancel_scope.cancel()


@attrs.define
class Shown:
    broker: EmbeddedBroker
    browser: Browser

    def other(self) -> Browser:
        return Browser(self.browser.address)


@asynccontextmanager
async def shown_broker(*, console: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Shown]:
    async with triolog.open(**{"native": "127.0.0.1:0", **options}) as broker:
        async with showing(tuple(broker.native), **(console or {})) as browser:
            yield Shown(broker, browser)


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    """Topics `flights` with three partitions, and `compacted`."""
    async with shown_broker(topics={"flights": 3, "compacted": 1}) as running:
        yield running


async def told(browser: Browser, path: str) -> Any:
    """What a request that must succeed is answered with."""
    reply = await browser.get(f"/api{path}")
    assert reply.status == 200, reply.text
    return reply.json
