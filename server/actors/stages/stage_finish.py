"""Bringing a decided commit to its end in one partition, also where the topic is gone or damage has taken records out.

A crash can leave a hole in what was appended and not forced to the device, with whole batches behind it. Recovery takes the
hole out and keeps the batches, whose producer cannot append the lost ones any more: the log refuses sequences below its last
one. They are staged once more, to be committed under a producer of their own, behind the others.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.coordinator.stage_commits import CommittedFile, StageCommitPartition, StageCommitValue
from ....protocol.errors import UnknownTopicOrPartitionError
from ....protocol.types import NO_OFFSET
from ...storage.errors import LogOfflineError, StorageError
from ..manager.log_manager import LogManager
from ..partition.flusher import flush
from .stage_appends import ProducerRecords, StageProducer, append_staged_files
from .stage_files import copy_staged, file_name, sync_staged
from .stages import Stages

LOGGER: Final = logging.getLogger(__name__)


async def finish_partition(
    manager: LogManager,
    stages: Stages,
    value: StageCommitValue,
    partition: StageCommitPartition,
    *,
    name: str,
    is_new: bool,
) -> StageCommitPartition:
    """Append what one partition of a decided commit lacks of its records. Raises RequestError.

    Answers where they are; files are left in the answer where damage has taken records out, they are to be committed under
    another producer then. `name` is that of the commit's stage. `is_new`: nothing of it can be in a partition yet.
    """
    if not partition.files:
        return partition
    topic_partition, topics = partition.topic_partition, manager.topics
    gone = attrs.evolve(partition, files=(), base_offset=NO_OFFSET, end_offset=NO_OFFSET)
    if topic_partition.topic not in topics or topics.get(topic_partition.topic).topic.topic_id != partition.topic_id:
        LOGGER.warning("%s is gone, and with it what was committed to it", topic_partition)
        return gone
    files = []
    for file in partition.files:
        staged = stages.find(name, file.task, topic_partition, partition.topic_id)
        staged = staged or stages.find(name, file.task, topic_partition, None)  # decided by an earlier version
        if staged is None:
            raise LogOfflineError(
                f"{topic_partition}: what task {file.task!r} has staged for a commit that is decided is not in any log "
                f"directory in service ({name}); bring the directory back and restart the server"
            )
        files.append((staged.path, file))
    producer = StageProducer(value.producer_id, value.producer_epoch)
    try:
        found = await append_staged_files(manager, partition, files, producer=producer, is_new=is_new)
    except UnknownTopicOrPartitionError:
        LOGGER.warning("%s is gone, and with it what was committed to it", topic_partition)
        return gone
    base_offset = found.base_offset if partition.base_offset == NO_OFFSET else partition.base_offset
    end_offset = max(found.end_offset, partition.end_offset)
    partition = attrs.evolve(partition, files=(), base_offset=base_offset, end_offset=end_offset)
    return await _to_append_again(manager, stages, partition, files, found, name=name) if found.lost else partition


async def _to_append_again(
    manager: LogManager,
    stages: Stages,
    partition: StageCommitPartition,
    files: Sequence[tuple[str, CommittedFile]],
    found: ProducerRecords,
    *,
    name: str,
) -> StageCommitPartition:
    """The partition with what it lacks, in a staged file of its own that is on the device."""
    topic_partition, disk = partition.topic_partition, manager.disk
    LOGGER.error(
        "%s: damage took out records %s of what was committed; they are appended behind the others",
        topic_partition,
        ", ".join(f"{each.start} to {each.stop - 1}" for each in found.lost),
    )
    task = f"again {uuid.uuid4().hex}"
    path = f"{files[0][0].rpartition('/')[0]}/{file_name(task, topic_partition, partition.topic_id)}"
    sources = [(source, file.size_bytes) for source, file in files]

    def is_lacking(number: int) -> bool:
        return number >= found.records_count or any(number in each for each in found.lost)

    try:
        stages.adopt(name, path)
        staged, count = await disk.call(copy_staged, disk.fs, sources, path, is_lacking, at=path)
        if manager.config.durable:
            await disk.call(sync_staged, disk.fs, path.rsplit("/", 3)[0], name, [path], at=path)
    except (OSError, StorageError) as exc:
        raise LogOfflineError(
            f"{topic_partition}: what damage took out cannot be staged again: {exc}; check the device"
        ) from exc
    again = CommittedFile(task=task, size_bytes=staged.size_bytes, crc=staged.crc, records_count=count)
    end_offset = await manager.topics.actor(topic_partition).perform(flush)
    return attrs.evolve(partition, files=(again,) if count else (), start_offset=end_offset)
