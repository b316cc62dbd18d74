"""A coordinator's topic: made when it is first needed, appended to in the name of the coordinator, read to its end at the start
(Kafka: AutoTopicCreationManager, CoordinatorRuntime, CoordinatorLoaderImpl).

The state that a coordinator keeps in memory is what a replay of its log up to the high watermark would give: it changes in
`on_stored`, which the partition's actor calls in the order of the log, once the record is as durable as the topic demands.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
import trio

from ...protocol.errors import RequestError, TopicAlreadyExistsError, TriologError
from ...protocol.limits import MIB
from ...protocol.records.batch import BatchHeader, check_batch, iter_batches
from ...protocol.records.partitioners import coordinator_partition
from ...protocol.records.record import iter_records
from ...protocol.records.steps import UNLIMITED
from ...protocol.types import AppendResult, Bytes, TopicPartition
from ..partitions.appender import ACKS_ALL, Answer
from ..partitions.disk import STEPS_PER_PROCEDURE
from ..partitions.partition import PartitionActor
from ..partitions.task_errors import TaskErrors
from ..storage.errors import LogOfflineError, MirroredContentsError
from ..storage.log.mirrored import mirror_error
from ..storage.log.prepare import PreparedAppend, prepare_append, prepare_one
from ..storage.lookups.fetch import fetch_batches
from ..storage.producers.producer_cursor import AppendOrigin
from ..system.clock import NowMs
from .log_manager import LogManager

LOGGER: Final = logging.getLogger(__name__)

V = TypeVar("V")

LOAD_BYTES: Final = MIB
"""Read at a time when a coordinator starts."""

INTERNAL_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * MIB),
    "compression.type": "producer",
}
"""As Kafka makes its internal topics: small segments, so that compaction has something to work on."""

OnStored = Callable[[AppendResult], None]
"""Called in the partition's actor, in log order, before the caller goes on. Must not raise and must not block."""


