"""The call `statistics`."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.native import messages
from ...broker import Broker
from ...figures.as_map import statistics_map
from ..connections.counters import ProtocolCounters


async def statistics(broker: Broker, protocols: Iterable[ProtocolCounters]) -> messages.StatisticsResponse:
    """Return what a broker and its connections have counted."""
    told = statistics_map(await broker.statistics(), broker.now_ms(), protocols)
    return messages.StatisticsResponse({**told, "insecure": list(broker.security.exposed)})
