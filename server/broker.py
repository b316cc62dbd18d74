"""The one door for listeners and embedders: append, fetch, offsets for times, explain, topics, transactions, groups.

Values in, values out; no wire messages, no sockets. Per-partition errors are returned as values where several partitions are
asked at once, because the others still succeed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from ..protocol.coordinator.transactions import TransactionLogValue
from ..protocol.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidTopicError,
    RequestError,
    RequestTimedOutError,
)
from ..protocol.records.builder import BatchBuilder
from ..protocol.types import Bytes, CompressionType, TopicPartition
from .actors.compaction import Compaction
from .actors.coordinators import Coordinators, open_coordinators
from .actors.descriptions import DirectoryContents as DirectoryContents
from .actors.descriptions import DirectoryDescription as DirectoryDescription
from .actors.descriptions import PartitionDescription as PartitionDescription
from .actors.descriptions import TopicDescription as TopicDescription
from .actors.descriptions import TopicMetadata as TopicMetadata
from .actors.descriptions import describe_config, describe_directories, describe_topic, directory_contents, topic_metadata
from .actors.disk import Disk, DiskStatistics
from .actors.durations import DURATION_BOUNDS_S as DURATION_BOUNDS_S
from .actors.durations import Durations as Durations
from .actors.groups import Commit as Commit
from .actors.groups import GroupOffset as GroupOffset
from .actors.groups import check_group
from .actors.log_manager import open_log_manager
from .actors.log_opening import Report
from .actors.log_opening import StartProgress as StartProgress
from .actors.maintenance import run_maintenance
from .actors.partition import ACKS_ALL, Answer, PartitionActor, PartitionStatistics
from .actors.reader import LOOKUPS_PER_TURN as LOOKUPS_PER_TURN
from .actors.reader import READER_TASKS as READER_TASKS
from .actors.reader import FetchAnswer as FetchAnswer
from .actors.reader import FetchPartition as FetchPartition
from .actors.reader import Reader
from .actors.reader import ReaderView as ReaderView
from .actors.scrub import Scrub, ScrubStatistics
from .actors.security import Security as Security
from .actors.security import open_security
from .actors.segment_leases import Lease as Lease
from .actors.segment_leases import SegmentLeases
from .actors.stage_checks import StagedShare as StagedShare
from .actors.stage_commits import Committed as Committed
from .actors.stages import StageWrite as StageWrite
from .actors.statistics import BrokerStatistics as BrokerStatistics
from .actors.statistics import Collector
from .actors.statistics import DirectorySpace as DirectorySpace
from .actors.statistics import TopicFigures as TopicFigures
from .actors.topic_changes import ConfigChange
from .broker_config import BrokerConfig
from .clock import NowMs, system_now_ms
from .groups.consumer_values import ConsumerGroupDescription as ConsumerGroupDescription
from .groups.consumer_values import ConsumerHeartbeat as ConsumerHeartbeat
from .groups.consumer_values import ConsumerHeartbeatAnswer as ConsumerHeartbeatAnswer
from .groups.consumer_values import ConsumerMemberDescription as ConsumerMemberDescription
from .groups.values import NO_MEMBER
from .groups.values import CommittingMember as CommittingMember
from .groups.values import GroupDescription as GroupDescription
from .groups.values import GroupListing as GroupListing
from .groups.values import GroupState as GroupState
from .groups.values import Heartbeat as Heartbeat
from .groups.values import Join as Join
from .groups.values import JoinAnswer as JoinAnswer
from .groups.values import JoinedMember as JoinedMember
from .groups.values import LeaveAnswer as LeaveAnswer
from .groups.values import LeavingMember as LeavingMember
from .groups.values import LeftMember as LeftMember
from .groups.values import MemberDescription as MemberDescription
from .groups.values import Sync as Sync
from .groups.values import SyncAnswer as SyncAnswer
from .security.acls import Acl as Acl
from .security.acls import AclFilter as AclFilter
from .security.acls import check_new_acl as check_new_acl
from .storage.append import AppendResult as AppendResult
from .storage.append import PreparedAppend, prepare_append
from .storage.checkpoints import encode_uuid
from .storage.fetch import FetchedRecords as FetchedRecords
from .storage.filesystem import FileSystem, OsFileSystem
from .storage.leader_change import raise_leader_epoch
from .storage.leased_files import LeasedPartition as LeasedPartition
from .storage.paths import check_topic_name as check_topic_name
from .storage.paths import is_internal as is_internal
from .storage.producer_entry import ProducerEntry as ProducerEntry
from .storage.segment_view import TimestampAndOffset as TimestampAndOffset
from .storage.stage_files import StagedBytes as StagedBytes

PlainRecord = tuple[int | None, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""(timestamp in ms or None for now, key, value, headers)."""


