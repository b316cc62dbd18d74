from __future__ import annotations

import trio
import trio.testing
from triolog.server.actors.coordinators.managed.managed_coordinator import GroupTurns


async def test_a_group_has_one_turn_at_a_time_in_the_order_they_were_asked_for() -> None:
    turns, order = GroupTurns(), list[str]()
    release = trio.Event()

    async def take(name: str) -> None:
        async with turns.of("group"):
            order.append(name)
            await release.wait()

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(take, name)
            await trio.testing.wait_all_tasks_blocked()
        assert order == ["a"]
        async with turns.of("other"):
            assert "other" in turns
        assert "group" in turns
        release.set()
    assert order == ["a", "b", "c"]
    assert "group" not in turns
    assert "other" not in turns


async def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    turns = GroupTurns()
    async with turns.of("group"):
        with trio.move_on_after(0):
            async with turns.of("group"):
                raise AssertionError("two turns at once")
        assert "group" in turns
    assert "group" not in turns
