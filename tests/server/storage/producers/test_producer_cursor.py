"""Sequences, epochs and markers that are accepted, known again and refused, without a log around them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol import errors
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.records.batch import BatchHeader, increment_sequence
from triolog.server.storage.indexes.transaction_index import AbortedTxn
from triolog.server.storage.producers.producer_cursor import BatchMetadata, EndTxnMarker, ProducerEntry
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.logs import TOPIC_PARTITION
from tests.support.producer_appends import PID, append, end, header


def test_sequences_follow_each_other_and_epochs_fence(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testBasicIdMapping, where a batch that is there already is out of order for the manager
    because the log has looked for it before."""
    append(state, 0, 0)
    append(state, 1, 1)
    assert state.cursor().admit(TOPIC_PARTITION, [header(1)]) is not None
    for wrong in (3, 5):
        with pytest.raises(errors.OutOfOrderSequenceError, match=f"sent sequence {wrong} after 1"):
            append(state, wrong, 2)
    append(state, 0, 2, epoch=1)
    with pytest.raises(errors.InvalidProducerEpochError, match="sent epoch 0, the log knows 1"):
        append(state, 2, 3)


def test_a_new_epoch_begins_with_zero_also_where_a_marker_has_raised_it(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testOutOfSequenceAfterControlRecordEpochBump."""
    append(state, 0, 0, txn=True)
    append(state, 1, 1, txn=True)
    end(state, 2, epoch=1)
    for epoch in (1, 2):
        with pytest.raises(errors.OutOfOrderSequenceError):
            append(state, 2, 3, epoch=epoch, txn=True)
    append(state, 0, 3, epoch=1, txn=True)
    with pytest.raises(errors.OutOfOrderSequenceError, match="begins its epoch 2 with sequence 1, a new epoch begins with 0"):
        append(state, 1, 4, epoch=2, txn=True)


def test_a_marker_without_state_leaves_its_epoch_and_no_sequence(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testAppendTxnMarkerWithNoProducerState."""
    assert end(state, 0, epoch=2) is None
    assert (state.entries[PID].epoch, state.entries[PID].last_sequence) == (2, -1)
    with pytest.raises(errors.InvalidProducerEpochError):
        append(state, 0, 1, epoch=1)
    with pytest.raises(errors.OutOfOrderSequenceError):
        append(state, 17, 1, epoch=2)
    append(state, 0, 1, epoch=2)


def test_sequences_wrap_inside_a_batch(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord."""
    append(state, INT32_MAX - 10, 2000, count=21)
    (stored,) = state.entries[PID].batches
    assert stored == BatchMetadata(9, 2020, 20, 0)
    assert (stored.first_sequence, stored.first_offset) == (INT32_MAX - 10, 2000)


def test_after_the_largest_sequence_only_zero_follows(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testProducerSequenceInvalidWrapAround."""
    append(state, INT32_MAX, 0)
    with pytest.raises(errors.OutOfOrderSequenceError):
        append(state, 1, 1)
    append(state, 0, 1)


def test_a_plain_batch_inside_an_open_transaction_is_an_invalid_state(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testNonTransactionalAppendWithOngoingTransaction."""
    append(state, 0, 0, txn=True)
    with pytest.raises(errors.InvalidTxnStateError, match="has a transaction open since offset 0"):
        append(state, 1, 1)
    with pytest.raises(errors.OutOfOrderSequenceError):  # which Kafka looks for before
        append(state, 3, 1)


def test_a_coordinators_batches_without_sequence_are_not_checked(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testSequenceNotValidatedForGroupMetadataTopic."""
    for offset in (0, 1):
        one = header(-1, offset, txn=True)
        cursor = state.cursor()
        cursor.check_epoch(TOPIC_PARTITION, one)
        cursor.add(one, offset)
        state.commit(cursor, offset + 1)
    assert state.entries[PID].last_data_offset == 1


def test_overlapping_transactions_report_the_last_stable_offset_of_their_moment(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testLastStableOffsetCompletedTxn."""
    for pid, offset in ((1, 990), (2, 1015), (3, 1047)):
        append(state, 0, offset, pid=pid, txn=True)
    assert end(state, 1100, pid=1, abort=True) == AbortedTxn(1, 990, 1100, 1015)
    assert end(state, 1101, pid=3, abort=True) == AbortedTxn(3, 1047, 1101, 1015)
    assert end(state, 1102, pid=2, abort=True) == AbortedTxn(2, 1015, 1102, 1103)


def test_epochs_of_coordinators_and_of_producers_fence_markers(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testCoordinatorFencing, UnifiedLogTest.testZombieCoordinatorFenced (also for an empty
    transaction), UnifiedLogTest.testEndTxnWithFencedProducerEpoch."""
    append(state, 0, 0, epoch=5, txn=True)
    with pytest.raises(
        errors.InvalidProducerEpochError,
        match=r"producer 7 has epoch 4 .* the log knows epoch 5",
    ):
        end(state, 1, epoch=4)
    for offset, coordinator_epoch in ((1, 1), (2, 1), (3, 2)):
        end(state, offset, epoch=5, coordinator_epoch=coordinator_epoch)
    with pytest.raises(errors.TransactionCoordinatorFencedError, match="comes from coordinator epoch 1, the log knows 2"):
        end(state, 4, epoch=5, coordinator_epoch=1)


def test_a_transaction_that_opens_and_ends_on_one_cursor_is_complete(state: ProducerState) -> None:
    append(state, 0, 5, pid=8, txn=True)
    cursor = state.cursor()
    cursor.add(header(0, 6, txn=True), 6)
    assert cursor.end(EndTxnMarker(PID, 0, 0, True, 1), 7) == AbortedTxn(PID, 6, 7, 5)
    cursor.add(header(1, 8, txn=True), 8)
    state.commit(cursor, 9)
    assert state.ongoing == {8: 5, PID: 8}
    state.on_high_watermark(9)
    assert state.first_unstable_offset == 5


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 3), st.integers(0, 7)), max_size=60),
    st.integers(INT32_MAX - 20, INT32_MAX),
)
@example(sends=[(1, 1, 0)] * 6 + [(1, 1, back) for back in range(1, 7)], first_sequence=INT32_MAX - 2)
def test_the_last_five_batches_of_a_producer_are_known_again_and_no_others(
    sends: Sequence[tuple[int, int, int]], first_sequence: int
) -> None:
    """Against a list of everything that was stored: a batch is new exactly when it follows, a duplicate among the last five
    is answered with its first offset, all else is out of order."""
    state, offset = ProducerState(), 0
    stored: dict[int, list[BatchHeader]] = {1: [], 2: []}
    for pid, count, back in sends:
        mine = stored[pid]
        if back and back <= len(mine):
            again = mine[-back]
            if back <= 5:
                found = state.cursor().admit(TOPIC_PARTITION, [again])
                assert found is not None
                assert (found.how_many, found.first.first_offset) == (1, again.base_offset)
            else:
                with pytest.raises(errors.OutOfOrderSequenceError):
                    state.cursor().admit(TOPIC_PARTITION, [again])
            continue
        sequence = increment_sequence(mine[-1].last_sequence, 1) if mine else first_sequence
        append(state, sequence, offset, pid=pid, count=count)
        mine.append(header(sequence, offset, pid=pid, count=count))
        offset += count


