"""A server with one topic, and an upstream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
    with BlockingBroker(kafka=ANY_PORT, config=FOR_EVER) as running:
        yield running
