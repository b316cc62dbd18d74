"""Topics that are copied from another server: created, appended to and cut here as the copier says, and promoted (Kafka has
such parts in ReplicaFetcherThread; the idea is that of cluster linking and of shadow topics).

A source with one node reports the ends of all its partitions at one moment. Once all of them are copied that far, they are a
*cut*: the state of the source at that moment, transactions and committed offsets included. A promotion that has coordinators'
topics goes back to the newest cut, because no transaction may be committed in one partition and open in another. Removed
records are kept in a file beside the log.

The newest cut is in `mirror-cut` of each log directory, a text checkpoint with the offsets of all partitions. It is not forced
to the device: after a power cut the log may end before it, a file may be broken, and two directories may have different cuts.
The one that is farthest counts.

*Invariants*
- A promotion counts with the write of `topics.json`. Before it, everything is a mirror still and can be copied again.
- Leader epochs are raised and producer ids moved apart before that write.
- A promotion begins a leader epoch in which no earlier source has written, also where none of its records was copied: two logs
  with different records in one epoch would be taken for one. `topics.json` has the epoch of each copied batch before the batch
  is stored, so a promotion that is repeated after a crash begins the same epoch, the next one: `triolog demote` counts on that.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import MIB
from ...protocol.records.batch import BatchHeader, iter_batches
from ...protocol.types import Bytes, TopicPartition
from ..logs.internal_topic import store
from ..logs.log_manager import LogManager
from ..logs.topics import HostedPartition, HostedTopic
from ..partitions.partition import PartitionActor
from ..storage.disk.checkpoints import CUT_FILE, decode_offsets, encode_offsets, maybe_read
from ..storage.disk.filesystem import CREATE, FileSystem, opened, replace_file
from ..storage.disk.paths import (
    ASIDE_MARK,
    INTERNAL_TOPICS,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    file_beside,
    is_internal,
    segment_file,
)
from ..storage.errors import CheckpointError
from ..storage.log.changes import raise_leader_epoch, truncate_fully_and_start_at, truncate_to
from ..storage.log.log import Log, LogSnapshot
from ..storage.log.mirrored import become_mirror, begin_leader_epoch, prepare_mirrored
from ..storage.log.retention import increment_log_start_offset
from ..storage.lookups.fetch import fetch_batches
from .coordinators import Coordinators

LOGGER: Final = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class SetAside:
    """Records that were removed from a log, and their file. Offsets: the last one is exclusive."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    records: int
    path: str


@attrs.frozen(kw_only=True)
class Promotion:
    """The result of a promotion."""

    topics: tuple[str, ...]
    partitions: int
    has_cut: bool
    """Whether all partitions are as the source had them at one moment."""
    set_aside: tuple[SetAside, ...]


@attrs.frozen(kw_only=True)
class MirrorProgress:
    """The progress of the copier of one source."""

    link: str
    """Name of the source."""
    source: str
    """Its addresses."""
    state: str
    """`connecting`, `copying`, `stopped` or `promoted`."""
    error: str
    """The reason why it does not copy; empty: it does, or was promoted."""
    topics: int
    partitions: int
    lag_records: int
    """Offsets at the source that the mirror does not have."""
    lag_bytes: int
    """The same in bytes, an estimate."""
    lag_ms: float
    """Age of the source's state that is completely copied. -1: none was yet."""
    copied_bytes: int
    troubles: tuple[str, ...]
    """Topics, partitions and groups that are not copied, with the reasons."""


