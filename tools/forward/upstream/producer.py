"""Records and the offset behind them in one transaction upstream; without transactions records, until all are acknowledged.

What a delivery report says comes while librdkafka is asked for something else, so it is noted and raised by the next call.
After an error a producer is closed; the next session has a new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from ....protocol.types import TopicPartition
from ...client.procedures.groups import CommittedOffset
from ..errors import ForwardError, LinkStoppedError, RecordsRefusedError, TargetRefusedError, TryAgainError
from .connection import CALL_S, PURGED, SIZE_CODES, UpstreamClients, Verdict, judge, kafka_exception, words

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Message, Producer

T = TypeVar("T")

FULL_S: Final = 0.05
"""How long to wait for room in librdkafka's queue before it is looked whether all is well."""
REPORT_S: Final = 0.05
"""How long to wait for acknowledgements before it is looked whether a record was refused: librdkafka waits for the others."""
PURGED_LOOKS: Final = 5
"""Records are thrown away for a reason, which may be told behind them."""
ABORT_S: Final = 3.0
SILENT_S: Final = 20.0
"""Without an acknowledgement, and new connections are tried."""
STALLED_S: Final = 5.0
"""Without an acknowledgement, and it is looked whether the topics are still there."""
GIVEN_UP_SHARE: Final = 0.8
"""Of the transaction's timeout. A producer that is fenced after it was silent for as long was given up by the upstream, and
nobody else has come."""


@attrs.frozen
class _Failed:
    topic: str
    partition: int
    error: KafkaError


@attrs.define(eq=False, repr=False)
class _Reports:
    """The first delivery report that says why something failed. Told by librdkafka, in whatever call of ours."""

    failed: _Failed | None = None

    @property
    def is_purged(self) -> bool:
        return self.failed is not None and self.failed.error.code() in PURGED

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is None or (self.failed is not None and not self.is_purged):
            return
        partition = message.partition()
        self.failed = _Failed(message.topic() or "", -1 if partition is None else partition, error)


