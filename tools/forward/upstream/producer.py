"""Records and the offset behind them in one transaction upstream; without transactions records, until all are acknowledged.

What a delivery report says comes while librdkafka is asked for something else, so it is noted and raised by the next call.
After an error a producer is closed; the next session has a new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from ....protocol.types import TopicPartition
from ...client.procedures.groups import CommittedOffset
from ..errors import LinkStoppedError, RecordsRefusedError, TargetRefusedError, TryAgainError
from .connection import CALL_S, UpstreamClients
from .verdict import PURGED, SIZE_CODES, Verdict, judge, words

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

FULL_S: Final = 0.05
"""How long to wait for room in librdkafka's queue before it is looked whether all is well."""
ABORT_S: Final = 3.0
GIVEN_UP_SHARE: Final = 0.8
"""Of the transaction's timeout. A producer that is fenced after it was silent for as long was given up by the upstream, and
nobody else has come."""


@attrs.frozen
class _Failed:
    topic: str
    partition: int
    error: KafkaError


class UpstreamProducer:
    """A producer of one session. Owner: the session."""

    def __init__(self, clients: UpstreamClients, batch_bytes: int, timeout_ms: int) -> None:
        self._clients = clients
        self._timeout_s = timeout_ms / 1000
        self._failed: _Failed | None = None
        self._producer = clients.producer(batch_bytes, self._note)
        self._begun_s: float | None = None
        self._heard_s = time.monotonic()
        self._group_metadata: object = None
        self.produce = self._producer.produce
        """librdkafka's own; BufferError: `make_room`, and again. Only after `begin`."""

    def introduce(self, group_metadata: object) -> None:
        """Fence whoever had the transactional id before, and have its last transaction ended. Raises what `commit` raises."""
        self._group_metadata = group_metadata
        if self._clients.is_exactly_once:
            self._clients.patiently(self._producer.init_transactions, self._poll, "no transactions")
        self._heard_s = time.monotonic()

    def begin(self) -> None:
        """A stretch begins; what is committed is the whole of it."""
        if self._begun_s is None and self._clients.is_exactly_once:
            self._call("begin", self._producer.begin_transaction)
        self._begun_s = time.monotonic()

    def make_room(self) -> None:
        """The queue is full: wait a moment. Raises what became of records meanwhile."""
        self._producer.poll(FULL_S)
        self._check()

    def look(self) -> None:
        """Raise what has become of records."""
        self._producer.poll(0)
        self._check()

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Everything that was handed over, and with transactions these offsets, or nothing.

        Raises TryAgainError, LinkStoppedError, TargetRefusedError, RecordsRefusedError.
        """
        if self._begun_s is None:
            self.begin()
        self._flush()
        if self._clients.is_exactly_once:
            from confluent_kafka import TopicPartition as Place

            places = [Place(*partition, kept.offset, kept.metadata) for partition, kept in offsets.items()]
            left_s = self._left_s()
            self._finish(
                lambda timeout_s: self._producer.send_offsets_to_transaction(places, self._group_metadata, timeout_s), left_s
            )
            self._finish(self._producer.commit_transaction, max(CALL_S, self._left_s()))
        self._begun_s = None
        self._heard_s = time.monotonic()

    def close(self) -> None:
        """Give up what is not committed."""
        from confluent_kafka import KafkaException

        self._producer.purge()
        with contextlib.suppress(KafkaException):
            if self._begun_s is not None and self._clients.is_exactly_once:
                self._producer.abort_transaction(ABORT_S)
        self._producer.poll(0)

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None or (self._failed is not None and self._failed.error.code() not in PURGED):
            return
        partition = message.partition()
        self._failed = _Failed(message.topic() or "", -1 if partition is None else partition, error)

    def _flush(self) -> None:
        while self._producer.flush(CALL_S):
            self._check()
            if self._left_s() <= 0 or not self._clients.is_wanted():
                reason = self._clients.notices.explain("no acknowledgement in time")
                raise TryAgainError(f"{len(self._producer)} records were not taken by {self._clients.to}: {reason}")
        self._check()

    def _left_s(self) -> float:
        assert self._begun_s is not None
        return self._begun_s + self._timeout_s - time.monotonic()

    def _finish(self, call: Any, patience_s: float) -> None:
        try:
            self._clients.patiently(call, self._poll, "the transaction was not committed", patience_s)
        except TryAgainError:
            self._check()  # which says more of why
            raise
        except LinkStoppedError as exc:
            raise self._fenced() from exc

    def _call(self, what: str, call: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            call()
        except KafkaException as exc:
            raise self._clients.failure(exc, what) from exc

    def _poll(self) -> None:
        self._producer.poll(0)

    def _check(self) -> None:
        """Raise what a delivery report has said."""
        failed = self._failed
        if failed is None:
            return
        verdict, reason = judge(failed.error.code()), words(failed.error)
        if verdict is Verdict.FENCED:
            raise self._fenced()
        if verdict is Verdict.REFUSED:
            raise RecordsRefusedError(failed.topic, failed.partition, reason, is_size=failed.error.code() in SIZE_CODES)
        if verdict is Verdict.TOPIC:
            raise TargetRefusedError(failed.topic, f"the upstream does not take records for {failed.topic}: {reason}")
        explained = self._clients.notices.explain(reason) if failed.error.code() < 0 else reason
        raise TryAgainError(f"records for {failed.topic}-{failed.partition} were not taken: {explained}")

    def _fenced(self) -> LinkStoppedError | TryAgainError:
        silent_s = time.monotonic() - (self._heard_s if self._begun_s is None else self._begun_s)
        if silent_s >= self._timeout_s * GIVEN_UP_SHARE:
            return TryAgainError(f"the upstream has given up a transaction that was open for {silent_s:.0f} s")
        return LinkStoppedError(self._clients.fenced())
