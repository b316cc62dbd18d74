"""`/metrics`, `/livez` and `/readyz` of a broker that comes and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..config.broker_config import Address, BrokerConfig
from .life import Life


@asynccontextmanager
async def told_over_http(config: BrokerConfig, life: Life) -> AsyncIterator[Address | None]:
    """They are answered for the time of the block, where they are wanted, through all lives of the broker. What HTTP and
    metrics need is loaded here: most brokers have none."""
    if config.metrics is None:
        yield None
        return
    from ..listeners.http.health import telling

    def fired() -> list[tuple[str, int]]:
        disk = [(f"disk-{fault.number}", fault.fired) for fault in life.disk_faults]
        return [(str(fault.number), fault.fired) for fault in life.faults] + disk

    async with telling(config.metrics, config.metrics_token_file) as (health, address):
        health.following(lambda: life.core if life.is_running else None, life.protocols, fired)
        yield address
