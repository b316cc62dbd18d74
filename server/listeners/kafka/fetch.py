"""Fetch: record batches from partitions, as they lie in the log. Source: KIP-74 (sizes), KIP-227 (sessions), KIP-320 (epochs),
KIP-516, KIP-595.

Answered at once when there are `min_bytes` or a partition has an error, else when there are or `max_wait_ms` is over.
Partitions are served in the order they were asked for; the first batch comes whole in any case. The last batch may be cut, as
Kafka's. A partition is looked up before the read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ....protocol.errors import (
    ErrorCode,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RequestError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.connection import FETCHED
from ....protocol.kafka.messages.records import (
    FetchableTopicResponse,
    FetchAbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchSnapshotId,
    FetchTopic,
)
from ....protocol.kafka.messages.records import FetchPartition as RequestedPartition
from ....protocol.limits import MIB
from ....protocol.types import CompressionType, Isolation, TopicPartition
from ...broker import CONSUMER_BYTE_RATE, DEFAULT_VIEW, FetchAnswer, FetchPartition, ReaderView, note_gaps
from ...loop.procedures import Procedure, mapped
from ..connections.transport import FREE_BYTES
from .door import Call, Given
from .fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Asked, FetchSession, Key, Seen
from .list_offsets import NOT_CHECKED, check_leader_epoch
from .session import KEPT_PARTITION_BYTES

MAX_FETCH_BYTES: Final = 55 * MIB
"""Of one answer (Kafka: fetch.max.bytes of the broker)."""
MAX_WAIT_MS: Final = 300_000

Topics = dict[tuple[str, bytes], FetchableTopicResponse]
"""What is told, by name and id."""
Answers = Mapping[TopicPartition, FetchAnswer]


class _Question(NamedTuple):
    """The plan of a reader's fetch."""

    partitions: list[FetchPartition]
    max_bytes: int
    min_bytes: int
    view: ReaderView
    wanted_bytes: int
    """The largest possible size of the response."""

    def within(self, room: int) -> _Question:
        """The same, where there is memory for less than is wanted."""
        return self._replace(max_bytes=room, min_bytes=min(self.min_bytes, room))


