"""The clock of a coordinator: it waits for a deadline, and for an earlier one that comes up meanwhile."""

from __future__ import annotations

import trio
import trio.testing
from trio.testing import MockClock
from triolog.server.loop.waiting import Alarm, deadline_now_ms


async def test_it_wakes_just_after_the_earliest_deadline_that_it_has_or_gets(autojump_clock: MockClock) -> None:
    alarm, begun_ms = Alarm(), deadline_now_ms()
    await Alarm().wait(begun_ms + 5000)
    assert 5000 < deadline_now_ms() - begun_ms <= 5002
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.wait, None)
        await trio.testing.wait_all_tasks_blocked()
        alarm.bring_forward(deadline_now_ms() + 1)
    begun_ms = deadline_now_ms()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.wait, begun_ms + 5000)
        await trio.testing.wait_all_tasks_blocked()
        alarm.bring_forward(begun_ms + 6000)
        alarm.bring_forward(None)
        await trio.sleep(1)
        assert len(nursery.child_tasks) == 1
        alarm.bring_forward(begun_ms + 4000)
    assert deadline_now_ms() - begun_ms < 2000
