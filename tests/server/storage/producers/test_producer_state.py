"""Open transactions, those that are not on the device yet, expiry and replay of producers, without a log around them."""

from __future__ import annotations

import gc
import random
import sys
from types import FrameType
from typing import Any

from triolog.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, end_txn_marker, parse_header
from triolog.server.storage.indexes.transaction_index import AbortedTxn
from triolog.server.storage.producers.producer_cursor import CompletedTxn, EndTxnMarker
from triolog.server.storage.producers.producer_state import MOST_RANGES, ProducerState, UnsyncedTransactions

from tests.support.producer_appends import PID, append, end, header


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
