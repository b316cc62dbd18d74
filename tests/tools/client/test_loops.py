"""The parts of an event loop that the client is written against behave alike under trio, asyncio and in blocking programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import pytest
import trio
from triolog.tools.client.asyncio_loop import ASYNCIO
from triolog.tools.client.blocking.loop import InPlaceLoop
from triolog.tools.client.loops import Loop
from triolog.tools.client.trio_loop import TRIO

PATIENCE_S: Final = 20.0


@attrs.frozen
class Runner:
    parts: Loop
    run: Callable[[Callable[[], Awaitable[Any]]], Any]


def in_trio() -> Runner:
    return Runner(TRIO, trio.run)


def in_asyncio() -> Runner:
    async def call(function: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            found = await function()
        task = asyncio.current_task()
        assert asyncio.all_tasks() == {task}
        assert task is not None
        assert task.cancelling() == 0
        return found

    return Runner(ASYNCIO, lambda function: asyncio.run(call(function)))


def in_place() -> Runner:
    loop = InPlaceLoop()
    return Runner(loop.parts, lambda function: loop.run(function()))


@pytest.fixture(params=[in_trio, in_asyncio, in_place])
def runner(request: pytest.FixtureRequest) -> Runner:
    made: Runner = request.param()
    return made


class Waiting:
    """A task that waits until it is cancelled, and says how far it has come."""

    def __init__(self, parts: Loop) -> None:
        self.parts = parts
        self.steps: list[str] = []

    async def __call__(self) -> None:
        self.steps.append("begun")
        try:
            await self.parts.event().wait()
        finally:
            self.steps.append("ended")


def test_a_scope_ends_at_its_deadline_and_a_shield_keeps_the_outer_one_off(runner: Runner) -> None:
    parts = runner.parts

    async def nested() -> list[bool]:
        with parts.scope() as outer:
            outer.cancel()
            with parts.scope(shield=True, deadline=parts.now() + 0.001) as shielded:
                await parts.event().wait()
            with parts.scope(deadline=parts.now() + 60) as inner:
                await parts.event().wait()
            raise AssertionError("the outer scope ends here")
        return [outer.cancelled_caught, shielded.cancelled_caught, inner.cancelled_caught]

    assert runner.run(nested) == [True, True, False]


def test_of_two_scopes_that_are_cancelled_the_outer_one_ends(runner: Runner) -> None:
    parts = runner.parts

    async def nested() -> list[bool]:
        with parts.scope(deadline=parts.now() + 0.001) as outer:
            with parts.scope(deadline=parts.now() + 0.001) as inner:
                outer.cancel()
                inner.cancel()
                await parts.event().wait()
            await parts.event().wait()
        return [outer.cancelled_caught, inner.cancelled_caught]

    assert runner.run(nested) == [True, False]


def test_a_scope_can_be_cancelled_before_it_is_entered(runner: Runner) -> None:
    parts = runner.parts

    async def enter() -> list[bool]:
        scope, unused = parts.scope(), parts.scope()
        scope.cancel()
        unused.cancel()
        with scope:
            await parts.event().wait()
        with unused:
            pass
        await parts.sleep(0.001)
        return [scope.cancelled_caught, unused.cancelled_caught]

    assert runner.run(enter) == [True, False]


def test_a_cancelled_task_notices_it_without_waiting(runner: Runner) -> None:
    parts = runner.parts

    async def enter() -> bool:
        await parts.checkpoint_if_cancelled()
        with parts.scope() as scope:
            scope.cancel()
            with parts.scope(shield=True):
                await parts.checkpoint_if_cancelled()
            await parts.checkpoint_if_cancelled()
            raise AssertionError("it is cancelled")
        return scope.cancelled_caught

    assert runner.run(enter) is True


def test_the_failure_of_a_task_cancels_the_others_of_its_nursery(runner: Runner) -> None:
    waiting = Waiting(runner.parts)

    async def fails() -> None:
        raise ValueError("a fault")

    async def both() -> None:
        async with runner.parts.open_nursery() as nursery:
            nursery.start_soon(waiting)
            nursery.start_soon(fails)
            await runner.parts.event().wait()

    with pytest.raises(BaseExceptionGroup) as caught:
        runner.run(both)
    assert [str(error) for error in caught.value.exceptions] == ["a fault"]
    assert waiting.steps == ["begun", "ended"]


def test_a_task_can_end_its_nursery_and_one_that_starts_then_runs_up_to_its_first_wait(runner: Runner) -> None:
    """What it was started with, it closes."""
    first, second = Waiting(runner.parts), Waiting(runner.parts)

    async def end(nursery: Any) -> None:
        nursery.cancel_scope.cancel()
        nursery.start_soon(second)

    async def all_of_them() -> str:
        async with runner.parts.open_nursery() as nursery:
            nursery.start_soon(first)
            nursery.start_soon(end, nursery)
            await runner.parts.event().wait()
        return "after it"

    assert runner.run(all_of_them) == "after it"
    assert first.steps == second.steps == ["begun", "ended"]


def test_a_task_that_starts_while_its_nursery_ends_is_cancelled(runner: Runner) -> None:
    waiting = Waiting(runner.parts)

    async def start_late(nursery: Any) -> None:
        try:
            await runner.parts.event().wait()
        finally:
            nursery.start_soon(waiting)

    async def all_of_them() -> str:
        async with runner.parts.open_nursery() as nursery:
            nursery.start_soon(start_late, nursery)
            await runner.parts.sleep(0.001)
            nursery.cancel_scope.cancel()
        return "after it"

    assert runner.run(all_of_them) == "after it"
    assert waiting.steps == ["begun", "ended"]


def test_tasks_run_up_to_their_first_wait_when_the_block_fails(runner: Runner) -> None:
    waiting = Waiting(runner.parts)

    async def fail() -> None:
        async with runner.parts.open_nursery() as nursery:
            nursery.start_soon(waiting)
            raise ValueError("a fault")

    with pytest.raises(BaseExceptionGroup) as caught:
        runner.run(fail)
    assert [str(error) for error in caught.value.exceptions] == ["a fault"]
    assert waiting.steps == ["begun", "ended"]


def test_tasks_take_turns_in_a_locked_block(runner: Runner) -> None:
    order: list[str] = []

    async def hold(lock: Any, name: str) -> None:
        async with lock:
            order.append(f"{name} in")
            await runner.parts.sleep(0.001)
            order.append(f"{name} out")

    async def all_of_them() -> None:
        lock = runner.parts.lock()
        async with runner.parts.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(hold, lock, name)

    runner.run(all_of_them)
    assert sorted(order[::2]) == ["a in", "b in", "c in"]
    assert [each.partition(" ")[0] for each in order[::2]] == [each.partition(" ")[0] for each in order[1::2]]
