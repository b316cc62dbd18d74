from __future__ import annotations

import pytest
from triolog.protocol import errors
from triolog.protocol.records.builder import BatchBuilder
from triolog.tools.client.backoff import Backoff
from triolog.tools.client.config import ProducerConfig
from triolog.tools.client.errors import ConnectionLostError, DeliveryTimedOutError
from triolog.tools.client.sending.delivery_verdict import Fate, Verdict, judge, timed_out
from triolog.tools.client.sending.partition_queue import Batch, Delivery, PartitionQueue
from triolog.tools.client.sending.request_limits import RequestLimits

CONFIG = ProducerConfig(delivery_timeout_ms=1000)
LIMITS = RequestLimits(max_request_bytes=10_000, max_frame_bytes=10_000)


def delivery_of(count: int, value: bytes = b"v") -> Delivery:
    batches = []
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(7, None, value)
        batches.append(Batch("t", 3, builder, 0.0))
    return Delivery(PartitionQueue("t", 3, Backoff(1, 1), 10_000), tuple(batches))


def verdict(error: errors.TriologError, count: int = 1, *, is_late: bool = False, config: ProducerConfig = CONFIG) -> Verdict:
    return judge(delivery_of(count), error, config, LIMITS, is_late=is_late)


@pytest.mark.parametrize(
    ("error", "alone", "in_company", "is_undecided"),
    [
        (ConnectionLostError("gone"), Fate.RETRY, Fate.RETRY, True),
        (errors.UnknownTopicOrPartitionError("not yet"), Fate.RETRY, Fate.RETRY, False),
        (errors.LocalProtocolError("above the frame"), Fate.RETRY, Fate.RETRY, False),
        (errors.InvalidRecordError("no"), Fate.GIVE_UP, Fate.ONE_BY_ONE, False),
        (errors.OutOfOrderSequenceError("5 after 3"), Fate.GIVE_UP, Fate.ONE_BY_ONE, False),
        (errors.RecordBatchTooLargeError("above segment.bytes"), Fate.GIVE_UP, Fate.IN_HALVES, False),
        (errors.RemoteProtocolError("nonsense"), Fate.GIVE_UP, Fate.GIVE_UP, True),
        (errors.InvalidProducerEpochError("epoch 0, the log knows 1"), Fate.END_PRODUCER, Fate.END_PRODUCER, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, errors.TriologError) else "",
)
def test_an_error_has_its_fate_alone_and_in_company(
    error: errors.TriologError, alone: Fate, in_company: Fate, is_undecided: bool
) -> None:
    """Records may be there unless the server has refused them or never got them."""
    assert (verdict(error).fate, verdict(error, 3).fate, verdict(error).is_undecided) == (alone, in_company, is_undecided)
    if error.__class__ is errors.InvalidProducerEpochError:
        assert verdict(error, config=ProducerConfig(enable_idempotence=False)).fate is Fate.GIVE_UP
    if error.__class__ is errors.InvalidRecordError:
        assert verdict(error, is_late=True) == Verdict(Fate.GIVE_UP, error, False), "told as it is also when it is late"


def test_what_could_pass_is_given_up_when_it_is_late_and_keeps_its_cause() -> None:
    error = ConnectionLostError("gone")
    late = verdict(error, 2, is_late=True)
    assert late.fate is Fate.GIVE_UP
    assert late.is_undecided
    assert isinstance(late.error, DeliveryTimedOutError)
    assert late.error.__cause__ is error
    assert "2 batches for t-3 are given up" in late.error.message
    assert "delivery_timeout_ms=1000; the last attempt failed with " in late.error.message
    never_tried = timed_out(delivery_of(1).batches, 1000, None)
    assert never_tried.__cause__ is None
    assert never_tried.message == "a batch for t-3 was not acknowledged within delivery_timeout_ms=1000"


@pytest.mark.parametrize(("count", "fate"), [(1, Fate.GIVE_UP), (2, Fate.ONE_BY_ONE)])
def test_what_no_frame_of_the_server_holds_is_too_large_and_not_tried_as_it_is(count: int, fate: Fate) -> None:
    delivery = delivery_of(count, bytes(8_000))
    error = errors.LocalProtocolError("above the frame")
    found = judge(delivery, error, CONFIG, LIMITS, is_late=False)
    assert (found.fate, found.is_undecided) == (fate, False)
    assert isinstance(found.error, errors.RecordTooLargeError)
    assert found.error.__cause__ is error
    assert f"t-3: {len(delivery.records)} bytes in " in found.error.message


def test_a_lost_count_is_explained_where_one_batch_alone_is_refused() -> None:
    error = errors.OutOfOrderSequenceError("5 after 3")
    assert verdict(error, 2).error is error
    explained = verdict(error).error
    assert isinstance(explained, errors.OutOfOrderSequenceError)
    assert explained.__cause__ is error
    assert "t-3: the log does not end with what it acknowledged" in explained.message
