"""The live tail of a topic, as events `records`: a few times a second the newest of what has come since the last one.

Of what comes faster than anybody reads only the newest is shown, and how many were not is told. With something to look for all
that match are shown, as far as they find room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ....protocol.types import Isolation, TopicPartition
from ...client.config import ConsumerConfig
from ...client.connection import Client
from ...client.procedures.topics import LATEST, locate
from ...client.reading import FetchedBatch, Reading
from ..events import EventQueue
from ..routes import exact
from .contents import shown_record
from .pages import unpacked
from .search import Needle

if TYPE_CHECKING:
    from .schemas import Schemas

MAX_SHOWN: Final = 40
"""Of one event."""
PAUSE_S: Final = 0.2
"""Between two events: five a second are as many as eyes take in."""
MAX_WAIT_MS: Final = 500
MAX_FETCH_BYTES: Final = 2**20
MAX_PARTITION_FETCH_BYTES: Final = 2**19


@attrs.define(eq=False, repr=False, kw_only=True)
class Tail:
    """A reader of a topic's end. Owner: its stream."""

    client: Client
    topic: str
    kind: str
    places: Mapping[int, int]
    needle: Needle | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    schemas: Schemas | None = None
    _passed: int = 0
    """Records since the last event that are not in it."""
    _newest: deque[tuple[int, Any]] = attrs.field(factory=lambda: deque(maxlen=MAX_SHOWN))

    async def run(self, queue: EventQueue) -> None:
        """Until it is cancelled."""
        config = ConsumerConfig(
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=MAX_FETCH_BYTES,
            partition_max_bytes=MAX_PARTITION_FETCH_BYTES,
            isolation=self.isolation,
            skip_gaps=True,
        )
        reading = Reading(config)
        reading.assign({TopicPartition(self.topic, partition): offset for partition, offset in self.places.items()}, {})
        queue.put("records", self._event(reading))
        while (fetch := reading.next_fetch()) is not None:
            response = await self.client.call_fetch(fetch.request)
            batches = list(reading.accept(fetch, response))
            await self._take(batches)
            for name in list(reading.lost):
                reading.seek(name, (await self.client.run(locate([name], LATEST, self.isolation)))[name])
            if self.needle is None:
                self._jump(reading)
            if batches:
                await self._prepare()
                queue.put("records", self._event(reading))
                await trio.sleep(PAUSE_S)

    async def _take(self, batches: list[FetchedBatch]) -> None:
        """Keep the newest; without something to look for only batches that hold some of those are taken apart."""
        if self.needle is None:
            room = MAX_SHOWN
            wanted: list[FetchedBatch] = []
            for batch in reversed(batches):
                count = _count(batch)
                if room > 0:
                    wanted.append(batch)
                    room -= count
                else:
                    self._passed += count
            batches = wanted[::-1]
        for batch in batches:
            await trio.lowlevel.checkpoint()
            if self.needle is not None and not self.needle.may_be_in(batch):
                continue
            for record in await unpacked(batch):
                if self.needle is None or self.needle.is_in(record):
                    self._passed += len(self._newest) == MAX_SHOWN
                    self._newest.append((batch.partition.partition, record))

    async def _prepare(self) -> None:
        if self.schemas is not None:
            await self.schemas.prepare([record for _, record in self._newest])

    def _jump(self, reading: Reading) -> None:
        """Do not run after what nobody can see any more."""
        for name in reading.partitions:
            end, at = reading.high_watermark(name), reading.position(name)
            if end is not None and end - at > MAX_SHOWN:
                self._passed += end - MAX_SHOWN - at
                reading.seek(name, end - MAX_SHOWN)

    def _event(self, reading: Reading) -> dict[str, Any]:
        rows = [shown_record(partition, record, self.kind, schemas=self.schemas) for partition, record in self._newest]
        told = {
            "records": rows,
            "passed": self._passed,
            "places": {str(name.partition): exact(reading.position(name)) for name in reading.partitions},
        }
        self._newest.clear()
        self._passed = 0
        return told


def _count(batch: FetchedBatch) -> int:
    """The records asked for: a batch begins before them where reading began in the middle of it."""
    return min(batch.header.records_count, batch.next_offset - max(batch.first_offset, batch.header.base_offset))
