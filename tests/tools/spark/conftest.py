"""What the tests of Spark's sources share: a server of our own in a thread, and no connection left open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import triolog
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.tools.spark.source.broker import close_connections


@pytest.fixture
def server() -> Iterator[BlockingBroker]:
    """A real server that listens, in memory."""
    with triolog.blocking.open(MEMORY, native="127.0.0.1:0") as broker:
        yield broker
        close_connections()
