"""One record, by its offset."""

from __future__ import annotations

from typing import Final

from ....protocol.types import Record, TopicPartition
from ...client.config import ConsumerConfig
from ...client.connection import Client
from ...client.reading import Reading
from .pages import unpacked

SMALL_BYTES: Final = 1024
"""One whole batch comes in any case."""


async def record_at(client: Client, partition: TopicPartition, offset: int) -> Record | None:
    """None where there is none: it was compacted away, or is the marker of a transaction."""
    reading = Reading(ConsumerConfig(max_wait_ms=0, partition_max_bytes=SMALL_BYTES, skip_gaps=True))
    reading.assign({partition: offset}, {partition: offset + 1})
    fetch = reading.next_fetch()
    assert fetch is not None
    response = await client.fetch(fetch.request)
    for batch in reading.accept(fetch, response):
        found: list[Record] = await unpacked(batch)
        if found:
            return found[0]
    return None
