"""A start imports no more and keeps no more than it did. The counts of modules and of allocated blocks are the same on an idle
and on a busy machine; memory and time follow them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from triolog.tools.bench.counting.meters import COUNTED_ON
from triolog.tools.bench.measuring.child import run_load

from tests.support.start_counts import counts_of_client, counts_of_program, counts_of_server


class Kept(NamedTuple):
    """What a start adds to a process."""

    modules: int
    """Those of other distributions and of the interpreter too."""
    blocks: int
    """Allocations of at most 512 bytes: objects, and parts of larger ones."""


STARTS: Final = {
    counts_of_server: Kept(494, 217_500),
    counts_of_program: Kept(416, 190_300),
    counts_of_client: Kept(154, 57_900),
}
ABOVE: Final = 0.03
BELOW: Final = 0.05
"""How far a count may be from the table. Lower the table when a count is better than that."""


def differences(found: Kept, kept: Kept) -> list[str]:
    """Return a sentence for each count that is not that of the table."""
    sentences = []
    for name, now, most in zip(Kept._fields, found, kept, strict=True):
        if now > most * (1 + ABOVE):
            sentences.append(f"{now} {name} after the start, {most} in the table: it may only go down")
        elif now < most * (1 - BELOW):
            sentences.append(f"{now} {name} after the start, {most} in the table: lower the table")
    return sentences


@pytest.mark.merge  # each count is a start of its own
@pytest.mark.skipif(
    sys.version_info[:2] != COUNTED_ON, reason="other interpreters than CPython {}.{} allocate otherwise".format(*COUNTED_ON)
)
@pytest.mark.parametrize("count", STARTS)
def test_a_start_keeps_no_more_than_the_table(count: Callable[[], list[int]]) -> None:
    assert differences(Kept(*run_load(count)), STARTS[count]) == []


def test_more_fails_and_less_lowers_the_table() -> None:
    kept = Kept(100, 1000)
    assert differences(Kept(103, 950), kept) == []
    assert differences(Kept(104, 1031), kept) == [
        "104 modules after the start, 100 in the table: it may only go down",
        "1031 blocks after the start, 1000 in the table: it may only go down",
    ]
    assert differences(Kept(94, 949), kept) == [
        "94 modules after the start, 100 in the table: lower the table",
        "949 blocks after the start, 1000 in the table: lower the table",
    ]
