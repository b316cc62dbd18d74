"""The logs that wait for space: opened in memory at the start because their device was full, opened for real when it is not.

| log at the start | readers | appends | afterwards |
|---|---|---|---|
| opened | served | taken | - |
| no space to open it | served, from memory what is derived | KAFKA_STORAGE_ERROR | tried again |
| no space, and none in memory either | KAFKA_STORAGE_ERROR | KAFKA_STORAGE_ERROR | tried again |

The next attempt is due when the device has more room than at the last one, or after a pause that doubles up to a minute. While
it runs the actor is closed, and what retention or the disk's guard took out before is unlinked already, so nothing changes the
files; its snapshots are still read. Then another actor takes its place, with the waiters of the first one: no reader meets a
moment without an answer.

A log that cannot be opened because its device is full: it is opened in memory, serves reads, and waits for space.

Opening writes: indexes to rebuild, snapshots of producers, what is set aside of a torn append, a segment. When the device
refuses that, the log is opened once more on a `MemoryOverlay`: what would be written stays in memory, files as they are. It
ends where the next opening lets it end, because both look at the same bytes; what was scanned is forced to the device for
real, so nothing is read that a power cut could take back. The recovery point stays what the checkpoint says, because below it
the next opening would trust indexes that are in memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from ...protocol.errors import TriologError
from ...protocol.limits import MAX_WAITING_LOGS_BYTES
from ...protocol.types import TopicPartition
from ..partitions.disk import Disk
from ..partitions.partition import PartitionActor
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.memory_overlay import MemoryOverlay
from ..storage.errors import LogOfflineError, WaitsForSpaceError, is_out_of_space
from ..storage.log.log import Log
from ..storage.recovery.recovery import OpenLog, open_log
from .log_retention import LogRetention
from .topics import HostedPartition, OfflinePartition, Topics

LOGGER: Final = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 60.0
"""An attempt reads what an unclean stop left to be scanned: one a minute costs little, and space that comes is seen at once."""


@attrs.define(eq=False, repr=False)
class _Attempts:
    """The time at which a directory's logs are tried again."""

    free_bytes: int
    """What the device had at the last attempt."""
    due_s: float
    pause_s: float = FIRST_PAUSE_S