@attrs.frozen(eq=False, repr=False)
class _Fetch:
    """A fetch that is to be answered. Its session has moved on, once."""

    call: Call
    body: FetchRequest
    partitions: Mapping[Key, Asked]
    session: FetchSession | None
    is_incremental: bool
    """Whether only what is new is told."""

    def question(self, wanted: Sequence[WantedPartition]) -> _Question:
        body, max_bytes = self.body, self.body.max_bytes
        readable: dict[TopicPartition, FetchPartition] = {}
        for _, asked, topic_partition, error, diverging in wanted:
            if topic_partition is not None and error is None and diverging is None:
                # What FetchPartition(...) makes, without its Python-level call.
                readable[topic_partition] = tuple.__new__(
                    FetchPartition, (topic_partition, asked.fetch_offset, asked.partition_max_bytes, None)
                )
        max_bytes = 0 if max_bytes < 0 else MAX_FETCH_BYTES if max_bytes > MAX_FETCH_BYTES else max_bytes
        if self.call.session.quotas.is_active:
            max_bytes = self._within_quota(max_bytes)
        view = ReaderView(Isolation.READ_COMMITTED) if body.isolation_level else DEFAULT_VIEW
        partitions, wanted_bytes = list(readable.values()), 0
        for each in partitions:
            wanted_bytes += each.max_bytes
        min_bytes = max_bytes if max_bytes < body.min_bytes else body.min_bytes
        wanted_bytes = max_bytes if max_bytes < wanted_bytes else wanted_bytes
        # What _Question(...) makes, without its Python-level call.
        return tuple.__new__(_Question, (partitions, max_bytes, min_bytes, view, wanted_bytes))

    def may_wait(self, wanted: Sequence[WantedPartition]) -> bool:
        """Return whether the response may wait: the client allows it, and every partition is readable."""
        return self.body.max_wait_ms > 0 and all(each.can_be_read for each in wanted)

    def single(self, wanted: WantedPartition, answer: FetchAnswer) -> Given | None:
        """Return the answer of the only partition, if there is something to tell of it and no error, nor an aborted
        transaction."""
        fetched, session, key = answer.fetched, self.session, wanted.key
        if fetched is None or self.body.isolation_level or self.call.version < FIRST_WITH_ZSTD:
            return None
        records, high_watermark, start = fetched.records, fetched.high_watermark, fetched.log_start_offset
        session_id = NO_SESSION
        if session is not None:
            session_id = session.session_id
            is_news = session.is_news(key, Seen(high_watermark, start, 0), has_records=len(records) > 0)
            if self.is_incremental and not is_news:
                return None
        values = (session_id, *key, high_watermark, fetched.last_stable_offset, start, records)
        # What Given(...) makes, without its Python-level call.
        return tuple.__new__(Given, (FETCHED, values, True))

    def tell(self, topics: Topics, answers: Answers, each: WantedPartition) -> None:
        """Put what is told of a partition into an answer, if anything is."""
        data = partition_data(self.call, self.body, each, answers)
        if self.session is not None:
            seen = Seen(data.high_watermark, data.log_start_offset, data.error_code)
            has_more = bool(data.records) or each.diverging is not None
            is_news = self.session.is_news(each.key, seen, has_records=has_more)
            if self.is_incremental and not is_news:
                return
        name, topic_id, _ = each.key
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = topics[name, topic_id] = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(data)

    def note_gaps(self, answers: Iterable[FetchAnswer]) -> None:
        """Record the gaps that this client's fetch skips or stops at; see `note_gaps`."""
        session = self.call.session
        note_gaps(self.call.broker.gaps.passes, session.client_id, session.transport.host, answers)

    # ---- quotas --------------------------------------------------------------------------------------------------------

    def _within_quota(self, max_bytes: int) -> int:
        """Return the most bytes that one fetch may read: more would put the client over its quota at once."""
        session = self.call.session
        most = session.quotas.largest_burst(CONSUMER_BYTE_RATE, session.user, session.asking_client, trio.current_time())
        return int(min(max_bytes, most))

    def throttled(self, answers: Iterable[FetchAnswer]) -> FetchResponse | None:
        """An answer without records, if these would be more than the client may have now; it asks for them again."""
        session = self.call.session
        size = sum(len(each.fetched.records) for each in answers if each.fetched is not None)
        use, now = session.quotas.use_if_allowed, trio.current_time()
        session.owed_s = use(CONSUMER_BYTE_RATE, session.user, session.asking_client, size, now)
        if not session.owed_s:
            return None
        if self.session is not None and not self.is_incremental:
            self.call.door.fetch_sessions.close(self.session.session_id)  # its client takes it that there is none yet
            return FetchResponse(session_id=NO_SESSION, responses=[])
        return self.response({})

    # ---- what is told --------------------------------------------------------------------------------------------------

    def response(self, topics: Topics) -> FetchResponse:
        session_id = NO_SESSION if self.session is None else self.session.session_id
        return FetchResponse(session_id=session_id, responses=list(topics.values()))


def fetch(call: Call, body: FetchRequest) -> Procedure[FetchResponse | Given]:
    """A full answer, or an incremental one within a fetch session."""
    pairs = [(topic, each) for topic in body.topics for each in topic.partitions]
    named = dict((yield from mapped(_asked, pairs)))
    try:
        begun = _begin(call, body, named)
    except RequestError as exc:
        return _refused(exc)
    wanted = yield from mapped(partial(resolve, call, body, begun.session), begun.partitions.items())
    question = begun.question(wanted)
    answers, is_enough = yield from _read(call, question)
    if not is_enough and begun.may_wait(wanted):
        del answers
        yield partial(_park, call, body, question, len(wanted))
        answers, _ = yield from _read(call, question._replace(min_bytes=0))
    if call.session.quotas.is_active and (throttled := begun.throttled(answers)) is not None:
        return throttled
    for answer in answers:
        if answer.fetched is None or answer.fetched.passed:  # seldom: a call for each fetch would cost more than the look
            begun.note_gaps(answers)
            break
    if (
        len(wanted) == len(answers) == 1
        and not call.needs_message
        and (single := begun.single(wanted[0], answers[0])) is not None
    ):
        return single
    by_partition = {answer.topic_partition: answer for answer in answers}
    topics: Topics = {}
    yield from mapped(partial(begun.tell, topics, by_partition), wanted)
    return begun.response(topics)


