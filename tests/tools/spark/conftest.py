"""What the tests of Spark's sources share: a server of our own in a thread, and no connection left open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.tools.spark.source.broker import close_connections


@pytest.fixture
def server() -> Iterator[BlockingBroker]:
    """A real server that listens, in memory."""
    with BlockingBroker(MEMORY) as broker:
        yield broker
        close_connections()
