"""Waking those who wait for a partition: all of them, once, and none that has left."""

from __future__ import annotations

import trio
import trio.testing
from triolog.server.loop.waiters import Waiters, waiting_on


async def test_waking_wakes_all_who_wait() -> None:
    waiters = Waiters()
    woken: list[int] = []

    async def wait(number: int) -> None:
        with waiting_on([waiters]) as moved:
            await moved.wait()
            woken.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        assert len(waiters) == 5
        waiters.wake_all()
    assert sorted(woken) == list(range(5))
    assert len(waiters) == 0


async def test_any_of_several_partitions_wakes_and_all_forget() -> None:
    several = [Waiters() for _ in range(3)]
    for moving in several:
        with waiting_on(several) as moved:
            assert [len(each) for each in several] == [1, 1, 1]
            moving.wake_all()
            assert moved.is_set()
            with trio.fail_after(30):
                await moved.wait()  # a move between the look and the wait is not missed
        assert [len(each) for each in several] == [0, 0, 0]
    with trio.move_on_after(0), waiting_on(several) as moved:
        await moved.wait()
    assert [len(each) for each in several] == [0, 0, 0], "a task that is cancelled is forgotten"
    with waiting_on([several[0], several[0]]) as moved:
        several[0].wake_all()
        assert moved.is_set()
    assert len(several[0]) == 0
