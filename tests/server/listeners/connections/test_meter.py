"""What runs for a request counts, what it waits for does not; whoever waits is told the same as without a meter."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from triolog.server.listeners.connections import counters as module
from triolog.server.listeners.connections.counters import Meter


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The processor's clock, which a test moves."""
    now = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    return now


def test_only_the_time_between_go_and_pause_counts(ticks: list[float]) -> None:
    meter = Meter()
    for runs, waits in [(1.0, 100.0), (2.0, 100.0)]:
        meter.go()
        ticks[0] += runs
        meter.pause()
        ticks[0] += waits
    assert meter.spent_s == 3.0
    meter.go()
    ticks[0] += 0.5
    assert meter.spent_s == 3.5


async def test_what_is_awaited_does_not_count(ticks: list[float]) -> None:
    woken, meter = trio.Event(), Meter()

    async def work() -> str:
        ticks[0] += 1.0
        await woken.wait()
        ticks[0] += 2.0
        await trio.lowlevel.checkpoint()
        return "done"

    found: list[str] = []

    async def metered() -> None:
        found.append(await meter.run(work()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(metered)
        await trio.testing.wait_all_tasks_blocked()
        ticks[0] += 1000.0
        woken.set()
    assert (found, meter.spent_s) == (["done"], 3.0)


async def test_a_cancellation_reaches_what_is_metered() -> None:
    cancelled: list[bool] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append(True)
            raise

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Meter().run, work())
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert cancelled == [True]


async def test_an_error_of_what_is_metered_is_its_own(ticks: list[float]) -> None:
    meter = Meter()

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        ticks[0] += 1.0
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await meter.run(work())
    assert meter.spent_s == 1.0
