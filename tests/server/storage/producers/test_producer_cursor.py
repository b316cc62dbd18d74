"""Sequences, epochs and markers that are accepted, known again and refused, without a log around them."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol import errors
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.records.batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    end_txn_marker,
    increment_sequence,
    parse_header,
)
from triolog.server.storage.indexes.transaction_index import AbortedTxn
from triolog.server.storage.producers.producer_cursor import BatchMetadata, CompletedTxn, EndTxnMarker, ProducerEntry
from triolog.server.storage.producers.producer_state import MOST_RANGES, ProducerState, UnsyncedTransactions

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
    with pytest.raises(errors.InvalidProducerEpochError, match="sent epoch 0, the log has 1"):
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
    with pytest.raises(errors.OutOfOrderSequenceError, match="begins its epoch 2 with sequence 1"):
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


def test_sequences_wrap_inside_a_batch_and_after_the_largest_only_zero_follows(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testProducerSequenceWithWrapAroundBatchRecord, testProducerSequenceInvalidWrapAround."""
    append(state, INT32_MAX - 10, 2000, count=21)
    (stored,) = state.entries[PID].batches
    assert stored == BatchMetadata(9, 2020, 20, 0)
    assert (stored.first_sequence, stored.first_offset) == (INT32_MAX - 10, 2000)
    append(state, INT32_MAX, 0, pid=8)
    with pytest.raises(errors.OutOfOrderSequenceError):
        append(state, 1, 1, pid=8)
    append(state, 0, 1, pid=8)


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
    with pytest.raises(errors.InvalidProducerEpochError, match=r"producer 7 has epoch 4 .* the log has epoch 5"):
        end(state, 1, epoch=4)
    for offset, coordinator_epoch in ((1, 1), (2, 1), (3, 2)):
        end(state, offset, epoch=5, coordinator_epoch=coordinator_epoch)
    with pytest.raises(errors.TransactionCoordinatorFencedError, match="comes from coordinator epoch 1, the log has 2"):
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
def test_only_the_last_five_batches_of_a_producer_are_known(sends: Sequence[tuple[int, int, int]], first_sequence: int) -> None:
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