class UpstreamProducer:
    """A producer of one session. Owner: the session."""

    def __init__(self, clients: UpstreamClients, batch_bytes: int, timeout_ms: int) -> None:
        self._clients = clients
        self._timeout_s = timeout_ms / 1000
        self._reports = _Reports()
        self._producer: Producer = clients.producer(batch_bytes, self._reports.note)
        self._begun_s: float | None = None
        self._heard_s = time.monotonic()
        self._group_metadata: object = None
        self.produce = self._producer.produce
        """librdkafka's own, only after `begin`. BufferError: `make_room`, and again; `failure`: raise what `explain` says."""
        from confluent_kafka import KafkaException

        self.failure: type[KafkaException] = KafkaException

    def introduce(self, group_metadata: object) -> None:
        """Fence whoever had the transactional id before, and have its last transaction ended. Raises what `commit` raises."""
        self._group_metadata = group_metadata
        if self._clients.is_exactly_once:
            self._clients.patiently(self._producer.init_transactions, self._serve, "no transactions")
        self._heard_s = time.monotonic()

    def begin(self) -> None:
        """A stretch begins; what is committed is the whole of it."""
        if self._begun_s is None and self._clients.is_exactly_once:
            self._call("no transaction", self._producer.begin_transaction)
        self._begun_s = time.monotonic()

    def make_room(self) -> None:
        """The queue is full: wait a moment. Raises what became of records meanwhile."""
        self._serve(FULL_S)
        self._check()

    def explain(self, error: KafkaException, topic: str, partition: int, offset: int, size: int) -> ForwardError:
        """Return the error for a record of `size` bytes that `produce` did not accept; raise the errors of earlier records."""
        found = kafka_exception(error).args[0]
        if found.code() in SIZE_CODES:
            reason = f"it has {size} bytes, more than the link's message.max.bytes of {self._clients.max_message_bytes}"
            return RecordsRefusedError(topic, partition, reason, is_size=True, offset=offset)
        self._serve()
        self._check()
        failure = self._clients.failure(error, f"no record for {topic}-{partition}")
        return self._fenced() if isinstance(failure, LinkStoppedError) else failure

    def look(self) -> None:
        """Raise what has become of records."""
        self._serve()
        self._check()

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Everything that was handed over, and with transactions these offsets, or nothing.

        Raises TryAgainError, LinkStoppedError, TargetRefusedError, RecordsRefusedError.
        """
        if self._begun_s is None:
            self.begin()
        self._flush({target.topic for target in offsets})
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

        for step in self._ending():
            try:
                step()
            except (KafkaException, SystemError) as exc:
                kafka_exception(exc)
        del self._producer, self.produce  # librdkafka's threads end with the last reference

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _ending(self) -> Iterator[Callable[[], object]]:
        yield self._producer.purge
        if self._begun_s is not None and self._clients.is_exactly_once:
            yield partial(self._producer.abort_transaction, ABORT_S)
        yield partial(self._producer.poll, 0)

    def _flush(self, targets: set[str]) -> None:
        left, look_s, give_up_s = -1, time.monotonic() + STALLED_S, time.monotonic() + SILENT_S
        while now_left := self._call("records were not taken", partial(self._producer.flush, REPORT_S)):
            self._check()
            now_s = time.monotonic()
            if now_left != left:
                left, give_up_s = now_left, now_s + SILENT_S
            if now_s >= look_s:
                self._check_there(targets)
                look_s = now_s + STALLED_S
            if self._left_s() <= 0 or now_s >= give_up_s or not self._clients.is_wanted():
                reason = self._clients.notices.explain("no acknowledgement in time")
                raise TryAgainError(f"{self._clients.to} did not accept {len(self._producer)} records: {reason}")
        self._check()

    def _check_there(self, targets: set[str]) -> None:
        """librdkafka waits for topics that are gone until the transaction has timed out."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            there = self._producer.list_topics(timeout=CALL_S).topics  # of all: one that is asked for would be made
            for target in sorted(targets - set(there)):
                raise TargetRefusedError(target, f"the upstream no longer has topic {target}")

    def _left_s(self) -> float:
        assert self._begun_s is not None
        return self._begun_s + self._timeout_s - time.monotonic()

    def _finish(self, call: Any, patience_s: float) -> None:
        try:
            self._clients.patiently(call, self._serve, "the transaction was not committed", patience_s)
        except TryAgainError:
            self._check()  # which says more of why
            raise
        except LinkStoppedError as exc:
            raise self._fenced() from exc

    def _call(self, what: str, call: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException

        try:
            return call()
        except (KafkaException, SystemError) as exc:
            failure = self._clients.failure(kafka_exception(exc), what)
        if isinstance(failure, LinkStoppedError):
            raise self._fenced()
        if not self._reports.is_purged:
            self._check()  # which says more of why
        raise failure

    def _serve(self, timeout_s: float = 0) -> None:
        """Let librdkafka tell what it has to tell; an error that it cannot recover from comes as an exception."""
        self._call("the producer has failed", partial(self._producer.poll, timeout_s))

    def _check(self) -> None:
        """Raise what a delivery report has said, or why there is none."""
        if self._reports.failed is None:
            return
        for _ in range(PURGED_LOOKS):
            if self._reports.is_purged:
                self._serve(FULL_S)
        failed = self._reports.failed
        verdict, reason = judge(failed.error.code()), words(failed.error)
        if verdict is Verdict.FENCED:
            raise self._fenced()
        if verdict is Verdict.REFUSED:
            raise RecordsRefusedError(failed.topic, failed.partition, reason, is_size=failed.error.code() in SIZE_CODES)
        if verdict is Verdict.TOPIC:
            raise TargetRefusedError(failed.topic, f"the upstream does not accept records for {failed.topic}: {reason}")
        explained = self._clients.notices.explain(reason) if failed.error.code() < 0 else reason
        raise TryAgainError(f"records for {failed.topic}-{failed.partition} were not accepted: {explained}")

    def _fenced(self) -> LinkStoppedError | TryAgainError:
        silent_s = time.monotonic() - (self._heard_s if self._begun_s is None else self._begun_s)
        if silent_s >= self._timeout_s * GIVEN_UP_SHARE:
            return TryAgainError(f"the upstream aborted a transaction that was open for {silent_s:.0f} s")
        return LinkStoppedError(self._clients.fenced())
