"""A producer that puts several batches for a partition into one request, which the native protocol allows and no client of the
product does for long: that sends them one by one once they are refused together."""

from __future__ import annotations

from itertools import accumulate, takewhile
from typing import Final

import attrs
from triolog.protocol.errors import ErrorCode, TriologError
from triolog.protocol.native.messages import ProducePartition, ProduceRequest
from triolog.protocol.types import NO_OFFSET
from triolog.tools.client.connection import Client

from ..script import Step
from .inhabitant import native_client
from .producers import Answer, Batch, KafkaProducer

ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 5000
BUNDLE_BYTES: Final = 650
"""An append has to fit into the smallest segment."""


@attrs.define(eq=False)
class Bundler(KafkaProducer):
    """Its batches are appended together or in parts, and each counts by itself."""

    _client: Client | None = None

    async def run(self, steps: list[Step]) -> None:
        async with native_client(self.world) as self._client:
            await super().run(steps)

    def _next_flight(self) -> list[Batch]:
        flight = super()._next_flight()
        of_first = list(takewhile(lambda batch: batch.where == flight[0].where, flight))
        sizes = accumulate(len(batch.data) for batch in of_first)
        return [batch for batch, size in zip(of_first, sizes, strict=True) if batch is flight[0] or size <= BUNDLE_BYTES]

    async def _ask(self, flight: list[Batch]) -> list[Answer]:
        assert self._client is not None
        where = flight[0].where
        part = ProducePartition(where.topic, where.partition, b"".join(batch.data for batch in flight))
        try:
            response = await self._client.produce(ProduceRequest((part,), ACKS_ALL, TIMEOUT_MS, None))
        except TriologError:
            return []
        assert response is not None
        [found] = response.partitions
        if found.error is not None:
            return [(found.error.code, NO_OFFSET)]
        before = accumulate((len(batch.ids) for batch in flight[:-1]), initial=0)
        base_offset = found.base_offset
        return [(ErrorCode.NONE, NO_OFFSET if base_offset == NO_OFFSET else base_offset + count) for count in before]
