"""Commits of staged record batches, one version of an application after the other, kept in `__stage_commits`.

1. What the writers have staged is checked and forced to the device, and so are the partitions' logs, whose ends are noted.
2. One record, synced whatever the durability, says what is to be appended where, and under which producer: from here on the
   commit stands, and it is never undone.
3. The batches are appended with that producer and consecutive sequences, and forced to the device.
4. A second record says that it is done and at which offsets; then the staged files are deleted, and the commit is answered.

Whatever ends this between 2 and 4 (a crash, a stop, a partition that refuses), it goes on behind the records of that producer
that are in a partition at or behind the offset noted for it: at the start before anybody is served, else every RETRY_S.

An application has one producer id, each of its commits an epoch of its own: so a partition remembers one producer for each
application, however many commits there are, and what another commit has appended is not taken for this one's.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ...protocol.coordinator.stage_commits import (
    STAGE_COMMITS_TOPIC,
    CommittedFile,
    StageCommitPartition,
    StageCommitState,
    StageCommitValue,
    decode_stage_commit_key,
    decode_stage_commit_value,
    encode_stage_commit_key,
)
from ...protocol.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTopicError,
    RequestError,
    TriologError,
    UnknownTopicOrPartitionError,
)
from ...protocol.limits import INT16_MAX, INT32_MAX, MIB
from ...protocol.records.batch import BatchHeader
from ...protocol.records.builder import build_batch
from ...protocol.records.record import iter_records
from ...protocol.types import NO_OFFSET, Bytes, TopicPartition
from ..clock import NowMs
from ..storage.errors import LogOfflineError
from ..storage.paths import is_internal
from ..storage.stage_files import StagedBytes, check_staged, stage_name, sync_staged, version_of
from .internal_topic import INTERNAL_TOPIC_CONFIG, InternalTopic
from .log_manager import LogManager
from .producer_ids import ProducerIds
from .stage_appends import StageProducer, append_staged_files, flush, flush_for_producer
from .stages import Stages

LOGGER: Final = logging.getLogger(__name__)

RETRY_S: Final = 10.0
"""How long a commit that a partition refused waits: the partition is offline or its device full, so nothing changes soon."""
APPENDERS: Final = 4
"""Partitions that one commit appends to at a time, with up to 8 MiB in memory for each."""
MAX_COMMIT_RECORD_BYTES: Final = 16 * MIB
"""Room for the files that a request of 262,144 objects can name."""

TOPIC_CONFIG: Final = INTERNAL_TOPIC_CONFIG | {
    "durability": "fsync",
    "max.message.bytes": str(MAX_COMMIT_RECORD_BYTES),
}


class StagedShare(NamedTuple):
    """What one task has staged for one partition, as its writer was told."""

    task: str
    topic_partition: TopicPartition
    staged: StagedBytes


class Committed(NamedTuple):
    """Whether this call has committed the version, and where its records are."""

    by_this_call: bool
    partitions: tuple[StageCommitPartition, ...]


@attrs.define(eq=False)
class Application:
    """One application. Owner: whoever is inside `turn`; `value` changes when its record is stored."""

    name: str
    value: StageCommitValue | None = None
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0
    """Who has it in hand or waits for its turn."""
    retry_at: float = 0.0
    finished: dict[TopicPartition, StageCommitPartition] = attrs.field(factory=dict)
    """Partitions of a decided commit that have all of their records, as far as we know."""


@attrs.define(eq=False)
class StageCommits:
    """See the module. Called from any task of the trio thread; `load` comes first."""

    _manager: LogManager
    _topic: InternalTopic
    _now_ms: NowMs
    _producer_ids: ProducerIds
    stages: Stages
    _applications: dict[str, Application] = attrs.field(factory=dict)
    _decided: set[str] = attrs.field(factory=set)
    """Applications whose last commit is not done."""
    _unreadable: RequestError | None = None

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs, producer_ids: ProducerIds) -> StageCommits:
        topic = InternalTopic(manager, now_ms, STAGE_COMMITS_TOPIC, 1, TOPIC_CONFIG)
        return cls(manager, topic, now_ms, producer_ids, Stages(manager, now_ms))

    # ---- start -----------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the log and what is staged. A log that cannot be read answers with the reason from then on."""
        await self.stages.load()
        if STAGE_COMMITS_TOPIC not in self._manager.topics:
            return
        values: dict[str, StageCommitValue | None] = {}

        def take(header: BatchHeader, batch: Bytes) -> None:
            for record in () if header.is_control else iter_records(batch, header):
                name = decode_stage_commit_key(record.key or b"")
                if name is not None:
                    values[name] = None if record.value is None else decode_stage_commit_value(record.value)

        try:
            for number in range(self._topic.partitions):
                await self._topic.replay(TopicPartition(STAGE_COMMITS_TOPIC, number), take)
        except (TriologError, OSError) as exc:
            self._unreadable = LogOfflineError(
                f"the commits of staged records cannot be served: {exc}; `triolog verify` says what is wrong with the log"
            )
            LOGGER.error("%s", self._unreadable)
        for name, value in values.items():
            if value is not None:
                self._producer_ids.saw(value.producer_id)
                self._applications[name] = Application(name, value)
                if not value.is_done:
                    self._decided.add(name)
                    self.stages.held.add(stage_name(name, value.version))
        if self._unreadable is None:
            await self._forget_leftovers()

    async def _forget_leftovers(self) -> None:
        """Delete what is staged for versions that are committed: a crash came between."""
        last = {stage_name(name, 0).partition("-")[0]: owner.value for name, owner in self._applications.items()}
        for name in self.stages.names():
            value, version = last.get(name.partition("-")[0]), version_of(name)
            if value is not None and version is not None and version <= value.version and name not in self.stages.held:
                await self.stages.forget(name)

    # ---- doors -----------------------------------------------------------------------------------------------------------

    def last_version(self, application: str) -> int | None:
        """The version that was committed last, or is decided; None when there was none. Raises RequestError."""
        self._check_readable()
        owner = self._applications.get(application)
        return None if owner is None or owner.value is None else owner.value.version

    async def commit(self, application: str, version: int, shares: Sequence[StagedShare]) -> Committed:
        """Append what is named to its partitions, once; a version that is not above the last one changes nothing.

        Raises RequestError. Cancelled once it is decided: it is carried out all the same, and asking again tells how.
        """
        self._check_readable()
        await self._topic.ensure()
        async with self._turn(application) as owner:
            before = owner.value
            if before is not None and not before.is_done:
                await self._finish(owner)
                before = owner.value
            if before is not None and version <= before.version:
                await self.stages.drop(application, version)
                return Committed(False, before.partitions if version == before.version else ())
            with trio.CancelScope(shield=True):
                await self._decide(owner, version, shares)
            await self._finish(owner, is_new=True)
            assert owner.value is not None
            return Committed(True, owner.value.partitions)

    async def abort(self, application: str, version: int, tasks: Sequence[str] | None) -> None:
        """Delete what these tasks (None: all) have staged, unless its commit is decided. Raises RequestError."""
        self._check_readable()
        async with self._turn(application):
            if stage_name(application, version) not in self.stages.held:
                await self.stages.drop(application, version, tasks)

    async def finish_overdue(self) -> None:
        """Carry out what is decided and was cut off. What fails is logged and tried again later."""
        for name in list(self._decided):
            owner = self._applications[name]
            if owner.users or owner.retry_at > trio.current_time():
                continue
            async with self._turn(name):
                try:
                    await self._finish(owner)
                except RequestError as exc:
                    LOGGER.error("%s", exc)

    async def expire(self) -> int:
        """Forget applications without a commit for `stage_commit_expiration_ms`, and answer how many. Raises RequestError."""
        latest = self._now_ms() - self._manager.config.stage_commit_expiration_ms
        count = 0
        for name, owner in list(self._applications.items()):
            value = owner.value
            if value is not None and value.is_done and value.update_ms <= latest and not owner.users:
                async with self._turn(name):
                    if owner.value is value:
                        with trio.CancelScope(shield=True):
                            await self._store(owner, None)
                        count += 1
        return count

    def _check_readable(self) -> None:
        if self._unreadable is not None:
            raise self._unreadable.as_answer()

    @asynccontextmanager
    async def _turn(self, application: str) -> AsyncIterator[Application]:
        """The commits of one application come one after the other."""
        owner = self._applications.setdefault(application, Application(application))
        owner.users += 1
        try:
            async with owner.turn:
                yield owner
        finally:
            owner.users -= 1
            if owner.value is None and not owner.users:
                del self._applications[application]

    # ---- steps, inside an application's turn -----------------------------------------------------------------------------

    async def _decide(self, owner: Application, version: int, shares: Sequence[StagedShare]) -> None:
        """Check everything, then store the record: what it names is on the device.

        When the log of commits fails while it takes the record, a restart may find it there: what it names is kept until then.
        A second record for the version would take its place.
        """
        producer, name = await self._next_producer(owner.value), stage_name(owner.name, version)
        in_doubt = name in self.stages.held
        self.stages.held.add(name)
        try:
            partitions = await self._check(owner.name, version, shares, producer)
            value = StageCommitValue(
                version=version,
                state=StageCommitState.DECIDED if partitions else StageCommitState.DONE,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                update_ms=self._now_ms(),
                partitions=partitions,
            )
            owner.finished.clear()
            try:
                await self._store(owner, value)
            except RequestError as exc:
                in_doubt = in_doubt or exc.code is ErrorCode.KAFKA_STORAGE_ERROR
                raise
        except RequestError:
            if not in_doubt:
                self.stages.held.discard(name)
            raise

    async def _next_producer(self, last: StageCommitValue | None) -> StageProducer:
        if last is None or last.producer_epoch == INT16_MAX:
            return StageProducer(await self._producer_ids.next(), 0)
        return StageProducer(last.producer_id, last.producer_epoch + 1)

    async def _check(
        self, application: str, version: int, shares: Sequence[StagedShare], producer: StageProducer
    ) -> tuple[StageCommitPartition, ...]:
        """What the commit comes to, by partition. Raises RequestError; nothing has changed then."""
        by_partition: dict[TopicPartition, list[StagedShare]] = {}
        for share in shares:
            if any(each.task == share.task for each in by_partition.setdefault(share.topic_partition, [])):
                raise InvalidRequestError(f"{share.topic_partition}: task {share.task!r} is named twice for one partition")
            by_partition[share.topic_partition].append(share)
        for topic_partition in by_partition:
            if is_internal(topic_partition.topic):
                raise InvalidTopicError(f"{topic_partition.topic} belongs to the server; it can be read, not written")
            self._manager.topics.writable(topic_partition)
        name = stage_name(application, version)
        paths: dict[str, list[str]] = {}
        files: dict[TopicPartition, list[CommittedFile]] = {}
        for topic_partition in sorted(by_partition):
            for share in by_partition[topic_partition]:
                path, file = await self._check_file(name, share)
                paths.setdefault(path.rsplit("/", 3)[0], []).append(path)
                files.setdefault(topic_partition, []).append(file)
            count = sum(file.records_count for file in files[topic_partition])
            if count > INT32_MAX:
                raise InvalidRequestError(f"{topic_partition}: {count} records are staged, a commit has at most {INT32_MAX}")
        disk = self._manager.disk
        if self._manager.config.durable:
            try:
                for directory, of_directory in paths.items():
                    await disk.call(sync_staged, disk.fs, directory, name, of_directory)
            except OSError as exc:
                raise LogOfflineError(
                    f"what is staged in {name} cannot be forced to the device: {exc}; stage it again"
                ) from exc
        partitions = []
        for topic_partition, of_partition in files.items():
            topic_id = self._manager.topics.get(topic_partition.topic).topic.topic_id
            end_offset = await self._manager.topics.actor(topic_partition).perform(
                partial(flush_for_producer, producer=producer)
            )
            partitions.append(
                StageCommitPartition(
                    topic_partition=topic_partition,
                    topic_id=topic_id,
                    start_offset=end_offset,
                    files=tuple(of_partition),
                )
            )
        return tuple(partitions)

    async def _check_file(self, name: str, share: StagedShare) -> tuple[str, CommittedFile]:
        topic_partition, disk = share.topic_partition, self._manager.disk
        file = self.stages.check_complete(name, share.task, topic_partition)
        if file.last_write is not None:
            await file.last_write.wait()
        what = f"{topic_partition}: task {share.task!r}"
        try:
            found = await disk.call(check_staged, disk.fs, file.path, share.staged, what)
        except OSError as exc:
            raise LogOfflineError(f"{what}: {file.path} cannot be read: {exc}; stage it again under another task") from exc
        limit = self._manager.topics.actor(topic_partition).config.segment_bytes
        if found.largest_batch_bytes > limit:
            raise InvalidRequestError(f"{what} has a batch of {found.largest_batch_bytes} bytes, above segment.bytes={limit}")
        size, crc = share.staged
        return file.path, CommittedFile(task=share.task, size_bytes=size, crc=crc, records_count=found.records_count)

    async def _finish(self, owner: Application, *, is_new: bool = False) -> None:
        """Bring a decided commit to its end. Raises RequestError: it stays decided, and is tried again.

        `is_new`: nothing of it can be in a partition yet.
        """
        value = owner.value
        assert value is not None
        if not value.is_done:
            failures = await self._append_all(owner, value, is_new=is_new)
            if failures:
                owner.retry_at = trio.current_time() + RETRY_S
                raise LogOfflineError(
                    f"version {value.version} of application {owner.name!r} is decided, and {len(failures)} of its "
                    f"{len(value.partitions)} partitions have not all records yet: {failures[0].message}; it is tried again "
                    f"every {RETRY_S:g} s, ask again"
                )
            partitions = tuple(owner.finished[each.topic_partition] for each in value.partitions)
            done = attrs.evolve(value, state=StageCommitState.DONE, update_ms=self._now_ms(), partitions=partitions)
            with trio.CancelScope(shield=True):
                await self._store(owner, done)
        self.stages.held.discard(stage_name(owner.name, value.version))
        await self.stages.drop(owner.name, value.version)

    async def _append_all(self, owner: Application, value: StageCommitValue, *, is_new: bool) -> list[RequestError]:
        remaining = iter([each for each in value.partitions if each.topic_partition not in owner.finished])
        failures: list[RequestError] = []
        name = stage_name(owner.name, value.version)

        async def work() -> None:
            for each in remaining:
                try:
                    owner.finished[each.topic_partition] = await self._append(name, value, each, is_new=is_new)
                except RequestError as exc:
                    failures.append(exc.as_answer())

        async with trio.open_nursery() as workers:
            for _ in range(min(APPENDERS, len(value.partitions))):
                workers.start_soon(work)
        return failures

    async def _append(
        self, name: str, value: StageCommitValue, partition: StageCommitPartition, *, is_new: bool
    ) -> StageCommitPartition:
        """Append what a partition lacks of its records; answers where they are. Raises RequestError."""
        topic_partition = partition.topic_partition
        topics = self._manager.topics
        if topic_partition.topic not in topics or topics.get(topic_partition.topic).topic.topic_id != partition.topic_id:
            LOGGER.warning("%s is gone, and with it what was committed to it", topic_partition)
            return attrs.evolve(partition, files=())
        paths = []
        for file in partition.files:
            staged = self.stages.find(name, file.task, topic_partition)
            if staged is None:
                raise LogOfflineError(
                    f"{topic_partition}: what task {file.task!r} has staged for a commit that is decided is not in any log "
                    f"directory in service ({name}); bring the directory back and restart the server"
                )
            paths.append((staged.path, file))
        try:
            producer = StageProducer(value.producer_id, value.producer_epoch)
            found = await append_staged_files(self._manager, partition, paths, producer=producer, is_new=is_new)
        except UnknownTopicOrPartitionError:
            LOGGER.warning("%s is gone, and with it what was committed to it", topic_partition)
            return attrs.evolve(partition, files=(), base_offset=NO_OFFSET, end_offset=NO_OFFSET)
        return attrs.evolve(partition, files=(), base_offset=found.base_offset, end_offset=found.end_offset)

    async def _store(self, owner: Application, value: StageCommitValue | None) -> None:
        """Write the application's next record; None: it is forgotten. On the device when this returns. Raises RequestError:
        then it is as before."""
        record = (
            self._now_ms(),
            encode_stage_commit_key(owner.name),
            None if value is None else value.encode(),
            (),
        )

        def on_stored(_: object) -> None:
            owner.value = value
            if value is None or value.is_done:
                self._decided.discard(owner.name)
            else:
                self._decided.add(owner.name)

        place = TopicPartition(STAGE_COMMITS_TOPIC, self._topic.partition_of(owner.name).partition)
        await self._topic.append(place, build_batch([record]), on_stored)
        await self._topic.actor(place).perform(flush)
