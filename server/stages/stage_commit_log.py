"""Owns the commits of staged records: the records of `__stage_commits`, the lock of each application, and the checks.

The log is compacted and always synced. Memory holds the result of its replay. A log that cannot be read to its end is
unusable for every application, because records after the damage may be newer: the server then returns errors and forgets
nothing.

The checks run before a commit of staged records is decided. A failed check changes nothing. After a passed check the
staged files, and the partitions up to the noted ends, are on the device.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import attrs

from ...protocol.coordinator.stage_commits import (
    STAGE_COMMITS_TOPIC,
    CommittedFile,
    StageCommitPartition,
    StageCommitValue,
    decode_stage_commit_key,
    decode_stage_commit_value,
    encode_stage_commit_key,
)
from ...protocol.errors import InvalidRequestError, InvalidTopicError, RequestError
from ...protocol.limits import INT32_MAX, MIB
from ...protocol.records.builder import build_batch
from ...protocol.types import TopicPartition
from ..logs.internal_topic import INTERNAL_TOPIC_CONFIG, InternalTopic
from ..logs.log_manager import LogManager
from ..loop.waiting import KeyedLocks
from ..partitions.flusher import flush
from ..storage.disk.paths import is_internal
from ..storage.errors import LogOfflineError, StorageError
from ..system.client_memory import Account, deep_bytes
from ..system.clock import NowMs
from .stage_appends import StageProducer, flush_for_producer
from .stage_files import StagedBytes, check_staged, sync_staged
from .stages import StagedFile, Stages

LOGGER: Final = logging.getLogger(__name__)

MAX_COMMIT_RECORD_BYTES: Final = 16 * MIB
"""Room for the files that a request of 262,144 objects can name."""

APPLICATION_BYTES: Final = 1_500
"""An application, without its name and its last commit."""
TOPIC_CONFIG: Final = INTERNAL_TOPIC_CONFIG | {
    "durability": "fsync",
    "max.message.bytes": str(MAX_COMMIT_RECORD_BYTES),
}


@attrs.define(eq=False, repr=False)
class Application:
    """An application. Owner: the task inside its turn; `value` changes when its record is stored."""

    name: str
    value: StageCommitValue | None = None
    retry_at: float = 0.0
    finished: dict[TopicPartition, StageCommitPartition] = attrs.field(factory=dict)
    """Partitions of a decided commit that have all of their records, as far as we know."""


@attrs.define(eq=False, repr=False)
class StageCommitLog:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _topic: InternalTopic
    applications: dict[str, Application] = attrs.field(factory=dict)
    decided: set[str] = attrs.field(factory=set)
    """Applications whose last commit is not done."""
    turns: KeyedLocks[str] = attrs.field(factory=KeyedLocks)
    """By application."""
    _unreadable: RequestError | None = None

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs) -> StageCommitLog:
        return cls(InternalTopic(manager, now_ms, STAGE_COMMITS_TOPIC, 1, TOPIC_CONFIG))

    async def load(self) -> None:
        """Read the log. One that cannot be read answers with the reason from then on."""

        async def read() -> dict[str, StageCommitValue]:
            values: dict[str, StageCommitValue] = {}
            for place in self._topic.places:
                values |= await self._topic.replay_newest(place, decode_stage_commit_key, decode_stage_commit_value)
            return values

        values = await self._topic.loaded(read, "the commits of staged records", STAGE_COMMITS_TOPIC)
        if isinstance(values, LogOfflineError):
            self._unreadable = values
            return
        self._unreadable = None
        for name, value in values.items():
            self.applications[name] = Application(name, value)
            self._account.put(name, _bytes_of(name, value))
            if not value.is_done:
                self.decided.add(name)

    @property
    def _account(self) -> Account:
        return self._topic.manager.client_memory.account("commits of staged tasks")

    @property
    def is_readable(self) -> bool:
        """Return whether the log could be read, so that the commits are known."""
        return self._unreadable is None

    def check_readable(self) -> None:
        """Raises LogOfflineError."""
        if self._unreadable is not None:
            raise self._unreadable.as_answer()

    async def ensure(self) -> None:
        """Make the topic if it is not there. Raises RequestError."""
        await self._topic.ensure()

    @asynccontextmanager
    async def turn(self, application: str) -> AsyncIterator[Application]:
        """The commits of one application come one after the other."""
        async with self.turns.hold(application):
            owner = self.applications.setdefault(application, Application(application))
            try:
                yield owner
            finally:
                if owner.value is None:
                    del self.applications[application]

    async def store(self, owner: Application, value: StageCommitValue | None) -> None:
        """Write the application's next record; None: it is forgotten. On the device when this returns. Raises RequestError:
        then `owner.value` says whether it is stored, unless it is a LogOfflineError: a restart may find it or not."""
        size = 0 if value is None else _bytes_of(owner.name, value)
        if value is not None and not value.is_done:
            self._account.check(owner.name, size - self._account.size_of(owner.name))
        record = (self._topic.now_ms(), encode_stage_commit_key(owner.name), None if value is None else value.encode(), ())

        def on_stored(_: object) -> None:
            owner.value = value
            if value is None:
                self._account.drop(owner.name)
            else:
                self._account.put(owner.name, size)
            if value is None or value.is_done:
                self.decided.discard(owner.name)
            else:
                self.decided.add(owner.name)

        place = self._topic.partition_of(owner.name)
        await self._topic.append(place, build_batch([record]), on_stored)
        await self._topic.actor(place).perform(flush)


def _bytes_of(name: str, value: StageCommitValue) -> int:
    return APPLICATION_BYTES + deep_bytes(name) + deep_bytes(value)


class StagedShare(NamedTuple):
    """The bytes that one task has staged for one partition, as reported to its writer."""

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
        """Check the shares and return the files to append, by partition. Raises RequestError."""
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
                raise InvalidTopicError(f"{topic_partition.topic} belongs to the server. It can be read, but not written")
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
            raise LogOfflineError(f"{what}: cannot read {file.path}: {exc}. Stage it again under another task") from exc
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
                f"cannot sync the records staged in {self._name} to the device: {exc}. Stage them again"
            ) from exc
