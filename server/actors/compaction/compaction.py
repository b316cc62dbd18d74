"""When logs are compacted: in the background what is due, at once what somebody asks for. One round at a time.

What the cleaner is made of is loaded when it is first needed, in a thread: neither a start nor appends wait for it. Where its
process cannot see the disk nothing is done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...storage.disk.diskops import Procedure
from ...storage.log.log import Log
from ...storage.log.retention import flush_and_roll
from ..manager.log_manager import LogManager
from .child_process import OpenChild
from .cleaner_counters import CleanerCounters

if TYPE_CHECKING:
    from .cleaner import Cleaner

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class Compaction:
    """Owner of the cleaner. `run` is a task of the broker."""

    manager: LogManager
    open_child: OpenChild | None
    """None: there is nobody who could see the files of this disk."""
    counters: CleanerCounters = attrs.field(factory=CleanerCounters)
    _cleaner: Cleaner | None = None
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    async def run(self) -> None:
        """Compact what is due, the dirtiest log first, until cancelled."""
        config = self.manager.config
        if not config.cleaner_enable or self.open_child is None:
            return
        worked = False

        async def step() -> None:
            nonlocal worked
            if not worked:
                await trio.sleep(config.cleaner_backoff_ms / 1000)
            worked = False
            try:
                async with self._turn:
                    worked = await (await self._loaded()).clean_dirtiest()
            except OSError as exc:
                LOGGER.warning("compaction cannot go on and is tried again: %s", exc)

        await self.manager.disk.errors.repeat("compaction", step)

    async def compact(self, topic_partition: TopicPartition) -> int:
        """Close the active segment and compact all that may be, however little of it is dirty; answers how many rounds that
        took. Raises RequestError."""
        hosted = self.manager.topics.partition(topic_partition)
        if "compact" not in hosted.actor.log.config.cleanup_policy:
            raise RequestError(f"{topic_partition}: its cleanup.policy says nothing of compact", ErrorCode.POLICY_VIOLATION)
        if self.open_child is None:
            raise RequestError(f"{topic_partition}: its files are not the system's", ErrorCode.KAFKA_STORAGE_ERROR)
        async with self._turn:
            cleaner = await self._loaded()
            await hosted.actor.perform(_close_active)
            rounds = 0
            while (went_well := await cleaner.clean_now(hosted)) is not None:
                if not went_well:
                    said = "its compaction was given up or failed; the server's log says why"
                    raise RequestError(f"{topic_partition}: {said}", ErrorCode.KAFKA_STORAGE_ERROR)
                rounds += 1
            return rounds

    def clean_up_to(self, log: Log) -> int | None:
        """Up to which offset, exclusive, a log is compacted; None where it was not, or that is not known yet."""
        return None if self._cleaner is None else self._cleaner.clean_up_to.get(log)

    async def _loaded(self) -> Cleaner:
        assert self.open_child is not None
        if self._cleaner is None:

            def load() -> type[Cleaner]:
                from .cleaner import Cleaner

                return Cleaner

            cleaner = (await trio.to_thread.run_sync(load))(self.manager, self.open_child, self.counters)
            await cleaner.load()
            self._cleaner = cleaner
        return self._cleaner


def _close_active(log: Log) -> Procedure[None]:
    """Only what is closed, and on the device, is compacted."""
    if log.active.size:
        yield from flush_and_roll(log)
        log.high_watermark_to_end()
