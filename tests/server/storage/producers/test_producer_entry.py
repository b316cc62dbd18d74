"""What one producer's entry says of a batch that comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.records.batch import increment_sequence
from triolog.server.storage.producers.producer_entry import BatchMetadata, ProducerEntry

from tests.support.producer_appends import PID, header

SEQUENCES = st.integers(0, 9) | st.integers(INT32_MAX - 5, INT32_MAX) | st.just(-1)
DELTAS = st.integers(0, 4) | st.integers(INT32_MAX - 9, INT32_MAX)
"""Large ones let the sequences of a few batches go all the way round."""


def entries() -> st.SearchStrategy[ProducerEntry]:
    batches = st.lists(st.builds(BatchMetadata, SEQUENCES, st.just(100), DELTAS, st.just(0)), max_size=5).map(tuple)
    return st.builds(
        ProducerEntry, st.just(PID), st.integers(0, 1), current_txn_first_offset=st.none() | st.just(5), batches=batches
    )


@given(entries(), st.none() | SEQUENCES, DELTAS, st.integers(0, 1), st.booleans())
def test_a_batch_that_is_next_is_one_that_the_whole_of_the_rules_takes(
    entry: ProducerEntry, sequence: int | None, delta: int, epoch: int, is_transactional: bool
) -> None:
    """A sequence of None is the one that follows."""
    sequence = increment_sequence(entry.last_sequence, 1) if sequence is None else sequence
    one = header(sequence, count=delta + 1, epoch=epoch, txn=is_transactional)
    if entry.is_next(one):
        assert entry.find_duplicate(one) is None
        assert (one.producer_epoch, one.base_sequence) == (entry.epoch, increment_sequence(entry.last_sequence, 1))
        assert entry.current_txn_first_offset is None or one.is_transactional


@given(st.integers(0, 100), st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 3))
def test_the_batch_behind_those_that_came_is_next(first: int, deltas: list[int], delta: int) -> None:
    batches: list[BatchMetadata] = []
    for each in deltas:
        last = first + each
        batches.append(BatchMetadata(last, last, each, 0))
        first = last + 1
    entry = ProducerEntry(PID, 0, batches=tuple(batches))
    assert entry.is_next(header(first, count=delta + 1))
    assert not entry.is_next(header(first + 1, count=delta + 1))
    assert not entry.is_next(header(first, count=delta + 1, epoch=1))
