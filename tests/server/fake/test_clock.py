"""A broker's clock that is moved."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from triolog.server.fake.clock import MovedClock

from tests.support.logs import START_MS, Clock


def test_it_runs_as_the_wall_and_moves_when_told() -> None:
    wall = Clock()
    clock = MovedClock(wall)
    assert clock.now_ms() == START_MS
    clock.advance(1.5)
    assert clock.now_ms() == START_MS + 1500
    clock.reset()
    assert clock.now_ms() == START_MS
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)


def test_frozen_it_stands_and_goes_on_from_there() -> None:
    times = [10, 20, 30, 40]
    clock = MovedClock(lambda: times[0])
    clock.freeze()
    times[0] = 500
    assert clock.now_ms() == 10
    clock.advance(0.005)
    assert clock.now_ms() == 15
    clock.unfreeze()
    assert clock.now_ms() == 15
    times[0] = 507
    assert clock.now_ms() == 22


@pytest.mark.parametrize("by_another_thread", [False, True])
def test_deadlines_of_trio_move_with_it(by_another_thread: bool) -> None:
    clock = MovedClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 3600)
            await trio.testing.wait_all_tasks_blocked()
            if by_another_thread:
                await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(clock.advance, 3601))
            else:
                clock.advance(3601)

    trio.run(main, clock=clock)
