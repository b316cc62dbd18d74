"""A produce that waits for its partitions' answers, and the transaction that it belongs to."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidTxnStateError, RequestError, RequestTimedOutError
from ...protocol.native import messages
from ...protocol.records.batch import BatchHeader
from ...protocol.types import TopicPartition
from ..broker import AppendResult
from .session import Session


@attrs.define(eq=False)
class PendingProduce:
    """A produce that waits for its partitions' answers, which come from their actors' tasks."""

    session: Session
    forget: Callable[[int], None]
    correlation_id: int
    message: messages.ProduceRequest
    deadline: float = attrs.field(init=False)
    _results: list[AppendResult | RequestError | None] = attrs.field(init=False)
    _missing: int = attrs.field(init=False)
    _is_answered: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._missing = len(self.message.partitions)
        self._results = [None] * self._missing
        self.deadline = trio.current_time() + self.message.timeout_ms / 1000

    def put(self, slot: int, result: AppendResult | RequestError) -> None:
        """One partition's answer; the last one sends the response. With acks 0 there is none, so a failure ends the
        connection: a producer that never hears of errors must not go on as if all were well. Raises nothing: the actor that
        calls it serves others too."""
        self._results[slot] = result
        self._missing -= 1
        try:
            if self.message.acks:
                if not self._missing:
                    self.answer()
            elif isinstance(result, RequestError):
                self.session.fail(result)
        except Exception as exc:
            self.session.met_bug(exc)

    def expire(self) -> None:
        for slot, result in enumerate(self._results):
            if result is None:
                self._results[slot] = RequestTimedOutError(
                    f"no acknowledgement within timeout_ms={self.message.timeout_ms}; the outcome is unknown",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
        self.answer()

    def answer(self) -> None:
        """Send the response, once; later answers of partitions find nobody: the id may belong to another request then."""
        if self._is_answered:
            return
        self._is_answered = True
        self.forget(self.correlation_id)
        entries = []
        for each, result in zip(self.message.partitions, self._results, strict=True):
            if isinstance(result, AppendResult):
                response = messages.ProducePartitionResponse(
                    each.topic, each.partition, None, result.base_offset, result.log_append_time, result.log_start_offset
                )
            else:
                response = messages.ProducePartitionResponse(each.topic, each.partition, result)
            entries.append(response)
        self.session.respond(self.correlation_id, None, messages.ProduceResponse(tuple(entries)).to_body())


def check_transaction(transactional_id: str | None, topic_partition: TopicPartition, header: BatchHeader) -> None:
    """InvalidTxnStateError when a batch is transactional and the request names no transactional id, or the other way round."""
    if header.is_transactional and transactional_id is None:
        raise InvalidTxnStateError(
            f"{topic_partition}: the batch of producer {header.producer_id} is transactional; name its transactional_id"
        )
    if transactional_id is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{topic_partition}: the records are not transactional, but the request names transactional id "
            f"{transactional_id!r}; batches of a transaction have attribute bit 4"
        )