@attrs.define(eq=False, repr=False)
class Mirroring:
    """See the module. Owner of the newest cut. The copier calls it, one call for a partition at a time."""

    _manager: LogManager
    _coordinators: Coordinators
    _cut: dict[TopicPartition, int] | None = None
    """None before one is known."""
    _reserved: dict[str, Callable[[str], bool]] = attrs.field(factory=dict)
    """By source."""
    _links: list[Callable[[], MirrorProgress]] = attrs.field(factory=list)
    _replacing: dict[bytes, dict[TopicPartition, SetAside]] = attrs.field(factory=dict)
    """By topic id, the partitions whose records are in files already, of topics that could not be replaced yet."""

    def report(self, progress: Callable[[], MirrorProgress]) -> None:
        """Let the server's statistics have the progress of a copier, until the server ends."""
        self._links.append(progress)

    def progress(self) -> tuple[MirrorProgress, ...]:
        """Return the progress of each copier."""
        return tuple(each() for each in self._links)

    def reserve(self, source: str, matches: Callable[[str], bool]) -> None:
        """Let only the source have topics of names that match: clients cannot create them until `release`."""
        self._reserved[source] = matches
        self._manager.changes.reserved = self._reserved_by

    def release(self, source: str) -> None:
        """End `reserve`."""
        self._reserved.pop(source, None)

    def _reserved_by(self, name: str) -> str:
        return next((source for source, matches in self._reserved.items() if matches(name)), "")

    def topics(self, source: str) -> list[str]:
        """Return the names of all topics that mirror a source."""
        return [each.topic.name for each in self._manager.topics if each.topic.mirror_of == source]

    def ends(self, source: str) -> dict[TopicPartition, int]:
        """Return where the mirrors of a source end, without partitions that are offline since the start."""
        found = [each for hosted in self._manager.topics if hosted.topic.mirror_of == source for each in hosted.partitions]
        logs = [each.actor.log for each in found if isinstance(each, HostedPartition)]
        return {log.topic_partition: log.log_end_offset for log in logs}

    def source_of(self, name: str) -> str | None:
        """Return the source of a topic, empty for a topic of this server; None: there is no such topic."""
        hosted = self._manager.topics.find(name)
        return None if hosted is None else hosted.topic.mirror_of

    def own_internal_topics(self, source: str) -> list[str]:
        """Return the coordinators' topics that do not mirror the source."""
        return [name for name in sorted(INTERNAL_TOPICS) if self.source_of(name) not in (None, source)]

    async def follow_topic(
        self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str], source: str, *, epoch: int = 0
    ) -> list[SetAside]:
        """Let a topic be here as the source has it. `epoch`: the latest leader epoch of its partitions there. Return the
        records of a topic with another id that was this server's own before `triolog demote`, and is deleted now. Raises
        RequestError: a topic of that name or id is another one."""
        if not any(topic_id):
            raise RequestError(
                f"the source has no id for topic {name!r}. Set the latest inter.broker.protocol.version there",
                ErrorCode.UNKNOWN_TOPIC_ID,
            )
        changes, hosted = self._manager.changes, self._manager.topics.find(name)
        aside: list[SetAside] = []
        if hosted is not None and hosted.topic.was_own and hosted.topic.id_bytes != topic_id:
            aside, hosted = await self._replaced(hosted), None
        if hosted is None:
            options = {"internal": is_internal(name), "lenient": True, "mirror_of": source, "source_epoch": epoch}
            await changes.create(name, partitions, configs, topic_id=uuid.UUID(bytes=topic_id), **options)  # type: ignore[arg-type]
            LOGGER.info("mirror created: topic=%s source=%s partitions=%d", name, source, partitions)
            if is_internal(name):
                await self._coordinators.load(self._manager)
            return aside
        topic = hosted.topic
        if topic.mirror_of != source or topic.id_bytes != topic_id:
            other = "a topic of its own" if not topic.mirror_of else f"a mirror of {topic.mirror_of} with another id"
            raise RequestError(
                f"topic {name!r} is {other} on this server, so it is not copied from {source}. Delete or rename it",
                ErrorCode.TOPIC_ALREADY_EXISTS,
            )
        if partitions > len(hosted.partitions):
            await changes.create_partitions(name, partitions, mirrored=True)
        if dict(configs) != topic.configs:
            await changes.change_configs(name, lambda _: dict(configs), lenient=True, mirrored=True)
        return aside

    async def confirm_sources(self, epochs: Mapping[str, int]) -> None:
        """Note that the source has these topics with the ids that they have here, and the latest leader epoch of each there. It
        is on the device when this returns. Raises RequestError."""
        await self._manager.changes.confirm_sources(epochs)

    async def _replaced(self, hosted: HostedTopic) -> list[SetAside]:
        """Delete a topic. Its records are on the device in files of the log directory before, beside those that were set aside
        earlier. Raises RequestError, OSError: the topic is as before, and another call continues."""
        name, topics = hosted.topic.name, self._manager.topics
        actors = [topics.actor(TopicPartition(name, number)) for number in range(len(hosted.partitions))]
        for actor in actors:
            actor.snapshot()  # all can be read, or nothing is copied
        done = self._replacing.setdefault(hosted.topic.id_bytes, {})
        for actor in actors:
            start, end = actor.log.log_start_offset, actor.log.log_end_offset
            if start < end and actor.topic_partition not in done:
                done[actor.topic_partition] = await self._set_aside(actor, start, is_beside=True)
        for actor in actors:
            await self._manager.disk.call(_move_out, self._manager.disk.fs, actor.log, at=actor.log.directory)
        await self._manager.changes.delete(name, hosted.topic.id_bytes, mirrored=True)
        await self._coordinators.committed_offsets.forget_topic(name)
        return list(self._replacing.pop(hosted.topic.id_bytes).values())

    def log(self, topic_partition: TopicPartition) -> Log:
        """Return the log of a mirror, to be read. Raises RequestError."""
        return self._manager.topics.actor(topic_partition).log

    async def append(self, topic_partition: TopicPartition, records: Bytes) -> int:
        """Append what the source returned for the log end offset, and return the number of bytes that were appended once they
        are as durable as the topic demands. Raises RequestError. A cancelled call waits for the append that is enqueued: a
        promotion must not find the log longer afterwards."""
        actor = self._manager.topics.actor(topic_partition)
        log = actor.log
        first = next((header for header, _ in iter_batches(records) if header.next_offset > log.log_end_offset), None)
        if first is not None and first.base_offset < log.log_start_offset == log.log_end_offset:
            # The source has deleted the first records of this batch (Kafka: UnexpectedAppendOffsetException).
            await actor.perform(partial(truncate_fully_and_start_at, offset=first.base_offset))
        steps = prepare_mirrored(records, topic_partition, log.config, end_offset=log.log_end_offset)
        size = 0
        for each in await self._manager.disk.compute(steps):
            first = each.batches[0][0]
            if first.partition_leader_epoch != log.leader_epochs.latest_epoch:
                await self.confirm_sources({topic_partition.topic: first.partition_leader_epoch})
                await actor.perform(
                    partial(begin_leader_epoch, epoch=first.partition_leader_epoch, start_offset=first.base_offset)
                )
            with trio.CancelScope(shield=True):
                await store(actor, each, lambda _: None)
            size += each.size
        return size

    async def raise_log_start(self, topic_partition: TopicPartition, offset: int) -> None:
        """Begin where the source begins. A log that ends before begins again there. Raises RequestError."""
        actor = self._manager.topics.actor(topic_partition)
        if offset > actor.log.log_end_offset:
            await actor.perform(partial(truncate_fully_and_start_at, offset=offset))
        elif offset > actor.log.log_start_offset:
            await actor.perform(partial(increment_log_start_offset, offset=offset), writes=False)

    async def header_at(self, topic_partition: TopicPartition, offset: int) -> BatchHeader | None:
        """Return the header of the batch that holds the offset, or the next one; None where the log has none. Raises
        RequestError."""
        actor = self._manager.topics.actor(topic_partition)
        snapshot = actor.snapshot()
        if not snapshot.log_start_offset <= offset < snapshot.log_end_offset:
            return None
        steps = fetch_batches(snapshot, offset, 1, min_one_batch=True, skip_gaps=True)
        for header, _ in iter_batches((await actor.disk.read(steps)).records):
            if header.next_offset > offset:
                return header
        return None

    async def newest_header(self, topic_partition: TopicPartition) -> BatchHeader | None:
        """Return the header of the last batch, after which the log may have offsets without records; None: it has no batch.
        Raises RequestError."""
        log = self.log(topic_partition)
        low, high = log.log_start_offset, log.log_end_offset - 1
        found = await self.header_at(topic_partition, high)
        while found is None and low <= high:
            middle = (low + high) // 2
            if (header := await self.header_at(topic_partition, middle)) is None:
                high = middle - 1
            elif await self.header_at(topic_partition, header.next_offset) is None:
                found = header
            else:
                low = header.next_offset
        return found

    async def cut_back(self, topic_partition: TopicPartition, offset: int) -> SetAside | None:
        """Let a log end at the offset. Removed records are on the device in a file beside the log before. Raises RequestError,
        OSError."""
        actor = self._manager.topics.actor(topic_partition)
        log = actor.log
        if offset >= log.log_end_offset:
            return None
        found = await self._set_aside(actor, max(offset, log.log_start_offset))
        with trio.CancelScope(shield=True):  # a promotion must not find the log longer than it will be
            await actor.perform(partial(truncate_to, offset=offset))
        return found

    async def _set_aside(self, actor: PartitionActor, offset: int, *, is_beside: bool = False) -> SetAside:
        """Copy the records from the offset on to a file in the log's directory, or beside that. It has its name once it is
        complete and on the device. Raises RequestError, OSError."""
        snapshot, disk, log = actor.snapshot(), self._manager.disk, actor.log
        end = snapshot.log_end_offset
        name = f"{segment_file(offset, LOG_SUFFIX)}{ASIDE_MARK}{end}"
        base = _path_beside(log, name) if is_beside else f"{log.directory}/{name}"
        path, number = base, 1
        while disk.fs.file_size(path) is not None:
            path, number = f"{base}.{number}", number + 1
        _check_space(disk.fs, log, offset)
        position, records, start, temporary = 0, 0, offset, path + TEMPORARY_SUFFIX
        try:
            while offset < end:
                data, offset, count = await _read(actor, snapshot, offset)
                await disk.call(_write, disk.fs, temporary, position, data, at=path)
                position, records = position + len(data), records + count
            await disk.call(_finish, disk.fs, temporary, path, at=path)
        except BaseException:
            with suppress(OSError):
                disk.fs.unlink(temporary)
            raise
        LOGGER.warning(
            "%s: records set aside: offsets=%d-%d records=%d file=%s", actor.topic_partition, start, end - 1, records, path
        )
        return SetAside(topic_partition=actor.topic_partition, start_offset=start, end_offset=end, records=records, path=path)

    # ---- cuts and promotion ----------------------------------------------------------------------------------------------

    @property
    def cut_topics(self) -> frozenset[str]:
        """Return the topics in the newest cut; none before there is one."""
        return frozenset(each.topic for each in self._cut or ())

    async def load_cut(self) -> None:
        """Read the newest cut of an earlier process."""
        found: list[dict[TopicPartition, int]] = []
        for directory in self._manager.log_directories.live:
            path = f"{directory.path}/{CUT_FILE}"
            try:
                cut = await self._manager.disk.call(maybe_read, self._manager.disk.fs, path, decode_offsets, at=path)
            except (CheckpointError, OSError) as exc:
                LOGGER.warning("cannot read the newest cut, after a power cut? The next one replaces it: %s", exc)
                continue
            found += [cut] if cut else []
        common = frozenset[TopicPartition]().union(*found).intersection(*found)  # a topic may be gone since
        self._cut = max(found, key=lambda each: sum(each[topic_partition] for topic_partition in common), default=None)

    async def note_cut(self, ends: Mapping[TopicPartition, int]) -> None:
        """All partitions are copied up to these offsets, where the source ended at one moment. Raises OSError."""
        if ends == self._cut:
            return
        data = encode_offsets(ends)
        for path in [each.path for each in self._manager.log_directories.live]:
            await self._manager.disk.call(replace_file_lazily, self._manager.disk.fs, f"{path}/{CUT_FILE}", data, at=path)
        self._cut = dict(ends)

    async def promote(self, source: str, *, accept_incomplete: bool = False) -> Promotion:
        """Make all mirrors of a source writable. Nothing may copy meanwhile. Raises RequestError, OSError: all of them are
        mirrors still, and some may end at the newest cut."""
        manager, topics = self._manager, self.topics(source)
        if not topics:
            raise RequestError(f"this server has no mirrors of {source}", ErrorCode.INVALID_REQUEST)
        actors = [
            manager.topics.actor(TopicPartition(name, number))
            for name in topics
            for number in range(len(manager.topics.get(name).partitions))
        ]
        needs_cut = any(map(is_internal, topics))
        aside: list[SetAside] = []
        has_cut = needs_cut and self._cut is not None
        if needs_cut and self._cut is None and not accept_incomplete:
            raise RequestError(
                f"the first copy of {source} is not complete: groups and transactions may refer to records that are missing. "
                "Wait for it, or promote with --incomplete",
                ErrorCode.INVALID_REQUEST,
            )
        if self._cut is not None and has_cut:
            if short := [str(each.topic_partition) for each in actors if each.log.log_end_offset < self._ends_of(each)]:
                has_cut = False
                LOGGER.error("records of the newest cut are missing, after a power cut? partitions=%s", ",".join(short))
            for actor in actors:
                end = self._cut.get(actor.topic_partition, actor.log.log_start_offset)
                found = await self.cut_back(actor.topic_partition, end)
                aside += [] if found is None else [found]
        for actor in actors:
            above = manager.topics.get(actor.topic_partition.topic).topic.source_epoch
            await actor.perform(partial(raise_leader_epoch, above=above))
        await self._coordinators.move_producers_apart(actors)
        await manager.changes.end_mirrors(topics)
        for actor in actors:
            await actor.perform(partial(become_mirror, source=""))
        self.release(source)
        if needs_cut:  # else it is that of another source
            self._cut = None
            await self._forget_cut()
            await self._coordinators.load(manager)
        LOGGER.warning("promoted: source=%s topics=%d partitions=%d", source, len(topics), len(actors))
        return Promotion(topics=tuple(topics), partitions=len(actors), has_cut=has_cut, set_aside=tuple(aside))

    def _ends_of(self, actor: PartitionActor) -> int:
        """Return the end of a partition in the newest cut."""
        return (self._cut or {}).get(actor.topic_partition, 0)

    async def _forget_cut(self) -> None:
        disk = self._manager.disk
        for directory in self._manager.log_directories.live:
            path = f"{directory.path}/{CUT_FILE}"
            if disk.fs.file_size(path) is not None:
                await disk.call(disk.fs.unlink, path, at=path)


