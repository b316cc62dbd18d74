"""A server with one topic, and an upstream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.forwarding import TOPIC, Forwarding, forwarding


@pytest.fixture
def pair() -> Iterator[Forwarding]:
    """The source has the topic TOPIC with one partition; the upstream has nothing."""
    with forwarding() as both:
        both.source.create_topic(TOPIC)
        yield both
