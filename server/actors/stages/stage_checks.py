"""What is checked before a commit of staged records is decided. Nothing has changed when a check refuses, and what it has seen
is on the device when it passes: the staged files, and the partitions up to the ends that are noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import attrs

from ....protocol.coordinator.stage_commits import CommittedFile, StageCommitPartition
from ....protocol.errors import InvalidRequestError, InvalidTopicError
from ....protocol.limits import INT32_MAX
from ....protocol.types import TopicPartition
from ...storage.disk.paths import is_internal
from ...storage.errors import LogOfflineError, StorageError
from ..manager.log_manager import LogManager
from .stage_appends import StageProducer, flush_for_producer
from .stage_files import StagedBytes, check_staged, sync_staged
from .stages import StagedFile, Stages


class StagedShare(NamedTuple):
    """What one task has staged for one partition, as its writer was told."""

    task: str
    topic_partition: TopicPartition
    staged: StagedBytes


Files = dict[TopicPartition, tuple[CommittedFile, ...]]


@attrs.frozen
class StageChecks:
    """The checks of one commit. `name` is its stage's."""

    _manager: LogManager
    _stages: Stages
    _name: str

    async def check(self, shares: Sequence[StagedShare]) -> Files:
        """What is to be appended, by partition. Raises RequestError."""
        by_partition = self._by_partition(shares)
        staged: list[tuple[StagedFile, StagedBytes]] = []
        files: Files = {}
        for topic_partition in sorted(by_partition):
            checked = [await self._check_file(share) for share in by_partition[topic_partition]]
            staged += [(found, StagedBytes(file.size_bytes, file.crc)) for found, file in checked]
            files[topic_partition] = tuple(file for _, file in checked)
            count = sum(file.records_count for file in files[topic_partition])
            if count > INT32_MAX:
                raise InvalidRequestError(f"{topic_partition}: {count} records are staged, a commit has at most {INT32_MAX}")
        if self._manager.config.durable:
            await self._sync(staged)
        return files

    async def note_ends(self, files: Files, producer: StageProducer) -> tuple[StageCommitPartition, ...] | None:
        """The commit under this producer, with the ends of the partitions; None when one of them has its epoch already: the log
        of commits has lost records, or comes from an older backup. Raises RequestError."""
        topics = self._manager.topics
        partitions = []
        for topic_partition, of_partition in files.items():
            for file in of_partition:  # were checked when another topic may have had that name
                self._stages.check_complete(self._name, file.task, topic_partition)
            topic_id, actor = topics.get(topic_partition.topic).topic.topic_id, topics.actor(topic_partition)
            end_offset = await actor.perform(partial(flush_for_producer, producer=producer))
            if end_offset is None:
                return None
            partitions.append(
                StageCommitPartition(
                    topic_partition=topic_partition, topic_id=topic_id, start_offset=end_offset, files=of_partition
                )
            )
        return tuple(partitions)

    def _by_partition(self, shares: Sequence[StagedShare]) -> dict[TopicPartition, list[StagedShare]]:
        by_partition: dict[TopicPartition, list[StagedShare]] = {}
        named: set[tuple[str, TopicPartition]] = set()
        for share in shares:
            if (share.task, share.topic_partition) in named:
                raise InvalidRequestError(f"{share.topic_partition}: task {share.task!r} is named twice for one partition")
            named.add((share.task, share.topic_partition))
            by_partition.setdefault(share.topic_partition, []).append(share)
        for topic_partition in by_partition:
            if is_internal(topic_partition.topic):
                raise InvalidTopicError(f"{topic_partition.topic} belongs to the server; it can be read, not written")
            self._manager.topics.writable(topic_partition)
        return by_partition

    async def _check_file(self, share: StagedShare) -> tuple[StagedFile, CommittedFile]:
        topic_partition, disk = share.topic_partition, self._manager.disk
        file = self._stages.check_complete(self._name, share.task, topic_partition)
        if file.last_write is not None:
            await file.last_write.wait()
        what = f"{topic_partition}: task {share.task!r}"
        try:
            found = await disk.call(check_staged, disk.fs, file.path, share.staged, what, at=file.path)
        except (OSError, StorageError) as exc:
            raise LogOfflineError(f"{what}: {file.path} cannot be read: {exc}; stage it again under another task") from exc
        limit = self._manager.topics.actor(topic_partition).config.segment_bytes
        if found.largest_batch_bytes > limit:
            raise InvalidRequestError(f"{what} has a batch of {found.largest_batch_bytes} bytes, above segment.bytes={limit}")
        size, crc = share.staged
        return file, CommittedFile(task=share.task, size_bytes=size, crc=crc, records_count=found.records_count)

    async def _sync(self, staged: Sequence[tuple[StagedFile, StagedBytes]]) -> None:
        disk = self._manager.disk
        paths: dict[str, list[str]] = {}
        for file, _ in staged:
            paths.setdefault(file.path.rsplit("/", 3)[0], []).append(file.path)
        doubtful = {file.path: expected for file, expected in staged if file.is_doubtful}
        try:
            for directory, of_directory in paths.items():
                await disk.call(sync_staged, disk.fs, directory, self._name, of_directory, doubtful, at=directory)
        except OSError as exc:
            for file, _ in staged:
                file.is_doubtful = True
            raise LogOfflineError(
                f"what is staged in {self._name} cannot be forced to the device: {exc}; stage it again"
            ) from exc
