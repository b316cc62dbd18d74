"""Appending staged files to one partition: what is there already is found out, and only the rest is appended.

Which records of one producer lie in a log, from an offset on. Works on a snapshot only, and looks at headers only.

Bringing a decided commit to its end in one partition, also where the topic is gone or damage has taken records out.

A crash can leave a hole in what was appended and not forced to the device, with whole batches behind it. Recovery takes the
hole out and keeps the batches, whose producer cannot append the lost ones any more: the log refuses sequences below its last
one. They are staged once more, to be committed under a producer of their own, behind the others.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.stage_commits import CommittedFile, StageCommitPartition, StageCommitValue
from ...protocol.errors import RequestError, UnknownTopicOrPartitionError
from ...protocol.limits import MIB
from ...protocol.records.batch import BatchHeader
from ...protocol.types import NO_OFFSET, AppendResult
from ..logs.log_manager import LogManager
from ..partitions.appender import ACKS_ALL
from ..partitions.flusher import flush
from ..partitions.partition import PartitionActor
from ..storage.disk.diskops import Procedure
from ..storage.errors import LogOfflineError, SnapshotExpiredError, StorageError
from ..storage.log.log import Log, LogSnapshot
from ..storage.log.prepare import PreparedAppend
from .stage_files import StagedChunk, copy_staged, file_name, read_stamped, sync_staged
from .stages import Stages

LOGGER: Final = logging.getLogger(__name__)


class ProducerRecords(NamedTuple):
    """The number of records, lost ones included; the offset of the first, and the one after the last, -1 without records."""

    records_count: int
    base_offset: int
    end_offset: int
    lost: tuple[range, ...] = ()
    """Sequences of records that damage may have taken out of the log: between their neighbours lies a gap."""


def find_producer_records(
    snapshot: LogSnapshot, producer_id: int, producer_epoch: int, start_offset: int, known_count: int = 0
) -> Procedure[ProducerRecords]:
    """The records that this producer has appended under this epoch, with sequences from 0 on, at or behind `start_offset`.

    They are counted by the last sequence: what compaction takes out of a batch leaves its sequences. `known_count`: so many are
    known to have been appended. Raises CorruptRecordError, OSError, SnapshotExpiredError.
    """
    last_sequence, base_offset, end_offset = -1, NO_OFFSET, NO_OFFSET
    producer = producer_id, producer_epoch
    lost: list[range] = []

    def see_missing(sequence: int, offset: int) -> None:
        begin = max(start_offset, end_offset)
        if sequence > last_sequence + 1 and any(gap.start_offset < offset and begin < gap.end_offset for gap in snapshot.gaps):
            lost.append(range(last_sequence + 1, sequence))

    def see(header: BatchHeader, _: int) -> None:
        nonlocal last_sequence, base_offset, end_offset
        if (
            (header.producer_id, header.producer_epoch) == producer
            and not header.is_control
            and header.base_offset >= start_offset
        ):
            see_missing(header.base_sequence, header.base_offset)
            if last_sequence < 0:
                base_offset = header.base_offset - header.base_sequence
            last_sequence, end_offset = header.last_sequence, header.next_offset

    for slot in range(max(0, snapshot.slot_of(start_offset)), len(snapshot)):
        view = snapshot.segment(slot)
        found = yield from view.translate_offset(start_offset)
        if found is not None:
            yield from view.bytes_from(found.position).visit_headers(see)
    see_missing(known_count, snapshot.log_end_offset)
    return ProducerRecords(max(last_sequence + 1, known_count), base_offset, end_offset, tuple(lost))


APPEND_BYTES: Final = MIB
"""Of one append: small enough for a segment of any sensible size, large enough to forget the hop."""
APPENDS_AT_ONCE: Final = 8
"""They share a write and a sync: as much as an actor takes at once."""
SNAPSHOT_ATTEMPTS: Final = 10


class StageProducer(NamedTuple):
    """Under which the records of one commit are appended: no other commit has both of them."""

    producer_id: int
    producer_epoch: int


NOTHING: Final = ProducerRecords(0, NO_OFFSET, NO_OFFSET)


def flush_for_producer(log: Log, producer: StageProducer) -> Procedure[int | None]:
    """`flush`, for a producer that is going to append; None when the log knows its epoch or a later one, because what it
    appends would then be taken for something older. Raises RequestError when the log cannot remember one more."""
    entry = log.producers.entries.get(producer.producer_id)
    if entry is not None and entry.epoch >= producer.producer_epoch:
        return None
    log.producers.cursor().check_room(log.topic_partition, producer.producer_id, log.max_producers)
    return (yield from flush(log))


def _flush_and_ask(log: Log, producer: StageProducer) -> Procedure[tuple[int, int]]:
    """`flush`, and the last sequence that the log remembers of a producer's epoch, -1 for none."""
    end_offset = yield from flush(log)
    entry = log.producers.entries.get(producer.producer_id)
    return end_offset, -1 if entry is None or entry.epoch != producer.producer_epoch else entry.last_sequence