Append = tuple[PartitionActor, PreparedAppend]
"""What `prepare` answers and `submit` takes: a partition, and what is to be appended there."""


@attrs.define(eq=False)
class Broker(Reader):
    """See the module; `Reader` has the reads. Use `open_broker_core`; every method belongs to the trio thread that runs it."""

    config: BrokerConfig
    _now_ms: NowMs
    _coordinators: Coordinators
    _scrub: Scrub
    _leases: SegmentLeases
    _compaction: Compaction
    security: Security
    """Who may log in, and who may do what."""

    def now_ms(self) -> int:
        """The server's wall clock, ms since the epoch."""
        return self._now_ms()

    @property
    def cluster_id(self) -> str:
        return self._manager.cluster_id

    @property
    def node_id(self) -> int:
        return self._manager.node_id

    # ---- append ----------------------------------------------------------------------------------------------------------

    def prepare(self, topic_partition: TopicPartition, records: Bytes) -> Append:
        """Check record batches for a partition. Raises the RequestError that is the partition's answer."""
        _check_not_internal(topic_partition.topic)
        actor = self._manager.topics.writable(topic_partition)
        now_ms = self._now_ms()
        prepared = prepare_append(records, topic_partition, actor.config, now_ms=now_ms)
        self._manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return actor, prepared

    def prepare_records(self, topic_partition: TopicPartition, records: Sequence[PlainRecord]) -> Append:
        """Pack plain records into one batch, with the topic's codec, for a partition."""
        _check_not_internal(topic_partition.topic)
        actor = self._manager.topics.writable(topic_partition)
        if not records:
            raise InvalidRecordError(f"{topic_partition}: there are no records in the request")
        codec = actor.config.compression_type or CompressionType.NONE
        builder = BatchBuilder(compression_type=codec, compression_level=actor.config.compression_level(codec))
        now_ms = self._now_ms()
        for timestamp, key, value, headers in records:
            builder.append(now_ms if timestamp is None else timestamp, key, value, headers)
        prepared = prepare_append(builder.build(), topic_partition, actor.config, now_ms=now_ms)
        self._manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return actor, prepared

    async def append(
        self,
        topic_partition: TopicPartition,
        records: Bytes | Sequence[PlainRecord],
        *,
        acks: int = ACKS_ALL,
        timeout_s: float | None = None,
    ) -> AppendResult:
        """Append record batches (bytes, stored as they are) or plain records, and wait for the acknowledgement.

        `acks`: -1 when the high watermark passes, 1 after the write, 0 without waiting (the result is then all -1).
        Raises RequestError; RequestTimedOutError when it took longer than `timeout_s`. Cancelled before it is enqueued
        nothing happened; after that the outcome is unknown.
        """
        plain = not isinstance(records, bytes | bytearray | memoryview)
        actor, prepared = (
            self.prepare_records(topic_partition, records)  # type: ignore[arg-type]
            if plain
            else self.prepare(topic_partition, records)  # type: ignore[arg-type]
        )
        if acks == 0:
            await actor.append(prepared, acks, _drop)
            return AppendResult(-1, -1, -1, -1)
        slot = _Slot()
        with trio.move_on_after(float("inf") if timeout_s is None else timeout_s):
            await actor.append(prepared, acks, slot.put)
            return await slot.get()
        raise RequestTimedOutError(f"{topic_partition}: no acknowledgement within {timeout_s} s; the outcome is unknown")

    @staticmethod
    async def submit(actor: PartitionActor, prepared: PreparedAppend, acks: int, answer: Answer) -> None:
        """Enqueue a prepared append (this wait is the backpressure); `answer` is called once, later, in another task."""
        if not actor.try_append(prepared, acks, answer):
            await actor.append(prepared, acks, answer)

    # ---- topics ----------------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        lenient: bool = False,
        validate_only: bool = False,
    ) -> str:
        """Make a topic and answer its id. Raises RequestError; with `validate_only` nothing is made. `lenient`: keys that
        do not exist are kept."""
        if validate_only:
            self._manager.check_new_topic(name, partitions, configs or {}, lenient=lenient)
            return ""
        topic = await self._manager.create_topic(name, partitions, configs or {}, lenient=lenient)
        return encode_uuid(topic.topic_id)

    async def delete_topic(self, name: str, *, topic_id: bytes | None = None) -> None:
        """Delete a topic, and the offsets that groups committed for it. `topic_id`: unless it is another one by then. Raises
        RequestError."""
        _check_not_internal(name)
        await self._manager.delete_topic(name, topic_id)
        await self._coordinators.groups.forget_topic(name)

    def topics(self) -> Iterator[str]:
        """Names of all topics, in order."""
        return (hosted.topic.name for hosted in self._manager.topics)

    def topic_named(self, topic_id: bytes) -> str:
        """The name of the topic with an id of 16 bytes. Raises RequestError: UNKNOWN_TOPIC_ID."""
        return self._manager.topics.name_of(topic_id)

    def topic_metadata(self, name: str) -> TopicMetadata:
        """Id and leader epochs of a topic. Raises RequestError."""
        return topic_metadata(self._manager.topics.get(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Identity, overridden configuration, and offsets and sizes of the partitions. Raises RequestError."""
        return describe_topic(self._manager.topics.get(name))

    def describe_config(self, name: str) -> dict[str, tuple[str, str]]:
        """(value, source) of every topic key, and of others that the topic has; the source is `topic` or `default`. Raises
        RequestError."""
        return describe_config(self._manager.topics.get(name))

    async def alter_configs(
        self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        """Override topic keys, and let others follow the server's defaults again. In effect, and on the device, when this
        returns. Raises RequestError; then nothing is changed."""
        await self._manager.alter_configs(name, changes, deletes, validate_only=validate_only)

    async def change_configs(
        self, name: str, change: ConfigChange, *, lenient: bool = False, validate_only: bool = False
    ) -> None:
        """The same with a function of what the topic overrides; nobody else changes that meanwhile. `lenient`: keys that do
        not exist are kept. Raises RequestError."""
        await self._manager.change_configs(name, change, lenient=lenient, validate_only=validate_only)

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Let a topic have `total` partitions, more than it has. Raises RequestError."""
        await self._manager.create_partitions(name, total, validate_only=validate_only)

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete the records below `before_offset` (-1: below the high watermark) and answer the log start offset. Readers
        do not see them any more, also after a power cut; the files go later. Raises RequestError."""
        return await self._manager.delete_records(topic_partition, before_offset)

    async def raise_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Begin the next leader epoch of a partition, as a new leader does, and answer it. Raises RequestError."""
        return await self._manager.topics.actor(topic_partition).perform(raise_leader_epoch)

    async def apply_retention(self) -> int:
        """Take out now what retention lets go; answers how many segments that were."""
        return await self._manager.retention.run_pass()

    async def compact(self, topic_partition: TopicPartition) -> int:
        """Compact a partition now, its newest records too, however little of it is dirty; answers how many rounds that took.
        What is undecided or younger than min.compaction.lag.ms stays. Raises RequestError: it is not compacted."""
        return await self._compaction.compact(topic_partition)

    # ---- producers and transactions --------------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """(producer id, epoch) for a producer that starts. With a transactional id whoever had it before is fenced off, and
        what it left open is aborted first; without one, the other arguments mean nothing. `expected`: id and epoch of a
        producer that goes on after an error (KIP-360). Raises RequestError."""
        if transactional_id is None:
            return await self._coordinators.producer_ids.next(), 0
        return await self._coordinators.transactions.init_producer(transactional_id, timeout_ms, expected)

    async def add_partitions_to_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Let partitions join the producer's transaction; call it before each transactional append.

        When this returns they have joined, and what the caller enqueues before its next `await` comes before the
        transaction's marker. Does not wait when they had joined before. Raises RequestError: for all of them or none.
        """
        await self._coordinators.transactions.add_partitions(transactional_id, producer_id, producer_epoch, partitions)

    async def add_offsets_to_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group: str
    ) -> None:
        """Let the offsets of a group join the producer's transaction; `commit_offsets` does it by itself."""
        groups = self._coordinators.groups
        check_group(group)
        await groups.ensure_topic()
        await self.add_partitions_to_transaction(transactional_id, producer_id, producer_epoch, [groups.partition_of(group)])

    def check_group_in_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        """Raises RequestError unless the offsets of a group have joined the producer's open transaction."""
        partition = self._coordinators.groups.partition_of(group)
        self.check_in_transaction(transactional_id, producer_id, producer_epoch, [partition])

    def check_in_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Raises RequestError unless these partitions have joined the producer's open transaction."""
        self._coordinators.transactions.check_joined(transactional_id, producer_id, producer_epoch, partitions)

    async def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, client_version: int = 0
    ) -> tuple[int, int]:
        """Commit or abort the producer's transaction; every partition of it has its marker when this returns. To end it the
        same way again is fine. Answers id and epoch of the producer for what comes next: they are others from
        `client_version` 2 on (KIP-890). Raises RequestError."""
        return await self._coordinators.transactions.end(
            transactional_id, producer_id, producer_epoch, commit=commit, client_version=client_version
        )

    async def write_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
    ) -> None:
        """End by hand what a producer has open on one partition, whatever its transaction's state says (KIP-664). Raises
        RequestError."""
        await self._coordinators.transactions.write_marker(
            topic_partition, producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch
        )

    def active_producers(self, topic_partition: TopicPartition) -> list[ProducerEntry]:
        """The producers that a partition remembers. Raises RequestError."""
        self.snapshot(topic_partition)
        entries = self._manager.topics.actor(topic_partition).log.producers.entries
        return [entries[producer_id] for producer_id in sorted(entries)]

    def transaction(self, transactional_id: str) -> TransactionLogValue | None:
        """The state of a transactional id; None when it is not known. Raises RequestError."""
        return self._coordinators.transactions.state(transactional_id)

    def transactions(self) -> Iterator[tuple[str, TransactionLogValue]]:
        """Every transactional id with its state."""
        return self._coordinators.transactions.states()

    # ---- groups ----------------------------------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        group: str,
        offsets: Sequence[Commit | tuple[TopicPartition, int, str | None]],
        *,
        transaction: tuple[str, int, int] | None = None,
        member: CommittingMember = NO_MEMBER,
    ) -> list[RequestError | None]:
        """Keep the offsets (of the record to be read next, with a note) of a group; one answer for each, in order.

        `transaction`, (transactional id, producer id, epoch): they count when it commits, and never if it aborts. `member`: who
        commits; who does without membership can do so for groups without members, or in a transaction. Raises RequestError
        when none of them could be kept.
        """
        groups, commits = self._coordinators.group_coordinator, [Commit(*each) for each in offsets]
        if transaction is None:
            return await groups.commit(group, commits, member)
        transactional_id, producer_id, producer_epoch = transaction
        await self.add_offsets_to_transaction(transactional_id, producer_id, producer_epoch, group)
        return await groups.commit(group, commits, member, producer_id=producer_id, producer_epoch=producer_epoch)

    async def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> list[tuple[TopicPartition, int, str]]:
        """(partition, committed offset, note) for these partitions, -1 where there is none; None: all that the group has.

        With `require_stable`, an offset that an open transaction may still change raises UNSTABLE_OFFSET_COMMIT. Raises
        RequestError.
        """
        return self._coordinators.groups.fetch(group, partitions, require_stable=require_stable)

    def committed_offsets(self, group: str, partitions: Sequence[TopicPartition] | None = None) -> list[GroupOffset]:
        """What a group has committed for these partitions, in order, and what may still change; None: all. Raises
        RequestError."""
        return self._coordinators.groups.committed(group, partitions)

    async def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[RequestError | None]:
        """Forget offsets of a group; one answer for each, in order. Those of topics that its members read stay
        (GROUP_SUBSCRIBED_TO_TOPIC). Raises RequestError for all of them."""
        return await self._coordinators.group_coordinator.delete_offsets(group, partitions)

    async def join_group(self, request: Join) -> JoinAnswer:
        """Be in the next generation of a group. Waits for the other members; errors are in the answer. Cancelled: the member is
        one all the same, until its session timeout."""
        return await self._coordinators.group_coordinator.join(request)

    async def sync_group(self, request: Sync) -> SyncAnswer:
        """Get a member's assignment. Waits for the leader's, and for it to be stored; errors are in the answer."""
        return await self._coordinators.group_coordinator.sync(request)

    def group_heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Say that a member is alive. REBALANCE_IN_PROGRESS: it has to join again."""
        return self._coordinators.group_coordinator.heartbeat(request)

    async def consumer_group_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Join a group whose assignments the server makes, stay in it, or leave it (KIP-848). Raises RequestError. Cancelled:
        what it has led to is stored all the same."""
        return await self._coordinators.group_coordinator.consumer_heartbeat(request)

    def describe_consumer_group(self, group: str) -> ConsumerGroupDescription:
        """Epochs, members, what they have and are to have. Raises RequestError: GROUP_ID_NOT_FOUND if the server does not make
        the assignments of this group."""
        return self._coordinators.group_coordinator.consumers.describe(group)

    def check_offset_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Whether a member of a group whose assignments the server makes may read its offsets; who is none may. Raises
        RequestError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        self._coordinators.group_coordinator.consumers.check_fetch(group, member_id, member_epoch)

    def leave_group(self, group: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        """Remove members from a group; each has an answer of its own, in order."""
        return self._coordinators.group_coordinator.leave(group, members)

    def describe_group(self, group: str) -> GroupDescription:
        """State, protocol and members; a group that nobody knows is Dead. Raises RequestError."""
        return self._coordinators.group_coordinator.describe(group)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Every group, by name, or those in one of the states and of one of the types, whatever their case."""
        return self._coordinators.group_coordinator.listings(states, types)

    async def delete_group(self, group: str) -> None:
        """Forget a group and its offsets. Raises RequestError: there is none, it has members, or it is committing."""
        await self._coordinators.group_coordinator.delete(group)

    # ---- staged records ------------------------------------------------------------------------------------------------

    def announce_stage(
        self, application: str, version: int, task: str, topic_partition: TopicPartition, records: Bytes
    ) -> StageWrite:
        """Check record batches and give them their place among what the task has staged for the partition; the order of the
        calls counts. The answer has to be given to `stage` or `give_up_stage`. Raises RequestError."""
        return self._coordinators.stage_commits.stages.announce(application, version, task, topic_partition, records)

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

    # ---- leases ----------------------------------------------------------------------------------------------------------

    async def lease_segments(self, partitions: Sequence[TopicPartition], lease_ms: int) -> Lease:
        """Names of the partitions' segments that nothing takes away for `lease_ms`; a partition without has its error there.
        Raises RequestError."""
        return await self._leases.take(partitions, lease_ms)

    async def renew_lease(self, lease_id: str, lease_ms: int) -> Lease:
        """Let a lease go on for `lease_ms` from now; 0 ends it. Raises RequestError."""
        return await self._leases.renew(lease_id, lease_ms)

    # ---- statistics ------------------------------------------------------------------------------------------------------

    async def statistics(self) -> BrokerStatistics:
        """Everything in numbers, for metrics and for people who watch. Takes 5 us for each partition, in turns."""
        return await Collector(self._manager, self._coordinators).collect(self._disk, self._compaction.counters, self._scrub)

    def partition_statistics(self, topic_partition: TopicPartition) -> PartitionStatistics:
        return self._manager.topics.actor(topic_partition).statistics()

    def disk_statistics(self) -> DiskStatistics:
        return self._disk.statistics()

    def scrub_statistics(self) -> ScrubStatistics:
        return self._scrub.statistics()

    def log_directories(self) -> list[DirectoryDescription]:
        """Every log directory: whether it serves, what lies there unserved, and how its reserve stands."""
        return describe_directories(self._manager)

    async def directory_contents(self) -> list[DirectoryContents]:
        """Every log directory: the partitions that are served from it, their sizes, and the room on its device."""
        return await directory_contents(self._manager)

    def directory_of(self, topic_partition: TopicPartition) -> str:
        """The log directory that holds a partition. Raises RequestError."""
        return self._manager.topics.partition(topic_partition).directory.path


@attrs.define(eq=False)
class _Slot:
    """Where one caller waits for one answer. Putting never raises, also when the caller is gone."""

    _answered: trio.Event = attrs.field(factory=trio.Event)
    _answer: AppendResult | RequestError | None = None

    def put(self, answer: AppendResult | RequestError) -> None:
        self._answer = answer
        self._answered.set()

    async def get(self) -> AppendResult:
        await self._answered.wait()
        if isinstance(self._answer, RequestError):
            raise self._answer.as_answer()
        assert self._answer is not None
        return self._answer


def _drop(answer: AppendResult | RequestError) -> None:
    """Nobody asked."""


def _check_not_internal(topic: str) -> None:
    """What coordinators keep is written by them alone, and cannot be taken from under them."""
    if is_internal(topic):
        raise InvalidTopicError(f"{topic} belongs to the server; it can be read, not written, changed or deleted")


@asynccontextmanager
async def open_broker_core(
    config: BrokerConfig, *, fs: FileSystem | None = None, now_ms: NowMs = system_now_ms, report: Report | None = None
) -> AsyncIterator[Broker]:
    """A broker on its log directories, without listeners. Leaving the block stops it in order. `report` is told how far the
    start is.

    Raises StorageError or OSError when the directories cannot be used.
    """
    disk = Disk(fs or OsFileSystem())
    async with open_log_manager(config, disk, now_ms, report=report) as manager:
        manager.nursery.start_soon(run_maintenance, manager)
        compaction = Compaction(manager)
        manager.nursery.start_soon(compaction.run)
        security = await open_security(manager)
        scrub = Scrub(manager)
        manager.nursery.start_soon(scrub.run)
        leases = SegmentLeases(manager)
        await leases.load()
        manager.nursery.start_soon(leases.run)
        async with open_coordinators(manager, now_ms) as coordinators:
            yield Broker(manager, disk, config, now_ms, coordinators, scrub, leases, compaction, security)
