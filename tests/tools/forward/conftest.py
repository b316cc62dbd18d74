"""A server with one topic, and an upstream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import triolog
from triolog.server.embedded import BlockingBroker

from tests.support.forwarding import ANY_PORT, FOR_EVER, TOPIC, Forwarding, forwarding


@pytest.fixture
def pair() -> Iterator[Forwarding]:
    """The source has the topic TOPIC with one partition; the upstream has nothing."""
    with forwarding() as both:
        both.source.create_topic(TOPIC)
        yield both


@pytest.fixture
def upstream() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(kafka=ANY_PORT, config=FOR_EVER, native="127.0.0.1:0") as running:
        yield running
