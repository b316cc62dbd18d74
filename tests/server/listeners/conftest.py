"""An embedded broker of both protocols, in a thread of its own: for clients that block."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import triolog
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    """With the topic `topic` of one partition."""
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics={"topic": 1}, native="127.0.0.1:0") as broker:
        yield broker