@given(st.data(), st.integers(INT32_MAX - 20, INT32_MAX))
def test_the_batches_of_an_append_that_are_stored_are_counted(data: st.DataObject, first_sequence: int) -> None:
    """Against the list of what was stored, of which any suffix may be sent again with new batches behind it."""
    state, offset = ProducerState(), 0
    batches: list[BatchHeader] = []
    counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    stored = data.draw(st.integers(0, len(counts)))
    for count in counts:
        sequence = increment_sequence(batches[-1].last_sequence, 1) if batches else first_sequence
        if len(batches) < stored:
            append(state, sequence, offset, pid=1, count=count)
        batches.append(header(sequence, offset, pid=1, count=count))
        offset += count
    start = data.draw(st.integers(0, min(stored, len(batches) - 1)))
    stop = data.draw(st.integers(start + 1, len(batches)))
    known = min(stop, stored) - start
    if known and min(stop, stored) <= stored - 5:
        with pytest.raises(errors.OutOfOrderSequenceError):
            state.cursor().admit(TOPIC_PARTITION, batches[start:stop])
        return
    found = state.cursor().admit(TOPIC_PARTITION, batches[start:stop])
    if not known:
        assert found is None
        return
    assert found is not None
    assert (found.how_many, found.first.first_offset) == (known, batches[start].base_offset)
    assert found.last.last_sequence == batches[start + known - 1].last_sequence


def test_a_batch_that_begins_a_transaction_by_itself_is_the_first_of_its_producer(state: ProducerState) -> None:
    """KIP-890: where nothing is known of a producer, a later sequence says that something is missing."""
    with pytest.raises(errors.OutOfOrderSequenceError, match="begins a transaction with sequence 3"):
        state.cursor().admit(TOPIC_PARTITION, [header(3)], joins_transaction=True)
    assert state.cursor().admit(TOPIC_PARTITION, [header(3)]) is None
    assert state.cursor().admit(TOPIC_PARTITION, [header(0)], joins_transaction=True) is None
    append(state, 0, 0)
    assert state.cursor().admit(TOPIC_PARTITION, [header(1)], joins_transaction=True) is None


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
