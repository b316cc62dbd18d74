"""The Producer API, record by record."""

from __future__ import annotations

import time

import trio

from ...client.config import ProducerConfig
from ...client.connection import connect
from ...client.producer import open_producer
from ..measuring.wire import Address


def produce_records(
    *, address: Address, topic: str, value_bytes: int, records: int, enable_idempotence: bool | None = None
) -> dict[str, float]:
    """Send records one by one through the Producer API and wait until all are acknowledged; records per second."""
    config = ProducerConfig(enable_idempotence=enable_idempotence)

    async def send_all() -> float:
        value = bytes(value_bytes)
        async with connect(address[0], address[1]) as client:
            async with open_producer(client, config) as producer:
                await (await producer.send(topic, value))
                started = time.perf_counter()
                for _ in range(records):
                    await producer.send(topic, value)
                await producer.flush()
                return time.perf_counter() - started

    return {"rate": records / trio.run(send_all)}
