"""The fetches of one connection: answered at once, or when what they wait for is there."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import attrs
import trio

from ....protocol.errors import InvalidRequestError
from ....protocol.limits import INT64_MAX, MIB
from ....protocol.native import messages
from ...broker import Broker, FetchAnswer, FetchPartition, ReaderView, note_gaps
from ..connections.connection_task import Work
from .fetched import fetch_body, fetch_body_steps
from .session import NativeSession

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
        """How much it may be answered."""
        size = 0
        for each in self.partitions:
            size += each.max_bytes
        return min(self.max_bytes, size)


def _of_range(message: messages.FetchRequest, asked: messages.FetchPartition) -> FetchPartition:
    """What is asked with a range of times. Raises InvalidRequestError for what has neither that nor an offset."""
    times = asked.times
    if times is None:
        raise InvalidRequestError(
            f"fetch.partitions[{message.partitions.index(asked)}].offset is missing or -1, expected int from 0 to {INT64_MAX}; "
            "only with start_timestamp or end_timestamp it may be"
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

    def take(self, correlation_id: int, message: messages.FetchRequest) -> Work | None:
        """Answer a fetch, or answer what does it where something is to be waited for. More records are waited for in a task of
        its own, so that nothing behind it is held up."""
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
        is_small = len(fetch.partitions) <= PARTITIONS_AT_ONCE and message.format is messages.Format.BATCHES
        found = self._read_if_cached(fetch) if is_small else None
        if found is None:
            return partial(self._fetch, fetch)
        answers, is_enough = found
        if is_enough or message.max_wait_ms <= 0:
            for each in answers:
                if each.fetched is None or each.fetched.passed:  # seldom: a call for each fetch would cost more than the look
                    self._note_gaps(answers)
                    break
            self.session.respond(correlation_id, None, fetch_body(answers, fetch.partitions, message))
        else:
            self.session.nursery.start_soon(self._answer_late, fetch)
        return None

    async def _fetch(self, fetch: _Fetch) -> None:
        if not await self._answer(fetch, wants_more=fetch.message.max_wait_ms > 0):
            self.session.nursery.start_soon(self._answer_late, fetch)

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
            await self._answer(fetch, wants_more=False)

    def _read_if_cached(self, fetch: _Fetch) -> tuple[list[FetchAnswer], bool] | None:
        """What is there, as far as there is memory for it; None where that has to be waited for."""
        transport, wanted = self.session.transport, fetch.wanted_bytes
        room = transport.reserve(wanted)
        max_bytes = room if room < wanted else fetch.max_bytes
        try:
            return self.broker.reader.fetch_if_cached(
                fetch.partitions, max_bytes=max_bytes, min_bytes=min(fetch.message.min_bytes, max_bytes), view=fetch.view
            )
        finally:
            transport.unreserve(room)

    async def _answer(self, fetch: _Fetch, *, wants_more: bool) -> bool:
        """Answer with what is there, as far as there is memory for it. False, and no answer, when more is wanted."""
        transport, wanted = self.session.transport, fetch.wanted_bytes
        room = transport.reserve(wanted)
        max_bytes = room if room < wanted else fetch.max_bytes
        try:
            answers, is_enough = await self.broker.reader.fetch_now(
                fetch.partitions, max_bytes=max_bytes, min_bytes=min(fetch.message.min_bytes, max_bytes), view=fetch.view
            )
            if is_enough or not wants_more:
                self._note_gaps(answers)
                self.session.respond(fetch.correlation_id, None, await self._body(fetch, answers, max_bytes))
                return True
            return False
        finally:
            transport.unreserve(room)

    def _note_gaps(self, answers: list[FetchAnswer]) -> None:
        session = self.session
        note_gaps(self.broker.gaps.passes, session.client_id, session.transport.host, answers)

    async def _body(self, fetch: _Fetch, answers: list[FetchAnswer], max_bytes: int) -> Any:
        plain = None
        if fetch.message.format is messages.Format.RECORDS:
            plain = await self.broker.reader.unpack(answers, fetch.partitions, max_bytes=max_bytes)
        return await self.broker.in_steps(fetch_body_steps(answers, fetch.partitions, fetch.message, plain))
