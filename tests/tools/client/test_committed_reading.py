"""Consumers under read_committed, over gaps, and with a group."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.native import messages as m
from triolog.protocol.records.batch import end_txn_marker
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Isolation
from triolog.tools.client.config import ConsumerConfig
from triolog.tools.client.reading import FetchedBatch, Reading

from .test_consumer import T0


def batch(offset: int, producer_id: int = -1, *, transactional: bool = False) -> bytes:
    return build_batch(
        [(0, None, b"%d" % offset, ())],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=transactional,
    )


def abort(offset: int, producer_id: int) -> bytes:
    return end_txn_marker(
        producer_id=producer_id, producer_epoch=0, commit=False, timestamp=0, coordinator_epoch=0, base_offset=offset
    )


class Fetching:
    """A Reading of one partition that is answered by hand."""

    def __init__(self, start: int = 0, end: int | None = None, **options: Any) -> None:
        self.reading = Reading(ConsumerConfig(**options))
        self.reading.assign({T0: start}, {} if end is None else {T0: end})

    def answer(self, records: bytes = b"", **fields: Any) -> list[FetchedBatch]:
        fetch = self.reading.next_fetch()
        assert fetch is not None
        self.request = fetch.request
        entry = m.FetchPartitionResponse("t", 0, None, 100, 100, 0, records=records, **fields)
        return list(self.reading.accept(fetch, m.FetchResponse((entry,))))


def offsets(batches: list[FetchedBatch]) -> list[int]:
    return [record.offset for batch in batches for record in batch.records()]


def test_requests_say_isolation_and_gaps() -> None:
    fetching = Fetching(isolation=Isolation.READ_COMMITTED, skip_gaps=True)
    fetching.answer()
    assert (fetching.request.isolation, fetching.request.gaps) == (Isolation.READ_COMMITTED, m.Gaps.SKIP)
    fetching = Fetching()
    fetching.answer()
    assert (fetching.request.isolation, fetching.request.gaps) == (Isolation.READ_UNCOMMITTED, None)
    fetching = Fetching(skip_gaps=False)
    fetching.answer()
    assert fetching.request.gaps is m.Gaps.REFUSE


def test_batches_of_aborted_transactions_are_left_out_and_passed() -> None:
    fetching = Fetching(isolation="read_committed")
    data = batch(0, 5, transactional=True) + batch(1) + abort(2, 5) + batch(3, 5, transactional=True)
    assert offsets(fetching.answer(data, aborted=((5, 0),))) == [1, 3]
    assert fetching.reading.position(T0) == 4


def test_each_answer_has_its_own_list_of_aborted_transactions() -> None:
    fetching = Fetching()
    assert offsets(fetching.answer(batch(0, 5, transactional=True), aborted=((5, 0),))) == []
    assert offsets(fetching.answer(batch(1, 5, transactional=True))) == [1]


def test_a_damaged_batch_is_noticed_also_when_it_would_be_left_out() -> None:
    damaged = bytearray(batch(0, 5, transactional=True))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        Fetching().answer(bytes(damaged), aborted=((5, 0),))


def test_an_answer_without_batches_may_say_where_to_go_on() -> None:
    fetching = Fetching(start=10, end=20)
    fetching.answer(next_offset=-1)
    assert (fetching.reading.position(T0), fetching.reading.is_finished) == (10, False)
    fetching.answer(next_offset=20)
    assert (fetching.reading.position(T0), fetching.reading.is_finished) == (20, True)


def test_a_gap_in_front_of_a_batch_is_passed_over() -> None:
    fetching = Fetching(start=3, skip_gaps=True)
    assert offsets(fetching.answer(batch(9))) == [9]
    assert fetching.reading.position(T0) == 10
