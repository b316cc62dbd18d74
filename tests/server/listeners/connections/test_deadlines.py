"""What has a timeout is told when it is over, and only then; while nothing waits nobody is woken."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing
from triolog.server.control.clock import MovedClock
from triolog.server.listeners.connections.deadlines import CHECK_S, Deadlines

from tests.support.brokers import until


@attrs.define(eq=False)
class Waits:
    ended: list[float] = attrs.field(factory=list)

    def expire(self) -> None:
        self.ended.append(trio.current_time())


@asynccontextmanager
async def running() -> AsyncIterator[Deadlines]:
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines()
        nursery.start_soon(deadlines.run)
        yield deadlines
        nursery.cancel_scope.cancel()


async def test_each_is_told_once_within_a_check_behind_its_time(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as deadlines:
        waiting = [Waits() for _ in range(3)]
        start = trio.current_time()
        for number, each in enumerate(waiting):
            deadlines.add(each, 10 * number)
        await trio.sleep(100)
        for number, each in enumerate(waiting):
            [at] = each.ended
            assert 0 <= at - start - 10 * number <= 2 * CHECK_S
        assert not len(deadlines)


async def test_who_was_removed_is_not_told(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as deadlines:
        answered, late = Waits(), Waits()
        for each in (answered, late):
            deadlines.add(each, 0)
        deadlines.remove(answered)
        deadlines.remove(answered)
        await trio.sleep(10)
        assert (answered.ended, len(late.ended)) == ([], 1)


async def test_nobody_is_woken_while_nothing_waits(autojump_clock: trio.testing.MockClock) -> None:
    """The clock jumps only over waits: with a check each second this would take a million of them."""
    steps = 0

    class Count(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Deadlines().run)
        trio.lowlevel.add_instrument(counting := Count())
        await trio.sleep(1_000_000)
        trio.lowlevel.remove_instrument(counting)
        nursery.cancel_scope.cancel()
    assert steps < 10


async def test_who_was_told_is_not_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as deadlines:
        late = Waits()
        kept = weakref.ref(late)
        deadlines.add(late, 0)
        del late
        await trio.sleep(10)
        assert kept() is None


def test_the_time_of_one_that_begins_to_wait_as_the_clock_is_moved_is_not_over_at_once() -> None:
    clock = MovedClock()

    async def main() -> None:
        async with running() as deadlines:
            first, late = Waits(), Waits()
            deadlines.add(first, 100)
            await trio.testing.wait_all_tasks_blocked()
            clock.advance(2)
            await until(lambda: first in deadlines._waiting)
            clock.advance(200)
            deadlines.add(late, 100)
            await until(lambda: bool(first.ended))
            assert not late.ended
            clock.advance(200)
            await until(lambda: bool(late.ended))

    trio.run(main, clock=clock)