async def append_staged_files(
    manager: LogManager,
    partition: StageCommitPartition,
    files: Sequence[tuple[str, CommittedFile]],
    *,
    producer: StageProducer,
    is_new: bool,
) -> ProducerRecords:
    """Append the batches of the files (by path), in this order, as far as they are not in the partition; answers where all of
    them are, and they are on the device.

    `is_new`: nothing can be there yet, so nobody needs to look. Where damage has taken records out nothing is appended, and the
    answer names them. Raises RequestError; what was appended before stays. Cancelled: what is enqueued is still appended.
    """
    actor = manager.topics.actor(partition.topic_partition)
    there = NOTHING if is_new else await _find(manager, actor, partition, producer)
    if there.lost:
        return there
    window: list[PreparedAppend] = []
    number = 0
    for path, file in files:
        position = 0
        if number + file.records_count <= there.records_count:
            position, number = file.size_bytes, number + file.records_count
        while position < file.size_bytes:
            chunk = await _read(manager, path, position, file, producer, number, there.records_count, actor)
            position, number = chunk.position, chunk.next_record
            if chunk.batches:
                window.append(PreparedAppend.of(chunk.batches))
            if len(window) == APPENDS_AT_ONCE:
                there, window = _joined(there, await _append(actor, window)), []
    if window:
        there = _joined(there, await _append(actor, window))
    if actor.log.recovery_point < there.end_offset:
        await actor.perform(flush)
    return there


async def _find(
    manager: LogManager, actor: PartitionActor, partition: StageCommitPartition, producer: StageProducer
) -> ProducerRecords:
    """Find the commit's records in the log. After the flush no append of them is pending, and none of them can be lost."""
    end_offset, last_sequence = await actor.perform(partial(_flush_and_ask, producer=producer))
    for _ in range(SNAPSHOT_ATTEMPTS):
        snapshot = actor.snapshot()
        start_offset = max(snapshot.log_start_offset, min(partition.start_offset, end_offset))
        try:
            found = await manager.disk.read(find_producer_records(snapshot, *producer, start_offset, last_sequence + 1))
        except SnapshotExpiredError:
            continue
        except (OSError, StorageError) as exc:
            raise LogOfflineError(f"{partition.topic_partition}: searching for committed records failed: {exc}") from exc
        if actor.snapshot().truncations == snapshot.truncations:
            return found
    raise LogOfflineError(f"{partition.topic_partition}: the files changed during each of {SNAPSHOT_ATTEMPTS} reads. Try again")


async def _read(
    manager: LogManager,
    path: str,
    position: int,
    file: CommittedFile,
    producer: StageProducer,
    number: int,
    first_record: int,
    actor: PartitionActor,
) -> StagedChunk:
    read = partial(
        read_stamped,
        manager.disk.fs,
        path,
        position,
        file.size_bytes,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        next_record=number,
        first_record=first_record,
        max_bytes=min(APPEND_BYTES, actor.config.segment_bytes),
    )
    try:
        return await manager.disk.call(read)
    except (OSError, StorageError) as exc:
        raise LogOfflineError(
            f"{actor.topic_partition}: cannot read the records of task {file.task!r} staged in {path}: {exc}. Check the device"
        ) from exc


async def _append(actor: PartitionActor, appends: Sequence[PreparedAppend]) -> ProducerRecords:
    """Enqueue appends in order and wait until all are acknowledged. Raises the first error: nothing behind it was appended,
    because the log refuses what does not follow."""
    answers: list[AppendResult | RequestError] = []
    answered = trio.Event()

    def answer(result: AppendResult | RequestError) -> None:
        answers.append(result)
        if len(answers) == len(appends):
            answered.set()

    for prepared in appends:
        await actor.append(prepared, ACKS_ALL, answer)
    await actor.wait_for(answered)
    for result in answers:
        if isinstance(result, RequestError):
            raise result.as_answer()
    results = [result for result in answers if isinstance(result, AppendResult)]
    count = sum(prepared.records_count for prepared in appends)
    return ProducerRecords(count, results[0].base_offset, results[-1].last_offset + 1)


def _joined(before: ProducerRecords, after: ProducerRecords) -> ProducerRecords:
    base_offset = after.base_offset if before.base_offset == NO_OFFSET else before.base_offset
    return ProducerRecords(before.records_count + after.records_count, base_offset, after.end_offset)


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
        LOGGER.warning("%s is deleted, and the records committed to it are lost", topic_partition)
        return gone
    files = []
    for file in partition.files:
        staged = stages.find(name, file.task, topic_partition, partition.topic_id)
        staged = staged or stages.find(name, file.task, topic_partition, None)  # decided by an earlier version
        if staged is None:
            raise LogOfflineError(
                f"{topic_partition}: the records that task {file.task!r} staged for a decided commit are not in any "
                f"log directory in service ({name}). Bring the directory back and restart the server"
            )
        files.append((staged.path, file))
    producer = StageProducer(value.producer_id, value.producer_epoch)
    try:
        found = await append_staged_files(manager, partition, files, producer=producer, is_new=is_new)
    except UnknownTopicOrPartitionError:
        LOGGER.warning("%s is deleted, and the records committed to it are lost", topic_partition)
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
        "%s: committed records %s were lost to corruption: appending them again at the end",
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
            f"{topic_partition}: cannot stage records again that were lost to corruption: {exc}. Check the device"
        ) from exc
    again = CommittedFile(task=task, size_bytes=staged.size_bytes, crc=staged.crc, records_count=count)
    end_offset = await manager.topics.actor(topic_partition).perform(flush)
    return attrs.evolve(partition, files=(again,) if count else (), start_offset=end_offset)
