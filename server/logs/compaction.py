"""Compaction of logs: due logs in the background, others at once on request. One round at a time.

The modules of the cleaner load on first use, in a thread: neither a start nor appends wait for them. Where the process of the
cleaner cannot see the disk, logs are not compacted.

Scrubbing: a process of its own reads and checks every closed segment from time to time, at a bounded rate.

Off by default (`scrub_bytes_per_second` = 0). A pass covers all partitions; the next pass begins `scrub_interval_ms` after the
last one ended. The first pass begins that long after the start or after ten minutes, whichever is less. Damage is counted, and
logged once with the next step. Scrubbing changes nothing: a damaged batch in the log stays readable, until `triolog repair`
removes it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.types import TopicPartition
from ..partitions.partition import PartitionActor
from ..storage.disk.diskops import Procedure
from ..storage.log.log import Log
from ..storage.log.retention import flush_and_roll
from ..storage.segments.segment_view import SegmentView
from .cleaner_process import Child, ChildDiedError, CleanerCounters, OpenChild
from .log_manager import LogManager

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
                LOGGER.warning("compaction cannot continue, trying again: %s", exc)

        await self.manager.disk.errors.repeat("compaction", step)

    async def compact(self, topic_partition: TopicPartition) -> int:
        """Close the active segment and compact all that may be, however little of it is dirty; answers how many rounds that
        took. Raises RequestError."""
        hosted = self.manager.topics.partition(topic_partition)
        if "compact" not in hosted.actor.log.config.cleanup_policy:
            raise RequestError(f"{topic_partition}: its cleanup.policy does not contain compact", ErrorCode.POLICY_VIOLATION)
        if self.open_child is None:
            raise RequestError(
                f"{topic_partition}: its files are not on the operating system's file system", ErrorCode.KAFKA_STORAGE_ERROR
            )
        async with self._turn:
            cleaner = await self._loaded()
            await hosted.actor.perform(_close_active)
            rounds = 0
            while (went_well := await cleaner.clean(hosted)) is not None:
                if not went_well:
                    said = "its compaction was abandoned or failed. See the server's log"
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


MODULE: Final = "offline.scrub"
FIRST_PASS_S: Final = 600.0
MOST_TOLD: Final = 10_000
"""Damages that are remembered, so that each is said once; past it new ones are neither counted nor said."""


@attrs.define
class ScrubStatistics:
    """Since the start: passes that ended, bytes that were read, and damages that were found, each counted once."""

    passes: int = 0
    bytes_read: int = 0
    damages: int = 0


@attrs.define(eq=False, repr=False)
class Scrub:
    """The one scrubbing task of a server. Owner of its process."""

    manager: LogManager
    open_child: OpenChild | None
    """None: there is nobody who could see the files of this disk."""
    _counts: ScrubStatistics = attrs.field(factory=ScrubStatistics)
    _told: dict[Log, set[tuple[str, int]]] = attrs.field(factory=dict)
    """Path and position of the damages that were said. By log, because a topic can be deleted and made again."""

    def statistics(self) -> ScrubStatistics:
        return attrs.evolve(self._counts)

    async def run(self) -> None:
        """Until cancelled; at once when scrubbing is off."""
        config = self.manager.config
        if not config.scrub_bytes_per_second or self.open_child is None:
            return
        interval_s = config.scrub_interval_ms / 1000
        await trio.sleep(min(interval_s, FIRST_PASS_S))

        async def step() -> None:
            try:
                await self.run_pass()
            except (ChildDiedError, OSError) as exc:
                LOGGER.error("scrubbing failed, starting again in %d s: %s", interval_s, exc)
            await trio.sleep(interval_s)

        await self.manager.disk.errors.repeat("scrub", step)

    async def run_pass(self) -> None:
        """Look at every closed segment once. Raises ChildDiedError, OSError when the process cannot be started."""
        assert self.open_child is not None
        async with self.open_child(MODULE) as child:
            await child.send(_line(max_bytes_per_second=self.manager.config.scrub_bytes_per_second))
            hosted_now = self.manager.topics.hosted()
            self._told = {each.actor.log: self._told.get(each.actor.log, set()) for each in hosted_now}
            for hosted in hosted_now:
                try:
                    await self._look_at(child, hosted.actor)
                except (ChildDiedError, OSError):
                    raise
                except Exception as exc:
                    self.manager.disk.errors.note("scrub", hosted.actor.topic_partition, exc)
        self._counts.passes += 1

    async def _look_at(self, child: Child, actor: PartitionActor) -> None:
        log = actor.log
        closed = list(log.segments)[:-1]
        ends = [segment.base_offset for segment in list(log.segments)[1:]]
        for segment, end_offset in zip(closed, ends, strict=True):
            if log.refusal is not None or actor.is_closed:
                return
            if segment.base_offset not in log.segments or end_offset > log.recovery_point:
                continue
            await self._look_at_segment(child, actor, segment.view(), end_offset)

    async def _look_at_segment(self, child: Child, actor: PartitionActor, view: SegmentView, end_offset: int) -> None:
        topic_partition, path = actor.topic_partition, view.log.path
        told = self._told.setdefault(actor.log, set())
        await child.send(_line(path=path, size=view.size, base_offset=view.base_offset, end_offset=end_offset))
        answer = await child.receive()
        if actor.is_closed:
            return  # another topic may have the name, and the path, by now
        if "error" in answer:
            LOGGER.error("%s: scrubbing could not read %s. Check the device.", topic_partition, answer["error"])
        elif "damages" in answer:
            self._counts.bytes_read += view.size
            for position, size, first_offset, next_offset, reason in answer["damages"]:
                if (path, position) not in told and self._counts.damages < MOST_TOLD:
                    told.add((path, position))
                    self._counts.damages += 1
                    LOGGER.error(
                        "%s: %d bytes at position %d of %s are damaged (%s), offsets %d to %d. Stop the server and run "
                        "`triolog repair` on its directory: it keeps the bytes and takes them out of the log.",
                        topic_partition,
                        size,
                        position,
                        path,
                        reason,
                        first_offset,
                        max(first_offset, next_offset - 1),
                    )


def _line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"
