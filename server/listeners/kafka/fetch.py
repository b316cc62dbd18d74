"""Fetch: record batches from partitions, as they lie in the log. Source: KIP-74 (sizes), KIP-227 (sessions), KIP-320 (epochs).

Answered at once when there are `min_bytes` or a partition has an error, else when there are or `max_wait_ms` is over.
Partitions are served in the order they were asked for; the first batch comes whole in any case. The last batch may be cut,
as Kafka's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import trio

from ....protocol.errors import (
    ErrorCode,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RequestError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchAbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchSnapshotId,
)
from ....protocol.limits import MIB
from ....protocol.records.batch import iter_batches
from ....protocol.types import CompressionType, Isolation, TopicPartition
from ...broker import FetchAnswer, FetchPartition, ReaderView
from ..connections.in_turns import ELEMENTS_PER_TURN
from .door import Call
from .fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Asked, FetchSession, Key, Seen
from .leader_epoch import NOT_CHECKED, check_leader_epoch
from .session import KEPT_PARTITION_BYTES

MAX_FETCH_BYTES: Final = 55 * MIB
"""Of one answer (Kafka: fetch.max.bytes of the broker)."""
MAX_WAIT_MS: Final = 300_000
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 10
CONSUMER: Final = -1
_NO_DIVERGENCE: Final = FetchEpochEndOffset()
_NO_LEADER: Final = FetchLeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchSnapshotId()


class _Partition(NamedTuple):
    """One partition that is asked for: under its name, or with the error that is its answer already."""

    key: Key
    asked: Asked
    topic_partition: TopicPartition | None = None
    error: RequestError | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the log went another way than what the client read."""

    @property
    def can_be_read(self) -> bool:
        return self.error is None and self.diverging is None


async def fetch(call: Call, body: FetchRequest) -> FetchResponse:
    """A full answer, or an incremental one within a fetch session."""
    try:
        partitions, session, is_incremental = _session_of(call, body)
    except RequestError as exc:
        return FetchResponse(error_code=exc.code, session_id=NO_SESSION, responses=[])
    resolved: list[_Partition] = []
    for key, asked in partitions.items():
        resolved.append(_resolve(call, body, session, key, asked))
        if not len(resolved) % ELEMENTS_PER_TURN:
            await trio.lowlevel.checkpoint()
    answers = await _read(call, body, resolved)
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for count, each in enumerate(resolved, 1):
        if not count % ELEMENTS_PER_TURN:
            await trio.lowlevel.checkpoint()
        data = _partition_data(call, body, each, answers)
        if session is not None:
            seen = Seen(data.high_watermark, data.log_start_offset, data.error_code)
            has_more = bool(data.records) or each.diverging is not None
            is_news = session.is_news(each.key, seen, has_records=has_more)
            if is_incremental and not is_news:
                continue
        name, topic_id, _ = each.key
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = topics[name, topic_id] = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(data)
    return FetchResponse(session_id=NO_SESSION if session is None else session.session_id, responses=list(topics.values()))


# ---- what is asked ---------------------------------------------------------------------------------------------------------


def _session_of(call: Call, body: FetchRequest) -> tuple[Mapping[Key, Asked], FetchSession | None, bool]:
    """(partitions, session, whether the answer is incremental). Raises RequestError for a session that cannot go on."""
    sessions = call.door.fetch_sessions
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    named = _named(body)
    if body.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if body.session_id != NO_SESSION:
            sessions.close(body.session_id)
        if body.session_epoch == FINAL_EPOCH:
            return named, None, False
        session = sessions.open(named, by_id=by_id)
        return OrderedDict(session.partitions), session, False
    session = sessions.continued(body.session_id, body.session_epoch, by_id=by_id)
    forgotten = [
        Key(topic.topic, topic.topic_id, number) for topic in body.forgotten_topics_data for number in topic.partitions
    ]
    session.update(named, forgotten)
    if not session.partitions:
        sessions.close(session.session_id)
        return {}, None, False
    if named:
        sessions.make_room()
    return OrderedDict(session.partitions), session, True


def _named(body: FetchRequest) -> dict[Key, Asked]:
    return {
        Key(topic.topic, topic.topic_id, each.partition): Asked(
            each.fetch_offset, each.partition_max_bytes, each.current_leader_epoch, each.last_fetched_epoch
        )
        for topic in body.topics
        for each in topic.partitions
    }


def _resolve(call: Call, body: FetchRequest, session: FetchSession | None, key: Key, asked: Asked) -> _Partition:
    """Look up one partition of a fetch; one that cannot be read gets its error."""
    topic_partition = None
    try:
        name = key.topic if call.version < FIRST_WITH_TOPIC_IDS else _topic_name(call, session, key)
        topic_partition = TopicPartition(name, key.partition)
        call.check_authorized(AclOperation.READ, ResourceType.TOPIC, name)
        replica_id = max(body.replica_id, body.replica_state.replica_id)
        if replica_id > CONSUMER:
            raise InvalidRequestError(f"{topic_partition}: replica {replica_id} cannot fetch here: there is one broker")
        if asked.partition_max_bytes < 0 or body.max_bytes < 0:
            raise InvalidRequestError(f"{topic_partition}: the most bytes to be answered are negative")
        if asked.current_leader_epoch != NOT_CHECKED:
            check_leader_epoch(call.broker, topic_partition, asked.current_leader_epoch)
        if asked.last_fetched_epoch < 0:
            return _Partition(key, asked, topic_partition)
        return _Partition(key, asked, topic_partition, None, _diverging(call, topic_partition, asked))
    except RequestError as exc:
        return _Partition(key, asked, topic_partition, exc.as_answer())


