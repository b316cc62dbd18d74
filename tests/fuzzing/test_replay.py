"""What fuzzing has kept is fed again: nothing of it breaks an invariant, whatever has changed since."""

from __future__ import annotations

import tracemalloc
from typing import Final

import pytest

from tests.fuzzing import targets
from tests.fuzzing.target import MOST_BYTES, MOST_BYTES_PER_BYTE, Target
from tests.fuzzing.targets import TARGETS

MOST_BAD_SEEDS: Final = 4
LEAST_INPUTS: Final = 30


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_what_fuzzing_has_kept_breaks_no_invariant(target: Target) -> None:
    inputs = targets.kept(target.name)
    assert len(inputs) >= LEAST_INPUTS
    assert sum(map(target.feed, inputs)) > 1


@pytest.mark.merge
@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_seeds_are_good(target: Target) -> None:
    """A few are batches that only a log holds."""
    bad = [seed for seed in target.seeds() if not target.feed(seed)]
    assert len(bad) <= MOST_BAD_SEEDS


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_no_input_takes_memory_out_of_proportion(target: Target) -> None:
    """The largest ones. (What is compiled for a message is kept, and is not theirs.)"""
    for data in list(targets.kept(target.name))[-20:]:
        target.feed(data)
        tracemalloc.start()
        try:
            target.feed(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MOST_BYTES + MOST_BYTES_PER_BYTE * len(data), data.hex()
