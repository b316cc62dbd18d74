"""The fetches of one connection: answered at once, or when what they wait for is there; as batches or as plain records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import attrs
import trio

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.limits import INT64_MAX, MIB
from ....protocol.native import messages
from ....protocol.types import Isolation
from ...broker import Broker, FetchAnswer, FetchedRecords, FetchPartition, PlainRecords, ReaderView, aborted_pairs, note_gaps
from ...loop.procedures import Procedure, perform
from ..access.rules import Steps, finish
from .session import NativeSession

ENTRIES_PER_PAUSE: Final = 64
FRAME_RESERVE: Final = MIB
"""Room for the map around the records of an answer."""
PARTITIONS_AT_ONCE: Final = 16
"""Of a request that may be answered without a turn of the scheduler."""


class _Fetch(NamedTuple):
    correlation_id: int
    message: messages.FetchRequest
    partitions: list[FetchPartition]
    max_bytes: int
    view: ReaderView

    @property
    def wanted_bytes(self) -> int:
        """Return the largest possible size of the response, in bytes."""
        size = 0
        for each in self.partitions:
            size += each.max_bytes
        return min(self.max_bytes, size)


def _of_range(message: messages.FetchRequest, asked: messages.FetchPartition) -> FetchPartition:
    """Return the plan for a partition with a range of times. Raises InvalidRequestError if the request has neither a range nor
    an offset."""
    times = asked.times
    if times is None:
        raise InvalidRequestError(
            f"fetch.partitions[{message.partitions.index(asked)}].offset is missing or -1, expected int from 0 to "
            f"{INT64_MAX}. Leave it out only with start_timestamp or end_timestamp"
        )
    return FetchPartition(asked.topic_partition, asked.offset, asked.max_bytes, times)


@attrs.define(eq=False, repr=False)
class Fetches:
    """Owner of a connection's long polls: fetches that wait for data."""

    session: NativeSession
    broker: Broker
    _long_polls: set[trio.CancelScope] = attrs.field(factory=set)
    _late_answers: trio.Lock = attrs.field(factory=trio.Lock)
    _ends_long_polls: bool = False

    def fetch(self, correlation_id: int, message: messages.FetchRequest) -> Procedure[None]:
        """Answer a fetch. More records are waited for in a task of its own, so that nothing behind it is held up."""
        fetch = _Fetch(
            correlation_id,
            message,
            [
                FetchPartition(each.topic_partition, each.offset, each.max_bytes)
                if each.offset >= 0 and each.start_timestamp is None and each.end_timestamp is None
                else _of_range(message, each)
                for each in message.partitions
            ],
            min(message.max_bytes, self.broker.config.max_frame_bytes - FRAME_RESERVE),
            ReaderView(message.isolation, None if message.gaps is None else message.gaps is messages.Gaps.SKIP),
        )
        yield from self._answer(fetch, wants_more=message.max_wait_ms > 0)

    def end_long_polls(self) -> None:
        """Answer fetches with what is there from now on: the peer has sent its last request, or the server stops."""
        self._ends_long_polls = True
        for waiting in self._long_polls:
            waiting.cancel()

    async def _answer_late(self, fetch: _Fetch) -> None:
        """Wait, then read and answer. One at a time and only while there is room: a peer that does not read its answers
        must not fill the memory with them."""
        with trio.move_on_after(fetch.message.max_wait_ms / 1000) as waiting:
            if self._ends_long_polls:
                waiting.cancel()
            self._long_polls.add(waiting)
            await self.broker.reader.wait_for_bytes(
                fetch.partitions, max_bytes=fetch.max_bytes, min_bytes=fetch.message.min_bytes, view=fetch.view
            )
        self._long_polls.discard(waiting)
        async with self._late_answers:
            await self.session.room_to_answer()
            await perform(self._answer(fetch, wants_more=False))

    def _answer(self, fetch: _Fetch, *, wants_more: bool) -> Procedure[None]:
        """Answer with what is there, as far as there is memory for it; later, when more is wanted."""
        session, message, reader = self.session, fetch.message, self.broker.reader
        transport, wanted = session.transport, fetch.wanted_bytes
        room = transport.reserve(wanted)
        max_bytes = room if room < wanted else fetch.max_bytes
        try:
            answers, is_enough = yield from reader.read(
                fetch.partitions, max_bytes=max_bytes, min_bytes=min(message.min_bytes, max_bytes), view=fetch.view
            )
            if wants_more and not is_enough:
                session.nursery.start_soon(self._answer_late, fetch)
                return
            for each in answers:
                if each.fetched is None or each.fetched.passed:  # seldom: a call for each fetch would cost more than the look
                    note_gaps(self.broker.gaps.passes, session.client_id, session.transport.host, answers)
                    break
            plain = None
            if message.format is messages.Format.RECORDS:
                plain = yield partial(reader.unpack, answers, fetch.partitions, max_bytes=max_bytes)
            steps = fetch_body_steps(answers, fetch.partitions, message, plain)
            is_small = len(answers) <= PARTITIONS_AT_ONCE
            session.respond(
                fetch.correlation_id, None, finish(steps) if is_small else (yield partial(self.broker.in_steps, steps))
            )
        finally:
            transport.unreserve(room)


def fetch_body_steps(
    answers: Sequence[FetchAnswer],
    asked: Sequence[FetchPartition],
    request: messages.FetchRequest,
    plain: Sequence[PlainRecords | RequestError | None] | None = None,
) -> Steps[Any]:
    """The body of an answer, with pauses: one entry per partition asked for. `plain` has what `unpack` has made of the answers,
    if that was wanted."""
    entries = []
    is_empty = True
    for slot, (answer, question) in enumerate(zip(answers, asked, strict=True)):
        if slot and not slot % ENTRIES_PER_PAUSE:
            yield
        unpacked = None if plain is None else plain[slot]
        if answer.fetched is None:
            entries.append(messages.FetchPartitionResponse(*answer.topic_partition, answer.error))
            continue
        if isinstance(unpacked, RequestError):
            entries.append(messages.FetchPartitionResponse(*answer.topic_partition, unpacked))
        else:
            entries.append(_entry(answer.fetched, unpacked, question, request, is_first=is_empty))
        is_empty = is_empty and not answer.fetched.records
    return messages.FetchResponse(tuple(entries)).to_body()


def _entry(
    fetched: FetchedRecords,
    plain: PlainRecords | None,
    question: FetchPartition,
    request: messages.FetchRequest,
    *,
    is_first: bool,
) -> messages.FetchPartitionResponse:
    """`is_first`: nothing came before it in the answer, so that a batch would be there if the log had one."""
    next_offset = fetched.next_offset if plain is None else plain.next_offset
    range_ended = None
    if question.times is not None:
        range_ended = fetched.ends_range and next_offset >= fetched.next_offset
    elif is_first and not fetched.records:
        committed = request.isolation is Isolation.READ_COMMITTED
        end = fetched.last_stable_offset if committed else fetched.high_watermark
        if question.offset < end:
            next_offset = end
    return messages.FetchPartitionResponse(
        *question.topic_partition,
        None,
        fetched.high_watermark,
        fetched.last_stable_offset,
        fetched.log_start_offset,
        aborted_pairs(fetched) if plain is None else (),
        fetched.records if plain is None else plain.records,
        next_offset,
        range_ended,
    )
