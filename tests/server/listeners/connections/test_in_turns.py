"""What a request names is gone through in turns."""

from __future__ import annotations

import pytest
import trio
from triolog.server.listeners.connections.in_turns import in_turns


async def turns_of_others(count: int, per_turn: int) -> int:
    """How often another task ran while so many elements were gone through."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert [each async for each in in_turns(range(count), per_turn)] == list(range(count))
        nursery.cancel_scope.cancel()
    return turns


@pytest.mark.parametrize(("count", "turns"), [(0, 0), (1, 0), (8, 0), (9, 1), (16, 1), (80, 9)])
async def test_others_have_a_turn_after_every_few_elements(count: int, turns: int) -> None:
    """Who comes first in a turn is drawn: the other one may miss the first and the last."""
    assert abs(await turns_of_others(count, 8) - turns) <= min(turns, 2)


async def test_it_may_be_left_before_its_end() -> None:
    async for each in in_turns(range(10), 3):
        if each == 5:
            break
