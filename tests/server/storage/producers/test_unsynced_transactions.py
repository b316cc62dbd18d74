"""Transactions that are not on the device yet take little memory, and none of them is forgotten before it is there."""

from __future__ import annotations

import random

import pytest
from triolog.server.storage.producers.producer_entry import CompletedTxn
from triolog.server.storage.producers.unsynced_transactions import MOST_RANGES, UnsyncedTransactions


def transaction(rng: random.Random, last_offset: int) -> CompletedTxn:
    return CompletedTxn(rng.randrange(8), max(0, last_offset - rng.randint(1, 40)), last_offset, rng.random() < 0.3)


def check(kept: UnsyncedTransactions, known: list[CompletedTxn]) -> None:
    """What is told covers what is known, and is nothing where nothing is."""
    assert len(kept) <= 2 * MOST_RANGES
    assert kept.producers >= {txn.producer_id for txn in known}
    if known:
        assert kept.first_offset is not None
        assert kept.first_offset <= min(txn.first_offset for txn in known)


@pytest.mark.parametrize("seed", range(20))
def test_none_is_forgotten_before_it_is_on_the_device(seed: int) -> None:
    rng = random.Random(seed)
    kept, known, end = UnsyncedTransactions(), list[CompletedTxn](), 0
    for _ in range(3000):
        end += rng.randint(1, 3)
        txn = transaction(rng, end)
        kept.add(txn)
        known.append(txn)
        if rng.random() < 0.002:
            offset = rng.choice((end + 1, rng.randint(0, end)))
            kept.on_recovery_point(offset)
            known = [each for each in known if each.last_offset >= offset]
        if rng.random() < 0.001:
            end = rng.randint(end // 2, end)
            cut = UnsyncedTransactions()
            cut.take_over(kept, end + 1)
            kept, known = cut, [each for each in known if each.last_offset <= end]
        check(kept, known)
    kept.on_recovery_point(end + 1)
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


def test_however_many_there_are_they_are_kept_as_few() -> None:
    kept = UnsyncedTransactions()
    for number in range(50_000):
        kept.add(CompletedTxn(number % 7, 2 * number, 2 * number + 1, False))
    assert len(kept) <= MOST_RANGES
    kept.on_recovery_point(99_000)
    assert kept.first_offset is not None
    assert 96_000 <= kept.first_offset <= 99_000
