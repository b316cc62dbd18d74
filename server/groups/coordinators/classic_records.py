"""Records of classic groups on their way into `__consumer_offsets`: in the order of the requests, several in one batch where
several wait. Of a group with several waiting records only the newest is written: it says all that the others do."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.coordinator.classic_group_records import GroupMetadataValue
from ....protocol.errors import ErrorCode, RequestError
from ...offsets.offsets_topic import OffsetsTopic
from ...system.clock import NowMs
from ..classic.values import Store

LOGGER: Final = logging.getLogger(__name__)

_BYTES_PER_BATCH: Final = 128 * 1024
"""About so much in one batch: a larger one gains nothing, and might not fit where each of its records does."""

_BYTES_PER_MEMBER: Final = 200
"""What a member has besides its subscription and assignment, roughly."""


@attrs.define(eq=False, repr=False)
class GroupRecords:
    """See the module. Owner of the waiting records; `run` writes them."""

    _topic: OffsetsTopic
    _now_ms: NowMs
    _waiting: dict[str, list[Store]] = attrs.field(factory=dict)
    """By group, oldest first."""
    _came: trio.Event = attrs.field(factory=trio.Event)
    _written: trio.Event = attrs.field(factory=trio.Event)

    def put(self, stores: Sequence[Store]) -> None:
        """Add records to be written."""
        for store in stores:
            self._waiting.setdefault(store.group_id, []).append(store)
        if stores:
            self._came.set()

    async def written(self) -> None:
        """Wait until the next batch is in the log, or has failed."""
        await self._written.wait()

    async def run(self, stored: Callable[[int], None], failed: Callable[[int, ErrorCode], None]) -> None:
        """Write records, and report each by its ticket. Cancelled: a batch that has begun is written, waiting records are
        not."""
        try:
            await self._topic.errors.repeat("group-records", partial(self._write_waiting, stored, failed))
        finally:
            self._written.set()

    async def _write_waiting(self, stored: Callable[[int], None], failed: Callable[[int, ErrorCode], None]) -> None:
        await self._came.wait()
        while self._waiting:
            for stores, error in await self._write_all(self._next_batch()):
                for store in stores:
                    with self._topic.errors.isolate("group-records", store.group_id):
                        if error is None:
                            stored(store.ticket)
                        else:
                            failed(store.ticket, error)
            self._written.set()
            self._written = trio.Event()
        self._came = trio.Event()

    def _next_batch(self) -> dict[str, list[Store]]:
        """Return the waiting records that fit one partition and one batch."""
        batch: dict[str, list[Store]] = {}
        size, place = 0, self._topic.partition_of(next(iter(self._waiting)))
        for group in list(self._waiting):
            size += _estimated_bytes(self._waiting[group][-1].value)
            if self._topic.partition_of(group) != place or (batch and size > _BYTES_PER_BATCH):
                break
            batch[group] = self._waiting.pop(group)
        return batch

    async def _write_all(self, batch: dict[str, list[Store]]) -> list[tuple[list[Store], ErrorCode | None]]:
        """Write a batch. Returns the outcome of each group's record. One at fault, perhaps too large, does not fail the
        others."""
        error = await self._write(batch)
        if error is None or len(batch) == 1:
            return [(stores, error) for stores in batch.values()]
        return [(stores, await self._write({group: stores})) for group, stores in batch.items()]

    async def _write(self, batch: dict[str, list[Store]]) -> ErrorCode | None:
        """None when it is in the log."""
        try:
            values = {group: copy.copy(stores[-1].value) for group, stores in batch.items()}
            for value in values.values():
                value.current_state_timestamp = self._now_ms()
            with trio.CancelScope(shield=True):
                await self._topic.ensure()
                await self._topic.store_members(self._topic.partition_of(next(iter(batch))), values)
        except RequestError as exc:
            LOGGER.warning("could not persist the members of %s: %s", ", ".join(map(repr, batch)), exc)
            return exc.code
        except Exception as exc:
            self._topic.errors.note("group-records", ", ".join(batch), exc)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return None


def _estimated_bytes(value: GroupMetadataValue) -> int:
    return sum(_BYTES_PER_MEMBER + len(each.subscription) + len(each.assignment) for each in value.members)