async def _read(actor: PartitionActor, snapshot: LogSnapshot, offset: int) -> tuple[bytes, int, int]:
    """(batches from the offset on, the offset after them, number of records)."""
    fetched = await actor.disk.read(fetch_batches(snapshot, offset, MIB, min_one_batch=True, skip_gaps=True))
    data, count, after = bytearray(), 0, snapshot.log_end_offset
    for header, batch in iter_batches(fetched.records):
        if header.next_offset > offset:
            data += batch
            count += 0 if header.is_control else header.records_count
            after = header.next_offset
    return bytes(data), after if data else snapshot.log_end_offset, count


def _path_beside(log: Log, name: str) -> str:
    return f"{log.directory.rpartition('/')[0]}/{file_beside(log.topic_partition, name)}"


def _move_out(fs: FileSystem, log: Log) -> None:
    """Move files with records that were set aside out of the directory of a log that will be deleted."""
    for name in fs.list_directory(log.directory):
        if ASIDE_MARK in name and not name.endswith(TEMPORARY_SUFFIX):
            target, number = _path_beside(log, name), 1
            while fs.file_size(target) is not None:
                target, number = f"{_path_beside(log, name)}.{number}", number + 1
            fs.rename(f"{log.directory}/{name}", target)
    fs.sync_directory(log.directory.rpartition("/")[0])


def _check_space(fs: FileSystem, log: Log, offset: int) -> None:
    """Raises OSError when the records from the offset on would fill the device, by an estimate: the device is not filled again
    and again by copies that are not complete."""
    end, size = log.log_end_offset, 0
    for segment in log.segments.values(offset, end):
        part = (end - max(offset, segment.base_offset)) / (end - segment.base_offset) if end > segment.base_offset else 0
        size += int(segment.size * part)
    if size > fs.free_bytes(log.directory):
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {size} bytes are needed to set records aside", log.directory)


def _write(fs: FileSystem, path: str, position: int, data: Bytes) -> None:
    with opened(fs, path, CREATE if position else CREATE | os.O_TRUNC) as fd:
        fs.write(fd, [data], position)


def _finish(fs: FileSystem, temporary: str, path: str) -> None:
    """Force a file to the device and give it its name."""
    with opened(fs, temporary, CREATE) as fd:
        fs.sync(fd)
    fs.rename(temporary, path)
    fs.sync_directory(path.rpartition("/")[0])


def replace_file_lazily(fs: FileSystem, path: str, data: bytes) -> None:
    """Put a file in place without forcing it to the device."""
    replace_file(fs, path, data, durable=False)
