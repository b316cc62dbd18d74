"""Requests of Kafka's protocol, without the length of their frame: see `tests.protocol.kafka.fuzz`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.fuzzing.target import Target
from tests.protocol.kafka import fuzz

SEEDS_SEED: Final = 0


def feed(data: bytes) -> bool:
    """See `Target.feed`. An empty frame is refused before anybody looks at it."""
    return bool(data) and fuzz.feed(data) is not None


def seeds() -> Iterator[bytes]:
    """Requests of every API in every version."""
    yield from fuzz.seeds(Random(SEEDS_SEED))


TARGET: Final = Target(
    name="kafka-requests",
    feed=feed,
    seeds=seeds,
    modules=("triolog.protocol.kafka.connection", "triolog.protocol.schema.codec", "triolog.protocol.schema.primitives"),
    max_bytes=1024,
)