def test_the_first_unstable_offset_moves_when_the_marker_is_below_the_high_watermark(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testFirstUnstableOffset."""
    append(state, 0, 99, txn=True)
    assert state.first_unstable_offset == 99
    append(state, 0, 105, pid=8, txn=True)
    assert end(state, 109) is None
    assert state.ongoing == {8: 105}
    for high_watermark, unstable in ((100, 99), (109, 99), (110, 105)):
        state.on_high_watermark(high_watermark)
        assert state.first_unstable_offset == unstable
    assert end(state, 112, pid=8, abort=True) == AbortedTxn(8, 105, 112, 113)
    assert state.first_unstable_offset == 105
    state.on_high_watermark(113)
    assert state.first_unstable_offset is None


def test_the_first_unstable_offset_is_that_of_a_look_at_all_transactions() -> None:
    rng = random.Random(7)
    for _ in range(50):
        state, open_at, ended, high_watermark = ProducerState(), dict[int, int](), list[tuple[int, int]](), 0
        for offset in range(100):
            pid = rng.randrange(6)
            if pid in open_at and rng.random() < 0.6:
                end(state, offset, pid=pid)
                ended.append((open_at.pop(pid), offset))
            else:
                append(
                    state, 0 if pid not in state.entries else state.entries[pid].last_sequence + 1, offset, pid=pid, txn=True
                )
                open_at.setdefault(pid, offset)
            if rng.random() < 0.2:
                high_watermark = rng.randint(high_watermark, offset + 1)
                state.on_high_watermark(high_watermark)
            undecided = (first for first, last in ended if last >= high_watermark)
            assert state.first_unstable_offset == min((*open_at.values(), *undecided), default=None)


def test_replaying_costs_what_its_transactions_cost() -> None:
    """Counted in instructions of the interpreter: recovery has no high watermark, and all that have ended are undecided."""
    few, times = 50, 8

    def cost(transactions: int) -> int:
        state, count = ProducerState(), 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal count
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            count += event == "opcode"
            return trace

        batches = [(header(number, 2 * number, txn=True), b"") for number in range(transactions)]
        for number in range(transactions):
            told = {"producer_id": PID, "producer_epoch": 0, "commit": True, "timestamp": 5, "coordinator_epoch": 1}
            marker = end_txn_marker(**told, base_offset=2 * number + 1)
            batches.insert(2 * number + 1, (parse_header(marker), marker))
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            for one, batch in batches:
                state.replay(one, batch)
        finally:
            sys.settrace(before)
        assert state.first_unstable_offset == 0
        return count

    assert cost(times * few) <= times * cost(few) * 1.3


def test_transactions_that_are_not_synced_are_not_remembered_one_by_one() -> None:
    def remembered() -> int:
        return sum(isinstance(each, CompletedTxn) for each in gc.get_objects())

    state, before = ProducerState(), remembered()
    for number in range(500):
        append(state, number, 2 * number, txn=True)
        end(state, 2 * number + 1)
        state.on_high_watermark(2 * number + 2)
    assert remembered() - before < 10
    assert (state.first_unsynced_offset, state.unsynced_producers) == (0, {PID})
    state.on_recovery_point(1000)
    assert (state.first_unsynced_offset, state.unsynced_producers) == (None, set())


def test_an_idle_producer_expires_and_may_go_on_with_any_sequence(state: ProducerState) -> None:
    """Kafka: ProducerStateManagerTest.testPidExpirationTimeout, testProducersWithOngoingTransactionsDontExpire."""
    append(state, 0, 0, timestamp=1000)
    append(state, 0, 1, pid=8, timestamp=1000, txn=True)
    assert state.expire(1099, 100) == 0
    assert state.expire(1100, 100) == 1
    assert list(state.entries) == [8]
    append(state, 4711, 2)


def test_a_cursor_that_is_not_committed_changes_nothing(state: ProducerState) -> None:
    append(state, 0, 0, txn=True)
    before = (dict(state.entries), state.ongoing, state.first_unstable_offset, state.end_offset)
    cursor = state.cursor()
    cursor.add(header(1, 1, txn=True), 1)
    cursor.end(EndTxnMarker(PID, 0, 0, True, 1), 2)
    assert cursor.completed == [CompletedTxn(PID, 0, 2, True)]
    assert (state.entries, state.ongoing, state.first_unstable_offset, state.end_offset) == before


def test_replay_refuses_nothing(state: ProducerState) -> None:
    """Kafka: UnifiedLogTest.testDuplicateAppendToFollower, testMultipleProducersWithDuplicatesInSingleAppend: what is
    stored was accepted once."""
    for offset, sequence in enumerate((0, 0, 7, 3)):
        state.replay(header(sequence, offset, epoch=2 if offset < 2 else 1), b"")
    marker = end_txn_marker(producer_id=PID, producer_epoch=0, commit=True, timestamp=5, coordinator_epoch=1, base_offset=4)
    state.replay(parse_header(marker), marker)
    assert (state.entries[PID].epoch, state.end_offset) == (0, 5)
    no_marker = header(-1, 5)._replace(attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG, records_count=0)
    assert state.replay(no_marker, b"") is None
    assert (list(state.entries), state.end_offset) == ([PID], 6)


def transaction(rng: random.Random, last_offset: int) -> CompletedTxn:
    return CompletedTxn(rng.randrange(8), max(0, last_offset - rng.randint(1, 40)), last_offset, rng.random() < 0.3)


def check(kept: UnsyncedTransactions, known: list[CompletedTxn]) -> None:
    """What is told covers what is known, and is nothing where nothing is."""
    assert len(kept) <= 2 * MOST_RANGES
    assert kept.producers >= {txn.producer_id for txn in known}
    if known:
        assert kept.first_offset is not None
        assert kept.first_offset <= min(txn.first_offset for txn in known)


def test_no_transaction_is_forgotten_before_it_is_on_the_device() -> None:
    """What was forgotten stays so until the recovery point moves: now and then, and before that, is often enough to look."""
    for seed in range(20):
        rng = random.Random(seed)
        kept, known, last = UnsyncedTransactions(), list[CompletedTxn](), 0
        for number in range(3000):
            last += rng.randint(1, 3)
            txn = transaction(rng, last)
            kept.add(txn)
            known.append(txn)
            is_synced, is_cut = rng.random() < 0.002, rng.random() < 0.001
            if is_synced or is_cut or number % 20 == 0:
                check(kept, known)
            if is_synced:
                offset = rng.choice((last + 1, rng.randint(0, last)))
                kept.on_recovery_point(offset)
                known = [each for each in known if each.last_offset >= offset]
            if is_cut:
                last = rng.randint(last // 2, last)
                cut = UnsyncedTransactions()
                cut.take_over(kept, last + 1)
                kept, known = cut, [each for each in known if each.last_offset <= last]
            if is_synced or is_cut:
                check(kept, known)
        kept.on_recovery_point(last + 1)
        assert (len(kept), kept.first_offset, kept.producers) == (0, None, set())


def test_few_are_told_exactly() -> None:
    rng = random.Random(0)
    known = [transaction(rng, 10 * number + 1) for number in range(MOST_RANGES)]
    kept = UnsyncedTransactions()
    for txn in known:
        kept.add(txn)
    for offset in range(0, 10 * MOST_RANGES, 7):
        kept.on_recovery_point(offset)
        known = [each for each in known if each.last_offset >= offset]
        assert kept.producers == {txn.producer_id for txn in known}
        assert kept.first_offset == min((txn.first_offset for txn in known), default=None)
