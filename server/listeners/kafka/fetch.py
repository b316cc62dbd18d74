"""Fetch: record batches from partitions, as they lie in the log. Source: KIP-74 (sizes), KIP-227 (sessions), KIP-320 (epochs).

Answered at once when there are `min_bytes` or a partition has an error, else when there are or `max_wait_ms` is over.
Partitions are served in the order they were asked for; the first batch comes whole in any case. The last batch may be cut,
as Kafka's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs
import trio

from ....protocol.errors import RequestError
from ....protocol.kafka.messages.records import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic
from ....protocol.kafka.messages.records import FetchPartition as RequestedPartition
from ....protocol.limits import MIB
from ....protocol.types import Isolation, TopicPartition
from ...broker import CONSUMER_BYTE_RATE, DEFAULT_VIEW, FetchAnswer, FetchPartition, ReaderView, note_gaps
from ...loop.procedures import Procedure, mapped
from .door import Call
from .fetch_partitions import FIRST_WITH_TOPIC_IDS, WantedPartition, partition_data, resolve
from .fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Asked, FetchSession, Key, Seen
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

    def within(self, room: int) -> _Question:
        """The same, where there is memory for less than is wanted."""
        return self._replace(max_bytes=room, min_bytes=min(self.min_bytes, room))

    @property
    def wanted_bytes(self) -> int:
        """Return the largest possible size of the response, in bytes."""
        size = 0
        for each in self.partitions:
            size += each.max_bytes
        return min(self.max_bytes, size)


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
        body = self.body
        readable = {
            each.topic_partition: FetchPartition(each.topic_partition, each.asked.fetch_offset, each.asked.partition_max_bytes)
            for each in wanted
            if each.topic_partition is not None and each.can_be_read
        }
        max_bytes = max(0, min(body.max_bytes, MAX_FETCH_BYTES))
        if self.call.session.quotas.is_active:
            max_bytes = self._within_quota(max_bytes)
        view = ReaderView(Isolation.READ_COMMITTED) if body.isolation_level else DEFAULT_VIEW
        return _Question(list(readable.values()), max_bytes, min(body.min_bytes, max_bytes), view)

    def waits(self, wanted: Sequence[WantedPartition], *, is_enough: bool) -> bool:
        """Return whether the response waits: the data is not enough, the client allows it, and every partition is readable."""
        return not is_enough and self.body.max_wait_ms > 0 and all(each.can_be_read for each in wanted)

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


def fetch(call: Call, body: FetchRequest) -> Procedure[FetchResponse]:
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
    if begun.waits(wanted, is_enough=is_enough):
        del answers
        yield partial(_park, call, body, question, len(wanted))
        answers, _ = yield from _read(call, question._replace(min_bytes=0))
    if call.session.quotas.is_active and (throttled := begun.throttled(answers)) is not None:
        return throttled
    for answer in answers:
        if answer.fetched is None or answer.fetched.passed:  # seldom: a call for each fetch would cost more than the look
            begun.note_gaps(answers)
            break
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
    asked = Asked(each.fetch_offset, each.partition_max_bytes, each.current_leader_epoch, each.last_fetched_epoch)
    return Key(topic.topic, topic.topic_id, each.partition), asked


# ---- what is read ----------------------------------------------------------------------------------------------------------


def _read(call: Call, question: _Question) -> Procedure[tuple[list[FetchAnswer], bool]]:
    """Read what is available now, as far as there is memory for it."""
    transport, wanted = call.session.transport, question.wanted_bytes
    room = transport.reserve(wanted)
    asked = question if room >= wanted else question.within(room)
    try:
        return (
            yield from call.broker.reader.read(
                asked.partitions, max_bytes=asked.max_bytes, min_bytes=asked.min_bytes, view=asked.view
            )
        )
    finally:
        transport.unreserve(room)


def _kept_bytes(body: FetchRequest, partitions: int) -> int:
    """Return the size of the memory that a parked fetch keeps: its fields, without its frame."""
    names = sum(len(topic.topic) for topic in body.topics)
    forgotten = sum(len(topic.topic) + KEPT_PARTITION_BYTES * len(topic.partitions) for topic in body.forgotten_topics_data)
    return names + forgotten + KEPT_PARTITION_BYTES * partitions
