from __future__ import annotations

import trio
import trio.testing
from triolog.server.loop.waiting import KeyedLocks


async def test_a_lock_is_held_by_one_task_at_a_time_in_the_order_of_requests() -> None:
    locks, order = KeyedLocks[str](), list[str]()
    release = trio.Event()

    async def take(name: str) -> None:
        async with locks.hold("group"):
            order.append(name)
            await release.wait()

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(take, name)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["a"]
        async with locks.hold("other"):
            assert "other" in locks
        assert "group" in locks
        release.set()
    assert order == ["a", "b", "c"]
    assert "group" not in locks
    assert "other" not in locks


async def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    locks = KeyedLocks[str]()
    async with locks.hold("group"):
        with trio.move_on_after(0):
            async with locks.hold("group"):
                raise AssertionError("two hold it at once")
        assert "group" in locks
    assert "group" not in locks
