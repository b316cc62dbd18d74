"""A server with the topic `t` of two partitions, and a blocking client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from triolog.tools.client.blocking import BlockingClient

from tests.support.native_server_thread import ServerThread, serving

from ..doors import QUICK


@pytest.fixture
def thread() -> Iterator[ServerThread]:
    with serving(t=2) as handle:
        yield handle


@pytest.fixture
def client(thread: ServerThread) -> Iterator[BlockingClient]:
    with BlockingClient(thread.address, QUICK) as opened:
        yield opened