@attrs.define(eq=False, repr=False)
class InternalTopic:
    """The topic `name`, which has `new_partitions` partitions if it is made here. Owner: nobody, it holds no state."""

    manager: LogManager
    now_ms: NowMs
    name: str
    new_partitions: int
    config: Mapping[str, str] = INTERNAL_TOPIC_CONFIG

    @property
    def errors(self) -> TaskErrors:
        """Return the record of unhandled exceptions in tasks of the coordinators."""
        return self.manager.disk.errors

    @property
    def exists(self) -> bool:
        return self.name in self.manager.topics

    @property
    def places(self) -> Sequence[TopicPartition]:
        """The partitions of the topic; none before it is there."""
        return [TopicPartition(self.name, number) for number in range(self.partitions if self.exists else 0)]

    @property
    def partitions(self) -> int:
        """Return the number of partitions that the topic has, or will have."""
        if not self.exists:
            return self.new_partitions
        return len(self.manager.topics.get(self.name).partitions)

    def partition_of(self, key: str) -> TopicPartition:
        """Return the partition that holds the records of a group or a transactional id. The number of partitions never changes,
        otherwise records would get lost."""
        return TopicPartition(self.name, coordinator_partition(key, self.partitions))

    def actor(self, topic_partition: TopicPartition) -> PartitionActor:
        """Raises RequestError."""
        return self.manager.topics.actor(topic_partition)

    async def ensure(self) -> None:
        """Make the topic if it is not there. Raises RequestError."""
        if not self.exists:
            if source := self.manager.changes.reserved(self.name):
                raise MirroredContentsError(mirror_error(self.name, source).message)
            try:
                await self.manager.changes.create(self.name, self.new_partitions, self.config, internal=True)
            except TopicAlreadyExistsError:
                return

    async def append(self, topic_partition: TopicPartition, batch: Bytes, on_stored: OnStored) -> None:
        """Append one batch and wait until it counts. Enqueued before anything else can run, if the mailbox has room.

        Raises RequestError. Cancelled once it is enqueued: it is stored all the same, and `on_stored` is called.
        """
        actor = self.actor(topic_partition)
        await store(actor, self._prepared(actor, batch), on_stored)

    def try_append(self, topic_partition: TopicPartition, batch: Bytes, answer: Answer) -> bool:
        """Enqueue one batch, and have `answer` called, in log order. False, and nothing has happened: the mailbox is full, or
        others are to have their turn. Raises RequestError."""
        if not self.manager.disk.turns.fit(STEPS_PER_PROCEDURE):
            return False
        actor = self.actor(topic_partition)
        return actor.try_append(self._prepared(actor, batch), ACKS_ALL, answer)

    def _prepared(self, actor: PartitionActor, batch: Bytes) -> PreparedAppend:
        now_ms = self.now_ms()
        prepared = prepare_one(batch, actor.config, now_ms, UNLIMITED)
        if prepared is not None:
            return prepared._replace(origin=AppendOrigin.COORDINATOR)
        return prepare_append(batch, actor.topic_partition, actor.config, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)

    async def replay(self, topic_partition: TopicPartition, take: Callable[[BatchHeader, memoryview], None]) -> None:
        """Give every batch up to the high watermark to `take`, its CRC checked; what recovery has put aside is said and passed
        over, and so is an end that nothing leads to. Raises RequestError, OSError, and what `take` raises."""
        actor = self.actor(topic_partition)
        snapshot = actor.snapshot()
        for gap in snapshot.gaps:
            LOGGER.error(
                "%s has a gap at offsets %d to %d, lost to corruption and kept in %s: the decisions recorded there are lost",
                topic_partition,
                gap.start_offset,
                gap.end_offset - 1,
                gap.file,
            )
        offset = snapshot.log_start_offset
        while offset < snapshot.high_watermark:
            fetched = await actor.disk.read(fetch_batches(snapshot, offset, LOAD_BYTES, min_one_batch=True, skip_gaps=True))
            before = offset
            for header, batch in iter_batches(fetched.records):
                check_batch(batch, header)
                take(header, batch)
                offset = header.next_offset
            if offset == before:
                if not any(gap.start_offset <= offset < snapshot.high_watermark <= gap.end_offset for gap in snapshot.gaps):
                    LOGGER.error(
                        "%s has no readable record from offset %d up to its high watermark %d: the decisions recorded there "
                        "are lost. Run `triolog verify` to check its files.",
                        topic_partition,
                        offset,
                        snapshot.high_watermark,
                    )
                return

    async def loaded(self, read: Callable[[], Awaitable[V]], contents: str, place: object) -> V | LogOfflineError:
        """Return the outcome of `read`, or the error, logged, that says why these contents cannot be served. `place`: the
        partition or topic that is read. Those of a mirror change without the coordinator, and are read once it is promoted."""
        if self.exists and (source := self.manager.topics.get(self.name).topic.mirror_of):
            return MirroredContentsError(f"cannot serve {contents}: {mirror_error(self.name, source).message}")
        try:
            return await read()
        except (TriologError, OSError) as exc:
            error = LogOfflineError(f"cannot serve {contents}: {exc}. Run `triolog verify` to check the log")
            LOGGER.error("%s", error)
        except Exception as exc:
            self.errors.note("coordinator-load", place, exc)
            error = LogOfflineError(f"cannot serve {contents}: unhandled exception ({exc!r})")
        return error

    async def replay_newest(
        self, topic_partition: TopicPartition, key_of: Callable[[Bytes], str | None], value_of: Callable[[Bytes], V]
    ) -> dict[str, V]:
        """The newest value of each key that `key_of` knows, without those that were taken away. Raises as `replay`."""
        values: dict[str, V] = {}

        def take(header: BatchHeader, batch: Bytes) -> None:
            for record in () if header.is_control else iter_records(batch, header):
                key = key_of(record.key or b"")
                if key is not None and record.value is None:
                    values.pop(key, None)
                elif key is not None and record.value is not None:
                    values[key] = value_of(record.value)

        await self.replay(topic_partition, take)
        return values


async def store(actor: PartitionActor, prepared: PreparedAppend, on_stored: OnStored) -> None:
    """Enqueue an append and wait until it is acknowledged by all. Raises what the partition answers."""
    answered = trio.Event()
    outcome: list[RequestError | None] = []

    def answer(result: AppendResult | RequestError) -> None:
        if isinstance(result, RequestError):
            outcome.append(result)
        else:
            on_stored(result)
            outcome.append(None)
        answered.set()

    await actor.append(prepared, ACKS_ALL, answer)
    await actor.wait_for(answered)
    if outcome[0] is not None:
        raise outcome[0].as_answer()