def _topic_name(call: Call, session: FetchSession | None, key: Key) -> str:
    """The name of what is asked for by its id. In a session the id keeps its name: when a topic of that name was made anew it
    is told so, and when there is none that it is unknown (Kafka: CachedPartition). Raises RequestError."""
    if session is None:
        return call.topic_name(key.topic, key.topic_id, by_id=True)
    known = session.names.get(key)
    try:
        name = session.names[key] = call.topic_name(key.topic, key.topic_id, by_id=True)
    except RequestError:
        if known is None:
            raise
        call.check_partition(TopicPartition(known, key.partition))
        raise RequestError(
            f"{known}-{key.partition}: the topic was made anew and has another id than in the session; ask for metadata",
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ) from None
    return name


def _diverging(call: Call, topic_partition: TopicPartition, asked: Asked) -> tuple[int, int] | None:
    """Where the log diverges from what the client has read (KIP-595); None if it does not. Raises RequestError, also for an
    epoch that the log never had."""
    epoch, end_offset = call.broker.reader.end_offset_for_epoch(topic_partition, asked.last_fetched_epoch)
    if epoch < 0:
        raise OffsetOutOfRangeError(f"{topic_partition}: where leader epoch {asked.last_fetched_epoch} ends is not known")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return epoch, end_offset
    return None


# ---- what is read ----------------------------------------------------------------------------------------------------------


async def _read(call: Call, body: FetchRequest, partitions: list[_Partition]) -> dict[TopicPartition, FetchAnswer]:
    """Read from the logs, waiting for more records if there are too few."""
    readable = {
        each.topic_partition: FetchPartition(each.topic_partition, each.asked.fetch_offset, each.asked.partition_max_bytes)
        for each in partitions
        if each.topic_partition is not None and each.can_be_read
    }
    questions = list(readable.values())
    view = ReaderView(Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED)
    max_bytes = max(0, min(body.max_bytes, MAX_FETCH_BYTES))
    min_bytes = min(body.min_bytes, max_bytes)
    answers, is_enough = await _read_now(call, questions, max_bytes, min_bytes, view)
    if not is_enough and all(each.can_be_read for each in partitions) and body.max_wait_ms > 0:
        del answers
        with call.session.parked(min(body.max_wait_ms, MAX_WAIT_MS) / 1000, _kept_bytes(body, len(partitions))):
            await call.broker.reader.wait_for_bytes(questions, max_bytes=max_bytes, min_bytes=min_bytes, view=view)
        answers, _ = await _read_now(call, questions, max_bytes, 0, view)
    return {answer.topic_partition: answer for answer in answers}


async def _read_now(
    call: Call, questions: list[FetchPartition], max_bytes: int, min_bytes: int, view: ReaderView
) -> tuple[list[FetchAnswer], bool]:
    """Read what is there now, as far as there is memory for it."""
    transport = call.session.transport
    wanted = min(max_bytes, sum(each.max_bytes for each in questions))
    room = transport.reserve(wanted)
    if room < wanted:
        max_bytes, min_bytes = room, min(min_bytes, room)
    try:
        return await call.broker.reader.fetch_now(questions, max_bytes=max_bytes, min_bytes=min_bytes, view=view)
    finally:
        transport.unreserve(room)


def _kept_bytes(body: FetchRequest, partitions: int) -> int:
    """What a fetch keeps while it is parked: its question, and none of its frame."""
    names = sum(len(topic.topic) for topic in body.topics)
    forgotten = sum(len(topic.topic) + KEPT_PARTITION_BYTES * len(topic.partitions) for topic in body.forgotten_topics_data)
    return names + forgotten + KEPT_PARTITION_BYTES * partitions


def _partition_data(
    call: Call, body: FetchRequest, each: _Partition, answers: Mapping[TopicPartition, FetchAnswer]
) -> FetchPartitionData:
    number = each.key.partition
    if each.error is not None:
        return _failed(number, each.error)
    assert each.topic_partition is not None
    if each.diverging is not None:
        try:
            return _diverged(call, number, each.topic_partition, each.diverging)
        except RequestError as exc:  # the topic was deleted meanwhile
            return _failed(number, exc)
    answer = answers[each.topic_partition]
    fetched = answer.fetched
    if fetched is None:
        assert answer.error is not None
        return _failed(number, answer.error)
    if call.version < FIRST_WITH_ZSTD and _has_zstd(fetched.records):
        error = UnsupportedCompressionTypeError(f"{each.topic_partition}: zstd needs Fetch v{FIRST_WITH_ZSTD}")
        return _failed(number, error)
    aborted = None
    if body.isolation_level:
        pairs = sorted((transaction.first_offset, transaction.producer_id) for transaction in fetched.aborted or ())
        aborted = [FetchAbortedTransaction(producer_id=producer, first_offset=first) for first, producer in pairs]
    return FetchPartitionData(
        partition_index=number,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        diverging_epoch=_NO_DIVERGENCE,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=aborted,
        records=fetched.records,
    )


def _has_zstd(records: bytes | bytearray | memoryview) -> bool:
    return any(header.compression_type is CompressionType.ZSTD for header, _ in iter_batches(records))


def _failed(number: int, error: RequestError) -> FetchPartitionData:
    """A partition's error as Kafka answers it: without watermarks, even if they are known."""
    return FetchPartitionData(
        partition_index=number,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _diverged(call: Call, number: int, topic_partition: TopicPartition, at: tuple[int, int]) -> FetchPartitionData:
    snapshot = call.broker.reader.snapshot(topic_partition)
    return FetchPartitionData(
        partition_index=number,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        log_start_offset=snapshot.log_start_offset,
        diverging_epoch=FetchEpochEndOffset(epoch=at[0], end_offset=at[1]),
        aborted_transactions=None,
        records=b"",
    )