async def _park(call: Call, body: FetchRequest, question: _Question, partitions: int) -> None:
    """Wait until enough can be read, or the request's time is over."""
    with call.session.parked(min(body.max_wait_ms, MAX_WAIT_MS) / 1000, _kept_bytes(body, partitions)):
        await call.broker.reader.wait_for_bytes(
            question.partitions, max_bytes=question.max_bytes, min_bytes=question.min_bytes, view=question.view
        )


def _refused(error: RequestError) -> FetchResponse:
    return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])


# ---- what is asked ---------------------------------------------------------------------------------------------------------


def _begin(call: Call, body: FetchRequest, named: dict[Key, Asked]) -> _Fetch:
    """Return the fetch and the session that it continues. `named`: the partitions of the request. Raises RequestError for a
    session that cannot continue."""
    sessions = call.door.fetch_sessions
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    if body.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if body.session_id != NO_SESSION:
            sessions.close(body.session_id)
        if body.session_epoch == FINAL_EPOCH:
            return _Fetch(call, body, named, None, False)
        call.session.pay()
        session = sessions.open(named, by_id=by_id)
        return _Fetch(call, body, named if session is None else OrderedDict(session.partitions), session, False)
    forgotten = [
        Key(topic.topic, topic.topic_id, number) for topic in body.forgotten_topics_data for number in topic.partitions
    ]
    if named:
        call.session.pay()
    session = sessions.continued(body.session_id, body.session_epoch, named, forgotten, by_id=by_id)
    if not session.partitions:
        sessions.close(session.session_id)
        return _Fetch(call, body, {}, None, False)
    return _Fetch(call, body, OrderedDict(session.partitions), session, True)


def _asked(pair: tuple[FetchTopic, RequestedPartition]) -> tuple[Key, Asked]:
    topic, each = pair
    # What Key(...) and Asked(...) make, without their Python-level calls.
    asked = each.fetch_offset, each.partition_max_bytes, each.current_leader_epoch, each.last_fetched_epoch
    return tuple.__new__(Key, (topic.topic, topic.topic_id, each.partition)), tuple.__new__(Asked, asked)


# ---- what is read ----------------------------------------------------------------------------------------------------------


def _read(call: Call, question: _Question) -> Procedure[tuple[list[FetchAnswer], bool]]:
    """Read what is available now, as far as there is memory for it."""
    transport, wanted, read = call.session.transport, question.wanted_bytes, call.broker.reader.read
    if wanted <= FREE_BYTES:
        partitions, max_bytes, min_bytes, view, _ = question
        return (yield from read(partitions, max_bytes=max_bytes, min_bytes=min_bytes, view=view))
    room = transport.reserve(wanted)
    asked = question if room >= wanted else question.within(room)
    try:
        return (yield from read(asked.partitions, max_bytes=asked.max_bytes, min_bytes=asked.min_bytes, view=asked.view))
    finally:
        transport.unreserve(room)


def _kept_bytes(body: FetchRequest, partitions: int) -> int:
    """Return the size of the memory that a parked fetch keeps: its fields, without its frame."""
    names = sum(len(topic.topic) for topic in body.topics)
    forgotten = sum(len(topic.topic) + KEPT_PARTITION_BYTES * len(topic.partitions) for topic in body.forgotten_topics_data)
    return names + forgotten + KEPT_PARTITION_BYTES * partitions


FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 10
"""Before, only a topic whose configuration says zstd is refused (Kafka: KafkaApis.handleFetchRequest)."""
CONSUMER: Final = -1
_NO_DIVERGENCE: Final = FetchEpochEndOffset()
_NO_LEADER: Final = FetchLeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchSnapshotId()


class WantedPartition(NamedTuple):
    """A partition that the client requests: with its name, or with an error that already is its result."""

    key: Key
    asked: Asked
    topic_partition: TopicPartition | None = None
    error: RequestError | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the log went another way than what the client read."""

    @property
    def can_be_read(self) -> bool:
        return self.error is None and self.diverging is None


def resolve(call: Call, body: FetchRequest, session: FetchSession | None, wanted: tuple[Key, Asked]) -> WantedPartition:
    """Look up one partition; one that cannot be read gets its error."""
    key, asked = wanted
    topic_partition = None
    try:
        if call.version < FIRST_WITH_TOPIC_IDS:
            name = key.topic
        else:
            name = call.broker.topics.named(key.topic_id) if session is None else _topic_name(call, session, key)
        # What TopicPartition(...) makes, without its Python-level call.
        topic_partition = tuple.__new__(TopicPartition, (name, key.partition))
        if call.guard is not None:
            call.check_authorized(AclOperation.READ, ResourceType.TOPIC, name)
        if body.replica_id > CONSUMER or body.replica_state.replica_id > CONSUMER:
            replica_id = max(body.replica_id, body.replica_state.replica_id)
            raise InvalidRequestError(f"{topic_partition}: replica {replica_id} cannot fetch here: this is the only broker")
        if asked.partition_max_bytes < 0 or body.max_bytes < 0:
            raise InvalidRequestError(f"{topic_partition}: the maximum size of the response is negative")
        if asked.current_leader_epoch != NOT_CHECKED:
            check_leader_epoch(call.broker, topic_partition, asked.current_leader_epoch)
        if asked.last_fetched_epoch < 0:
            return tuple.__new__(WantedPartition, (key, asked, topic_partition, None, None))
        return WantedPartition(key, asked, topic_partition, None, _diverging(call, topic_partition, asked))
    except RequestError as exc:
        return WantedPartition(key, asked, topic_partition, exc.as_answer())


def _topic_name(call: Call, session: FetchSession, key: Key) -> str:
    """The name of what is asked for by its id in a session. There the id keeps its name: when a topic of that name was created
    again the client is told so, and when there is none that it is unknown (Kafka: CachedPartition). Raises RequestError."""
    known = session.names.get(key)
    try:
        name = session.names[key] = call.broker.topics.named(key.topic_id)
    except RequestError:
        if known is None:
            raise
        call.check_partition(TopicPartition(known, key.partition))
        raise RequestError(
            f"{known}-{key.partition}: the topic was created again and has another id than in the session. Refresh metadata",
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ) from None
    return name


def _diverging(call: Call, topic_partition: TopicPartition, asked: Asked) -> tuple[int, int] | None:
    """Return the point where the log diverges from the records that the client has read (KIP-595); None if it does not. Raises
    RequestError, also for an epoch that the log never had."""
    epoch, end_offset = call.broker.reader.end_offset_for_epoch(topic_partition, asked.last_fetched_epoch)
    if epoch < 0:
        raise OffsetOutOfRangeError(f"{topic_partition}: the end of leader epoch {asked.last_fetched_epoch} is unknown")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return epoch, end_offset
    return None


def partition_data(
    call: Call, body: FetchRequest, each: WantedPartition, answers: Mapping[TopicPartition, FetchAnswer]
) -> FetchPartitionData:
    """Return the response for one partition. `answers`: the results of the reads, for every partition that can be read."""
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
    if call.version < FIRST_WITH_ZSTD and call.broker.topics.compression_type(each.key.topic) is CompressionType.ZSTD:
        error = UnsupportedCompressionTypeError(
            f"{each.topic_partition} is configured with compression.type=zstd, which needs Fetch v{FIRST_WITH_ZSTD}"
        )
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
