"""The calls of a client on logs, with the names, signatures and meanings of an embedded broker's.

Written once over a `Driver`: `Client` has these methods, `BlockingClient` runs them to their end. Calls that change nothing are
retried after a lost connection, for `retry_timeout_ms` of ConsumerConfig; an append of records is retried and takes effect
once. Everything else is sent once, because its outcome is unknown when no answer comes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial as bound
from typing import Final, TypeVar

from ...protocol.errors import RequestError
from ...protocol.following import Follow, Following, Start
from ...protocol.limits import MIB
from ...protocol.native.messages import (
    ACKS_ALL,
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    ProducePartition,
    ProduceRequest,
    TopicMetadata,
)
from ...protocol.native.messages import PlainRecord as WireRecord
from ...protocol.records.batch import iter_batches
from ...protocol.records.partitioners import partition_for_key
from ...protocol.records.plain_records import PlainRecord, WrongRecordsNamed, by_partition, check_records, keyed
from ...protocol.types import (
    NO_OFFSET,
    NO_TIMESTAMP,
    AppendResult,
    Bytes,
    Isolation,
    Record,
    TimestampAndOffset,
    TopicPartition,
    range_of,
)
from .admin import Admin
from .backoff import passes
from .config import ConsumerConfig, ProducerConfig
from .follow import PAGE_WAIT_S, Reader
from .former import or_request
from .procedures import groups, topics
from .procedures.driving import Driver
from .procedures.topics import EARLIEST, Procedure, answer_to
from .reading import read_once
from .sending.append_once import Appends, append_result
from .transaction import LogTransaction

T = TypeVar("T")

PARTITIONS_AGE_S: Final = 300.0
"""How long a number of partitions is used to place keys (Kafka: metadata.max.age.ms)."""


class LogCalls:
    """Appends, reads and topics over a client."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._admin = Admin(driver)
        self._appends: dict[TopicPartition, Appends] = {}
        self._partitions: dict[str, tuple[int, float]] = {}  # their number, and until when it is used
        self._calls_by_key = 0

    @property
    def driver(self) -> Driver:
        """Return the client's way to call and to wait."""
        return self._driver

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; `config` has Kafka's topic keys. Raises RequestError."""
        await self._admin.create_topic(name, partitions, config)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises RequestError."""
        await self._admin.delete_topics(name)

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        return [topic.name for topic in await self._retried(self._admin.list_topics)]

    async def describe_topic(self, name: str) -> TopicMetadata:
        """Return a topic's id, overridden configuration, offsets and sizes. Raises RequestError."""
        return await self._retried(lambda: self._admin.describe_topic(name))

    async def append(
        self,
        topic: str,
        records: Bytes | Sequence[PlainRecord | bytes],
        *,
        key: bytes | None = None,
        partition: int | None = None,
        acks: int = ACKS_ALL,
        expected_offset: int | None = None,
    ) -> AppendResult:
        """Append to a partition: whole record batches as bytes, or values, or (timestamp_ms, key, value, headers).

        `key`: the key of values that are no tuples. `partition`: by default the one that Kafka's clients choose for `key`.
        Without a key all records go into partition 0, also tuples with keys of their own: use `append_by_key` to spread them as
        Kafka's clients do. `expected_offset`: only if the partition ends there; else ExpectedOffsetError, which says where it
        does. All records are stored or none. Values are sent again while there is no answer, for `delivery_timeout_ms` of
        ProducerConfig, and stored once; whole batches, and calls with other `acks` than -1, are sent once. Appends to one
        partition are made one by one: a Producer is faster. Cancelled, or without an answer, the outcome is unknown. Raises
        RequestError; TypeError for what is no record, which says where.
        """
        if partition is None:
            partition = 0 if key is None else partition_for_key(key, await self._partition_count(topic))
        where = TopicPartition(topic, partition)
        if acks != ACKS_ALL or isinstance(records, bytes | bytearray | memoryview):
            return await self._append_once(where, records, key, acks, expected_offset)
        appends = self._appends.get(where)
        if appends is None:
            appends = self._appends[where] = Appends(ProducerConfig(), self._driver)
        check_records(topic, records)
        return await appends.append(where, records, key=key, expected_offset=expected_offset, passes=passes)

    async def append_by_key(self, topic: str, records: Sequence[PlainRecord | bytes]) -> dict[int, AppendResult]:
        """Append each record to the partition that Kafka's clients choose for its key; those without one go to one partition
        together, to the next with each call. Returns what was stored in which partition. All records of one partition are
        stored or none. Raises RequestError of the first partition that fails; then none after it is tried; TypeError for what
        is no record, and then nothing is stored."""
        check_records(topic, records)
        count = await self._partition_count(topic)
        self._calls_by_key += 1
        parts = by_partition(records, count, self._calls_by_key % count)
        return {number: await self.append(topic, parts[number], partition=number) for number in sorted(parts)}

    async def _append_once(
        self,
        where: TopicPartition,
        records: Bytes | Sequence[PlainRecord | bytes],
        key: bytes | None,
        acks: int,
        expected_offset: int | None,
    ) -> AppendResult:
        if isinstance(records, bytes | bytearray | memoryview):
            sent: Bytes | tuple[WireRecord, ...] = records
            count = sum(header.records_count for header, _ in iter_batches(memoryview(records)))
        else:
            sent = tuple(WireRecord(*each[:3], tuple(each[3])) for each in keyed(records, key))
            count = len(sent)
        with WrongRecordsNamed(where.topic, records):
            request = ProduceRequest((ProducePartition(*where, sent, expected_offset),), acks)
            answer = await self._driver.run(answer_to(request))
        if answer is None:
            return AppendResult(NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_OFFSET)
        [entry] = answer.partitions
        if entry.failure is not None:
            raise entry.failure
        return append_result(entry, count)

    @or_request("call_fetch(request)")
    async def fetch(
        self,
        topic: str,
        offset: int | None = None,
        *,
        partition: int = 0,
        start_timestamp: int | None = None,
        end_timestamp: int | None = None,
        committed_only: bool = True,
        max_bytes: int = MIB,
        max_wait_s: float = 0.0,
    ) -> list[Record]:
        """Return records from `offset` on (by default 0), about `max_bytes` of them; wait up to `max_wait_s` for the first. To
        read on, fetch from one after the last record's offset. An empty list means that the partition has no more records.

        `committed_only`: leave out records of aborted transactions, and stop before the first open one. With False all records
        up to the high watermark come.

        With one of the timestamps (ms) only the records of that range of times, `end_timestamp` exclusive, in the order of
        their offsets, by default from the log start on. They are not waited for. Raises RequestError.
        """
        where, times = TopicPartition(topic, partition), range_of(start_timestamp, end_timestamp)
        isolation = Isolation.READ_COMMITTED if committed_only else Isolation.READ_UNCOMMITTED
        deadline = self._driver.now() + (max_wait_s if times is None else 0.0)
        if times is not None and offset is None:
            offset = (await self._asked(lambda: topics.locate([where], EARLIEST)))[where]
        at = offset or 0
        while True:
            left_s = max(0.0, min(deadline - self._driver.now(), PAGE_WAIT_S))
            read = bound(read_once, {where: at}, times, isolation=isolation, max_bytes=max_bytes, max_wait_s=left_s)
            reading, batches = await self._asked(read)
            for error in reading.lost.values():
                raise error
            found = [record for batch in batches for record in batch.records()]
            before, at = at, reading.position(where)
            is_end = at == before and left_s == 0.0 if times is None else reading.is_finished
            if found or is_end:
                return found

    async def offset_for_time(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> TimestampAndOffset:
        """Return the first record with a timestamp >= `timestamp_ms` (-1 latest, -2 earliest, -3 max timestamp); offset -1:
        none. Raises RequestError."""
        [found] = await self.offsets_for_times([(TopicPartition(topic, partition), timestamp_ms)])
        if isinstance(found, RequestError):
            raise found
        return found

    @or_request("call(request)")
    async def offsets_for_times(
        self, questions: Sequence[tuple[TopicPartition, int]]
    ) -> list[TimestampAndOffset | RequestError]:
        """`offset_for_time` for many partitions at once, in the order of the questions."""
        ask = bound(topics.offsets_at, questions, Isolation.READ_UNCOMMITTED)
        return [
            each.error or TimestampAndOffset(each.timestamp, each.offset, each.leader_epoch) for each in await self._asked(ask)
        ]

    def follow(
        self,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        start: Start = "earliest",
        start_offset: int | None = None,
        start_timestamp: int | None = None,
        committed_only: bool = True,
        max_bytes: int = MIB,
        max_wait_s: float = math.inf,
    ) -> Follow:
        """Follow the records of all partitions of topics, one by one, indefinitely: `async for record in client.follow("t")`.

        `group`: continue where it has committed; each record, and the follow, can commit for it. A follow is no member of its
        group: two of them both get everything. Where the group has committed nothing, or without a group: from `start` (of
        every partition: earliest or latest as it is at the first record that is requested), `start_offset`, or the first record
        at or after `start_timestamp` (ms). `committed_only`: leave out the records of aborted transactions, and do not overtake
        open ones. `max_bytes`: size of one read. `max_wait_s`: end when nothing has come for so long; 0: at the current end.

        Partitions that are created later are read from their beginning. After a deletion of records it continues with the next
        one; a topic that is deleted ends it with UnknownTopicOrPartitionError. Raises RequestError, ValueError.
        """
        following = Following(
            topics=(topics,) if isinstance(topics, str) else tuple(topics),
            group=group,
            start=start,
            start_offset=start_offset,
            start_timestamp=start_timestamp,
            committed_only=committed_only,
            max_bytes=max_bytes,
            max_wait_s=max_wait_s,
        )
        return Follow(Reader(self._driver, following), self._commit_offsets)

    def transaction(self, transactional_id: str, *, timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS) -> LogTransaction:
        """A transaction: `async with client.transaction("copier") as transaction`. Another producer with the id is fenced off
        when it begins. The server aborts one that is open for longer than `timeout_ms`."""
        return LogTransaction(self._driver, transactional_id, timeout_ms, self._partition_count)

    async def _commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        await self._asked(lambda: groups.commit_offsets(group, offsets))

    async def _partition_count(self, topic: str) -> int:
        count, until = self._partitions.get(topic, (0, -math.inf))
        if self._driver.now() >= until:
            count = len((await self.describe_topic(topic)).partitions)
            self._partitions[topic] = count, self._driver.now() + PARTITIONS_AGE_S
        return count

    async def _asked(self, procedure: Callable[[], Procedure[T]]) -> T:
        return await self._retried(lambda: self._driver.run(procedure()))

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        config = ConsumerConfig()
        return await self._driver.retried(attempt, config.retry_timeout_ms, config, passes=passes)
