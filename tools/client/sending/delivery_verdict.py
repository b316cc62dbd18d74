"""Decides the fate of a failed delivery, and the error that the owners of its records get.

| what went wrong | what becomes of the batches |
|---|---|
| the epoch or the id of an idempotent producer is somebody else's now | the producer ends, and everything with it |
| together they are too large for a segment | tried again in requests of half the size |
| the request was refused that several share | tried again one by one: one may be to blame, or the log may hold some of them |
| what may pass, such as a lost connection | tried again while there is time |
| it was not sent: a server with smaller frames took over | tried again in smaller requests; too large by itself, given up |
| refused alone, or too late | given up |

Nothing is changed here: the accumulator acts on the verdict.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.errors import (
    ErrorCode,
    LocalProtocolError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestError,
    TriologError,
)
from ..config import ProducerConfig
from ..errors import DeliveryTimedOutError
from .partition_queue import Batch, Delivery
from .request_limits import RequestLimits

FENCED_CODES: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Answers that end an idempotent producer: its epoch or its id is somebody else's now."""
UNDECIDED_CODES: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which the records may have been written all the same."""
LOST_SEQUENCE_CODES: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Answers that say that server and client have counted differently."""


class Fate(enum.Enum):
    """The fate of a failed delivery."""

    RETRY = "retry"
    IN_HALVES = "in halves"
    ONE_BY_ONE = "one by one"
    GIVE_UP = "fail"
    END_PRODUCER = "end producer"


@attrs.frozen
class Verdict:
    """`error` is what the records end with, if they do; after an undecided attempt they may be in the log all the same."""

    fate: Fate
    error: TriologError
    is_undecided: bool


def judge(delivery: Delivery, error: TriologError, config: ProducerConfig, limits: RequestLimits, *, is_late: bool) -> Verdict:
    """The verdict on a delivery that met `error`. `is_late`: the time of its oldest batch is over.

    A LocalProtocolError says that the request was not sent. What is neither that nor the server's answer leaves open what has
    happened.
    """
    is_unsent = isinstance(error, LocalProtocolError)
    if is_unsent and not limits.is_sendable(delivery):
        error = _too_large(delivery, error)
    code = error.code if isinstance(error, RequestError) else None if is_unsent else ErrorCode.UNKNOWN_SERVER_ERROR
    is_undecided = code in UNDECIDED_CODES
    if config.is_idempotent and code in FENCED_CODES:
        return Verdict(Fate.END_PRODUCER, error, is_undecided)
    if code in LOST_SEQUENCE_CODES and len(delivery.batches) == 1:
        error = _explained(delivery, error)
    is_retriable = error.retriable if isinstance(error, RequestError) else is_unsent
    if is_retriable and not is_late:
        return Verdict(Fate.RETRY, error, is_undecided)
    if is_retriable:
        return Verdict(Fate.GIVE_UP, timed_out(delivery.batches, config.delivery_timeout_ms, error), is_undecided)
    if isinstance(error, RequestError) and len(delivery.batches) > 1:
        is_too_large = error.code is ErrorCode.RECORD_LIST_TOO_LARGE
        return Verdict(Fate.IN_HALVES if is_too_large else Fate.ONE_BY_ONE, error, is_undecided)
    return Verdict(Fate.GIVE_UP, error, is_undecided)


def timed_out(batches: Sequence[Batch], timeout_ms: int, cause: TriologError | None) -> DeliveryTimedOutError:
    """Build the error for batches that were sent together and are given up because the oldest has waited too long."""
    oldest = batches[0]
    verb = "was" if len(batches) == 1 else "fail: the oldest of them was"
    error = DeliveryTimedOutError(
        f"{_count(batches)} for {oldest.topic}-{oldest.partition} {verb} not acknowledged within "
        f"delivery_timeout_ms={timeout_ms}" + (f"; the last attempt failed with {cause}" if cause is not None else "")
    )
    error.__cause__ = cause
    return error


def _too_large(delivery: Delivery, error: TriologError) -> RecordTooLargeError:
    queue = delivery.queue
    refusal = RecordTooLargeError(
        f"{queue.topic}-{queue.partition}: {len(delivery.records)} bytes in {_count(delivery.batches)} were not sent: {error}"
    )
    refusal.__cause__ = error
    return refusal


def _explained(delivery: Delivery, error: TriologError) -> OutOfOrderSequenceError:
    queue = delivery.queue
    explained = OutOfOrderSequenceError(
        f"{queue.topic}-{queue.partition}: the log does not end with the last record acknowledged to this "
        "producer, so acknowledged records are lost (a crash with another durability than fsync loses some). "
        f"These records were not written. The server returned: {error}"
    )
    explained.__cause__ = error
    return explained


def _count(batches: Sequence[Batch]) -> str:
    return "a batch" if len(batches) == 1 else f"{len(batches)} batches"
