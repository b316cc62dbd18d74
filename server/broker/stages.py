"""Staged records and leases of segment files: for writers and readers that share a log."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.types import Bytes, TopicPartition
from ..actors.coordinators import Coordinators
from ..actors.segment_leases import Lease, SegmentLeases
from ..actors.stage_checks import StagedShare
from ..actors.stage_commits import Committed
from ..actors.stages import StageWrite
from ..storage.stage_files import StagedBytes


class StageCalls:
    """See `actors.stage_commits` and `actors.segment_leases` for what happens."""

    __slots__ = ()
    _coordinators: Coordinators
    _leases: SegmentLeases

    async def announce_stage(
        self, application: str, version: int, task: str, topic_partition: TopicPartition, records: Bytes
    ) -> StageWrite:
        """Check record batches and give them their place among what the task has staged for the partition; the order
        in which they return counts. The answer has to be given to `stage` or `give_up_stage`. Raises RequestError."""
        return await self._coordinators.stage_commits.stages.announce(application, version, task, topic_partition, records)

    async def stage(self, write: StageWrite) -> StagedBytes:
        """Write what was announced; answers size and CRC of all that the task has staged for the partition. Raises
        RequestError."""
        return await self._coordinators.stage_commits.stages.write(write)

    async def give_up_stage(self, write: StageWrite) -> None:
        """Instead of `stage`: nothing more can be staged for the partition by this task."""
        await self._coordinators.stage_commits.stages.give_up(write)

    async def commit_stage(self, application: str, version: int, shares: Sequence[StagedShare]) -> Committed:
        """Append what is named to its partitions, once: a version that is not above the application's last one changes nothing.
        Raises RequestError. Cancelled once it is decided: it is carried out all the same."""
        return await self._coordinators.stage_commits.commit(application, version, shares)

    async def abort_stage(self, application: str, version: int, tasks: Sequence[str] | None = None) -> None:
        """Delete what these tasks (None: all) have staged for a version; what is committed stays. Raises RequestError."""
        await self._coordinators.stage_commits.abort(application, version, tasks)

    def last_commit(self, application: str) -> int | None:
        """The version that an application has committed last. Raises RequestError."""
        return self._coordinators.stage_commits.last_version(application)

    async def lease_segments(self, partitions: Sequence[TopicPartition], lease_ms: int) -> Lease:
        """Names of the partitions' segments that nothing takes away for `lease_ms`; a partition without has its error there.
        Raises RequestError."""
        return await self._leases.take(partitions, lease_ms)

    async def renew_lease(self, lease_id: str, lease_ms: int) -> Lease:
        """Let a lease go on for `lease_ms` from now; 0 ends it. Raises RequestError."""
        return await self._leases.renew(lease_id, lease_ms)
