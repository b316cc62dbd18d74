"""Cancelled calls of a trio program: what has happened, and what has not."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from triolog.server.embedded import MEMORY, open_broker

from tests.support.brokers import PATIENCE_S

T = "topic"
HOUR_MS = 3_600_000


async def test_an_append_that_is_cancelled_before_it_is_enqueued_has_not_happened() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        with trio.CancelScope() as scope:
            scope.cancel()
            await broker.append(T, [b"never"])
        assert scope.cancelled_caught
        assert (await broker.append(T, [b"first"])).base_offset == 0


async def test_an_append_that_is_cancelled_while_the_device_syncs_is_there_all_the_same() -> None:
    async with open_broker(MEMORY, native=None, topics=[T], durability="fsync") as broker:
        fault = broker.faults.disk("delay", operation="sync", path="*.log", delay_ms=HOUR_MS)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.append, T, [b"a"])
                await fault.wait_fired(timeout_s=PATIENCE_S)
                scope.cancel()
        assert scope.cancelled_caught
        fault.release()
        assert [each.value for each in await broker.fetch(T, max_wait_s=PATIENCE_S)] == [b"a"]


async def test_a_cancelled_follow_loses_nothing() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        follow = broker.follow(T)
        for number in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, follow)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await broker.append(T, [b"%d" % number])
            assert (await anext(follow)).value == b"%d" % number


async def test_a_transaction_whose_block_is_cancelled_is_aborted() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        with trio.CancelScope() as scope:
            async with broker.transaction("id") as transaction:
                await transaction.append(T, [b"never"])
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert await broker.log(T).values() == []
        assert broker.log(T).end_offsets() == {0: 2}, "an open transaction would keep readers from what follows"


@pytest.mark.parametrize("count", [1, 2000])
async def test_whoever_follows_lets_others_run(count: int) -> None:
    """At the latest after one read, of 2,000 records."""
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await broker.append(T, [b"x"] * count)
        await broker.append(T, [b"x"] * count)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            async for _ in broker.follow(T, max_bytes=1, max_wait_s=0):
                pass
            nursery.cancel_scope.cancel()
        assert turns >= 2
