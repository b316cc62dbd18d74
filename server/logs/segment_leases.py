"""Leases of segment files: readers of files on this machine get names that nothing takes away before the lease ends.

Times are trio's: a clock that is set ends no lease. Nothing of a lease survives a stop.

Second names for the segments of a partition, so that they outlive retention and compaction for the time of a lease.

    <log directory>/.lease/<lease>/<topic>-<partition>/<base offset>.log .index .timeindex .txnindex

Hard links: segments are renamed and unlinked, never written in place, and the active one only grows; what counts of it is said
beside it. The links are made in the turn of the log's owner, when nobody changes names. They are of no use after the server has
stopped, and are removed when it starts.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ...protocol.types import TopicPartition
from ..storage.directory.partition_directory import delete_directory
from ..storage.disk.diskops import LinkEach, Procedure
from ..storage.disk.paths import LEASE_DIRECTORY, LOG_SUFFIX, SEGMENT_SUFFIXES, segment_file
from ..storage.errors import LogOfflineError, StorageError
from ..storage.log.log import Log
from ..system.client_memory import Account, deep_bytes
from .log_manager import LogManager

LOGGER: Final = logging.getLogger(__name__)

MAX_LEASES: Final = 1000
"""At a time. Each keeps deleted segments on the device, and costs names."""
LEASE_BYTES: Final = 1_000
PARTITION_BYTES: Final = 1_000
"""A leased partition, before its segments are known."""
CHECK_S: Final = 1.0


@attrs.define(eq=False, repr=False)
class Lease:
    """The lease of a reader. Owner: SegmentLeases."""

    lease_id: str
    ends_at: float
    partitions: dict[TopicPartition, LeasedPartition | RequestError] = attrs.field(factory=dict)
    directories: set[str] = attrs.field(factory=set)


@attrs.define(eq=False, repr=False)
class SegmentLeases:
    """See the module. Called from any task of the trio thread; `load` comes first, `run` is its task."""

    _manager: LogManager
    _leases: dict[str, Lease] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._leases)

    async def load(self) -> None:
        """Delete what the last run has left."""
        for directory in self._manager.log_directories.live:
            await self._delete(f"{directory.path}/{LEASE_DIRECTORY}")

    async def take(self, partitions: Sequence[TopicPartition], lease_ms: int) -> Lease:
        """A lease of the segments as they are now; a partition that cannot be leased has its error. Raises RequestError.

        Counted from the answer on. Cancelled: there is none.
        """
        self._check_duration(lease_ms)
        if len(self._leases) >= MAX_LEASES:
            raise RequestError(
                f"{len(self._leases)} leases of segments exist, the maximum. End one or wait",
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
        lease = Lease(uuid.uuid4().hex, float("inf"))
        size = LEASE_BYTES + PARTITION_BYTES * len(partitions)
        self._account.take(lease.lease_id, size, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._leases[lease.lease_id] = lease
        try:
            for topic_partition in partitions:
                if topic_partition not in lease.partitions:
                    with trio.CancelScope(shield=True):  # links that are made later would be nobody's
                        lease.partitions[topic_partition] = await self._link(lease, topic_partition)
                    await trio.lowlevel.checkpoint()
        except BaseException:
            await self._end(lease)
            raise
        self._account.put(lease.lease_id, LEASE_BYTES + deep_bytes(lease.partitions))
        lease.ends_at = trio.current_time() + lease_ms / 1000
        return lease

    @property
    def _account(self) -> Account:
        return self._manager.client_memory.account("segment leases", MAX_LEASES)

    async def renew(self, lease_id: str, lease_ms: int) -> Lease:
        """Let a lease go on from now; with 0 ms it ends. Raises InvalidRequestError when there is none."""
        self._check_duration(lease_ms)
        lease = self._leases.get(lease_id)
        if lease is None:
            raise InvalidRequestError(
                f"there is no lease {lease_id!r}: it has ended, or the server was restarted. Take a new one"
            )
        lease.ends_at = trio.current_time() + lease_ms / 1000
        if not lease_ms:
            await self._end(lease)
        return lease

    def _check_duration(self, lease_ms: int) -> None:
        limit = self._manager.config.max_lease_ms
        if lease_ms > limit:
            raise InvalidRequestError(f"lease_ms is {lease_ms}, at most max_lease_ms={limit} is allowed. Renew it in time")

    async def _link(self, lease: Lease, topic_partition: TopicPartition) -> LeasedPartition | RequestError:
        try:
            hosted = self._manager.topics.partition(topic_partition)
            directory = f"{hosted.directory.path}/{LEASE_DIRECTORY}/{lease.lease_id}"
            lease.directories.add(directory)
            found = await hosted.actor.perform(partial(lease_partition, directory=directory))
        except RequestError as exc:
            return exc.as_answer()
        except StorageError as exc:
            return LogOfflineError(f"cannot lease segments of {topic_partition}: {exc}")
        if isinstance(found, OSError):
            return LogOfflineError(
                f"cannot link segments of {topic_partition} into {directory}: {found}. Read through the server"
            )
        return found

    async def run(self) -> None:
        """End leases whose time is over, until cancelled."""

        async def step() -> None:
            await trio.sleep(CHECK_S)
            await self.end_overdue()

        await self._manager.disk.errors.repeat("leases", step)

    async def end_overdue(self) -> int:
        """End leases whose time is over, and answer how many."""
        count = 0
        for lease in list(self._leases.values()):
            if lease.ends_at <= trio.current_time() and lease.lease_id in self._leases:
                with self._manager.disk.errors.isolate("leases", lease.lease_id):
                    await self._end(lease)
                    count += 1
        return count

    async def _end(self, lease: Lease) -> None:
        self._account.drop(lease.lease_id)
        if self._leases.pop(lease.lease_id, None) is not None:
            with trio.CancelScope(shield=True):
                for directory in lease.directories:
                    await self._delete(directory)

    async def _delete(self, directory: str) -> None:
        try:
            await self._manager.disk.call(delete_directory, self._manager.disk.fs, directory, at=directory)
        except OSError as exc:
            LOGGER.error("cannot delete %s, the next start tries again: %s", directory, exc)


class LeasedFile(NamedTuple):
    """A segment's `.log`, and how much of it lies below the high watermark."""

    base_offset: int
    name: str
    size_bytes: int


@attrs.frozen(kw_only=True)
class LeasedPartition:
    """A partition's files at one moment."""

    topic_partition: TopicPartition
    directory: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    segments: tuple[LeasedFile, ...]


def lease_partition(log: Log, directory: str) -> Procedure[LeasedPartition | OSError]:
    """Link every segment that has something readable into `directory/<partition>`. An OSError is answered, not raised: the log
    is as it was."""
    snapshot = log.snapshot()
    target = f"{directory}/{log.topic_partition}"
    segments = []
    for slot in range(len(snapshot)):
        base_offset, size = snapshot.segment(slot).base_offset, snapshot.readable_end(slot)
        if size:
            segments.append(LeasedFile(base_offset, segment_file(base_offset, LOG_SUFFIX), size))
    names = [segment_file(each.base_offset, suffix) for each in segments for suffix in SEGMENT_SUFFIXES]
    try:
        yield LinkEach(log.directory, target, tuple(names))
    except OSError as exc:
        return exc
    return LeasedPartition(
        topic_partition=log.topic_partition,
        directory=target,
        log_start_offset=snapshot.log_start_offset,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        segments=tuple(segments),
    )