@attrs.define(eq=False, repr=False)
class WaitingLogs:
    """Owner of what is kept in memory in place of a full disk. Owned by the log manager; `check` is run by its maintenance."""

    disk: Disk
    topics: Topics
    nursery: trio.Nursery
    live: Sequence[LogDirectory]
    """Log directories in service."""
    retention: LogRetention
    adopt: Callable[[Log, Log | None], None]
    """Called with a log before it is served, and with the log in memory whose place it takes."""
    on_opened: Callable[[PartitionActor], Awaitable[None]] | None = None
    """Told of a log that could not be read before, and is served now."""
    is_stopping: bool = False
    max_bytes: int = MAX_WAITING_LOGS_BYTES
    """For what the logs cannot write."""
    overlay: MemoryOverlay = attrs.field(init=False)
    memory: Disk = attrs.field(init=False)
    """Where logs that wait are read."""
    _requests: dict[TopicPartition, OpenLog] = attrs.field(factory=dict)
    _attempts: dict[str, _Attempts] = attrs.field(factory=dict)
    _looking: trio.Lock = attrs.field(factory=trio.Lock)
    """One look at a time: two would open a log twice."""

    def __attrs_post_init__(self) -> None:
        self.overlay = MemoryOverlay(self.disk.fs, self.max_bytes)
        self.memory = self.disk.beside(self.overlay)

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: OpenLog) -> None:
        """A log waits; it is hosted already, or offline."""
        if not self._requests:
            self.nursery.start_soon(self.memory.files.run_closer)
        self._requests[request.topic_partition] = request

    def open_in_memory(self, request: OpenLog, why: OSError) -> Log:
        """Blocks; one at a time."""
        log = open_in_memory(self.overlay, request, why)
        log.drop_maps()
        return log

    async def check(self) -> None:
        """Open what waits where there may be room by now. Raises an OSError of a directory that cannot be asked."""
        async with self._looking:
            for directory in list(self.live) if self._requests else ():
                waiting = [each for each in self._requests.values() if each.directory.rpartition("/")[0] == directory.path]
                if not waiting:
                    continue
                free = await self.disk.call(directory.free_bytes, at=directory.path)
                last = self._attempts.setdefault(directory.path, _Attempts(-1, 0.0))
                if free > last.free_bytes or trio.current_time() >= last.due_s:
                    await self._try_each(waiting, last, free)

    async def _try_each(self, waiting: Sequence[OpenLog], last: _Attempts, free: int) -> None:
        """Until one finds no space; that one is the last of the next round."""
        opened = 0
        for request in waiting:
            if self.is_stopping:
                return
            is_done = True  # one whose opening meets an unhandled exception keeps no other one waiting
            with self.disk.errors.isolate("waiting-logs", request.topic_partition), trio.CancelScope(shield=True):
                is_done = await self._try(request)
                opened += is_done
            if not is_done:
                break
        last.free_bytes = free
        last.pause_s = FIRST_PAUSE_S if opened else min(2 * last.pause_s, MOST_PAUSE_S)
        last.due_s = trio.current_time() + last.pause_s

    async def _try(self, request: OpenLog) -> bool:
        """Try to open the log; return whether it need not be tried again."""
        topic_partition = request.topic_partition
        place = self._place(topic_partition)
        if place is None or (isinstance(place, HostedPartition) and place.actor.log.waiting is None):
            return self._forget(request)  # deleted; another topic may have its name by now
        request = attrs.evolve(request, config=self.topics.get(topic_partition.topic).config)
        if isinstance(place, HostedPartition):
            place.actor.close()
            await place.actor.stopped()
            request = attrs.evolve(request, log_start_offset=place.actor.log.log_start_offset)
        outcome = await self._open_for_real(place, request)
        if self.is_stopping:
            return True
        if self._place(topic_partition) is not place:
            return self._forget(request)
        if isinstance(outcome, Log):
            await self._serve(place, outcome)
            return self._forget(request)
        return self._go_on_waiting(place, outcome, request)

    async def _open_for_real(self, place: HostedPartition | OfflinePartition, request: OpenLog) -> Log | Exception:
        """Segments that were given up are unlinked beside the actor, maybe just now: they are gone before it is looked at."""
        if isinstance(place, HostedPartition):
            try:
                await self.retention.unlink_all(place)
            except OSError as exc:
                return exc.with_traceback(None)
        return await self.disk.call(self._open, request)

    def _open(self, request: OpenLog) -> Log | Exception:
        """Blocks."""
        try:
            log = open_log(self.disk.fs, request)
        except Exception as exc:
            if not isinstance(exc, (OSError, TriologError, ValueError)):
                LOGGER.exception("unhandled exception: opening %s", request.topic_partition)
            return exc.with_traceback(None)
        log.drop_maps()
        return log

    def _place(self, topic_partition: TopicPartition) -> HostedPartition | OfflinePartition | None:
        """Return the place of the partition; None when its topic was deleted meanwhile."""
        partitions = self.topics.get(topic_partition.topic).partitions if topic_partition.topic in self.topics else []
        return partitions[topic_partition.partition] if topic_partition.partition < len(partitions) else None

    def _forget(self, request: OpenLog) -> bool:
        self.overlay.drop(request.directory)
        del self._requests[request.topic_partition]
        return True

    async def _serve(self, place: HostedPartition | OfflinePartition, log: Log) -> None:
        """Let a log take the place of what waited; nothing runs in between."""
        log.mirror_of = self.topics.get(log.topic_partition.topic).topic.mirror_of
        LOGGER.info("%s has space now: opened from %s, accepting appends", log.topic_partition, log.directory)
        self.adopt(log, place.actor.log if isinstance(place, HostedPartition) else None)
        if isinstance(place, HostedPartition):
            before = place.actor
            self._replace(place, PartitionActor(log, self.disk, self.nursery, before.waiters, before.fetched_bytes))
            before.log.truncations += 1  # whoever reads of its files looks again, and meets the new log
            before.log.changed()
            self.memory.files.release(before.log.files(), [index for each in before.log.segments for index in each.indexes])
            return
        hosted = self.topics.get(log.topic_partition.topic)
        actor = PartitionActor(log, self.disk, self.nursery)
        assert place.directory is not None
        hosted.partitions[log.topic_partition.partition] = HostedPartition(actor, place.directory)
        self.topics.version += 1
        self.nursery.start_soon(actor.run)
        if self.on_opened is not None:
            await self.on_opened(actor)

    def _replace(self, place: HostedPartition, actor: PartitionActor) -> None:
        place.actor, place.is_probed = actor, False
        self.nursery.start_soon(actor.run)
        actor.waiters.wake_all()

    def _go_on_waiting(self, place: HostedPartition | OfflinePartition, why: Exception, request: OpenLog) -> bool:
        """False: it is tried again."""
        may_pass = is_out_of_space(why)
        if isinstance(place, HostedPartition):
            before = place.actor
            if may_pass:
                before.log.waiting = waiting_error(before.log, why)
            actor = PartitionActor(before.log, self.memory, self.nursery, before.waiters, before.fetched_bytes)
            self._replace(place, actor)
            if not may_pass:
                actor.take_offline(f"it waited for space, and opening it failed for another reason ({why})")
        elif not may_pass:
            error = LogOfflineError(f"{request.topic_partition} is offline: it waited for space, and opening it failed: {why}")
            LOGGER.error("%s", error)
            partitions = self.topics.get(request.topic_partition.topic).partitions
            partitions[request.topic_partition.partition] = OfflinePartition(request.topic_partition, error, place.directory)
        if not may_pass:
            return self._forget(request)
        self._requests[request.topic_partition] = self._requests.pop(request.topic_partition)
        return False


def open_in_memory(overlay: MemoryOverlay, request: OpenLog, why: OSError) -> Log:
    """The log of `request`, for readers. Blocks. Raises what `open_log` raises, ENOSPC where memory has no room for it either;
    then nothing is kept."""
    LOGGER.warning(
        "%s waits for space: %s. It is open in memory, and so are changes to its files.",
        request.topic_partition,
        why,
    )
    try:
        log = open_log(overlay, request)
    except BaseException:
        overlay.drop(request.directory)
        raise
    log.recovery_point = max(log.log_start_offset, min(request.recovery_point, log.log_end_offset))
    log.waiting = waiting_error(log, why)
    return log


def waiting_error(log: Log, why: Exception) -> WaitsForSpaceError:
    """Return the error for appends to a log that waits."""
    return WaitsForSpaceError(
        f"{log.topic_partition} waits for space: {log.directory} could not be opened for appends ({why}). "
        "Nothing of the append is stored. Reads continue. Free space on that device, and the server accepts "
        "appends without a restart"
    )
