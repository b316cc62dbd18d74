"""A produce that waits for its partitions' answers, and what it makes of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs

from ....protocol.errors import ErrorCode, RequestError, RequestTimedOutError
from ....protocol.kafka.connection import PRODUCED, PartitionProduced, TopicProduced
from ....protocol.kafka.messages.records import (
    ProduceBatchIndexAndErrorMessage,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ....protocol.types import TopicPartition
from ...broker import AppendResult
from .door import Call
from .session import Turn

ERRORS_WITH_LOG_START: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)


@attrs.define(eq=False, repr=False)
class PendingProduce:
    """A produce that waits for its partitions' answers, which come from their actors' tasks."""

    turn: Turn
    request: ProduceRequest
    _missing: int
    """Partitions without an answer."""
    _results: list[AppendResult | RequestError | None] = attrs.field(init=False)
    _log_starts: dict[int, int] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        request = self.request
        self._results = [None] * self._missing
        if request.acks and not self.turn.is_answered:
            # Nothing is waited for but the device, so that a timeout of 0, which some clients send, must not be over before the
            # append was tried: the deadlines are not that exact.
            self.turn.expires = self
            self.turn.session.deadlines.add(self, request.timeout_ms / 1000)

    @property
    def waits_for_anybody(self) -> bool:
        """Whether it names any partition."""
        return bool(self._results)

    def put(self, slot: int, result: AppendResult | RequestError, log_start_offset: int = -1) -> None:
        """One partition's answer, with the log's start where the log refused; the last one makes the response."""
        if log_start_offset >= 0:
            self._log_starts[slot] = log_start_offset
        self._results[slot] = result
        self._missing -= 1
        if self.request.acks:
            if not self._missing:
                self.answer()
        elif isinstance(result, RequestError):
            self.turn.session.fail(f"a produce with acks=0 failed: {result}")

    def expire(self) -> None:
        """Answer what is there; whether the rest is stored is unknown."""
        for slot, result in enumerate(self._results):
            if result is None:
                self._results[slot] = RequestTimedOutError(
                    f"no acknowledgement within timeout_ms={self.request.timeout_ms}; the outcome is unknown"
                )
        try:
            self.answer()
        except Exception as exc:
            self.turn.met_bug(exc)

    def answer(self) -> None:
        """Say how every partition fared, unless its time was over before or the connection was given up."""
        turn = self.turn
        if turn.is_answered:
            return
        topics = None if turn.needs_body else self._produced()
        if topics is not None:
            throttle_ms = turn.charge() if turn.session.quotas.is_active else 0
            turn.answer(None, PRODUCED.buffers(turn.request, (throttle_ms, topics)), ())
        else:
            codes = {result.code: None for result in self._results if isinstance(result, RequestError)}
            turn.answer(self._message(), errors=tuple(codes))

    def _produced(self) -> list[TopicProduced] | None:
        """What is told where every partition was appended to; None where one was not."""
        results, slot = self._results, 0
        topics: list[TopicProduced] = []
        for topic in self.request.topic_data:
            partitions: list[PartitionProduced] = []
            for asked in topic.partition_data:
                result = results[slot]
                slot += 1
                if result.__class__ is not AppendResult:
                    return None
                partitions.append((asked.index, result.base_offset, result.log_append_time, result.log_start_offset))
            topics.append((topic.name, topic.topic_id, partitions))
        return topics

    def _message(self) -> ProduceResponse:
        results = iter(enumerate(self._results))
        return ProduceResponse(
            responses=[
                ProduceTopicResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[self._partition(each, *next(results)) for each in topic.partition_data],
                )
                for topic in self.request.topic_data
            ]
        )

    def _partition(
        self, asked: ProducePartition, slot: int, result: AppendResult | RequestError | None
    ) -> ProducePartitionResponse:
        if isinstance(result, AppendResult):
            return ProducePartitionResponse(
                index=asked.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time,
                log_start_offset=result.log_start_offset,
                record_errors=[],
            )
        assert result is not None
        return ProducePartitionResponse(
            index=asked.index,
            error_code=result.code,
            base_offset=-1,
            log_start_offset=self._log_starts.get(slot, -1),
            record_errors=[
                ProduceBatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in result.record_errors
            ],
            error_message=result.message,
        )


def put_answer(
    call: Call, pending: PendingProduce, topic_partition: TopicPartition, slot: int, result: AppendResult | RequestError
) -> None:
    """Called by the log's actor. Raises nothing: the actor serves others too."""
    try:
        if result.__class__ is AppendResult:
            pending.put(slot, result)
        else:
            put_answer_of_log(call, pending, topic_partition, slot, result)
    except Exception as exc:
        pending.turn.met_bug(exc)


def put_answer_of_log(
    call: Call, pending: PendingProduce, topic_partition: TopicPartition, slot: int, result: AppendResult | RequestError
) -> None:
    """Kafka tells where a log begins also with most of the errors that a log finds."""
    log_start_offset = -1
    if isinstance(result, RequestError) and result.code in ERRORS_WITH_LOG_START:
        with suppress(RequestError):
            log_start_offset = call.broker.reader.snapshot(topic_partition).log_start_offset
    pending.put(slot, result, log_start_offset)
