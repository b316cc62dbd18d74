"""A procedure gets the results of what it yields, whoever runs it."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from triolog.server.loop.procedures import ELEMENTS_PER_TURN, PAUSE, Procedure, Reply, mapped, perform


async def half(number: int) -> int:
    await trio.lowlevel.checkpoint()
    if number % 2:
        raise ValueError(number)
    return number // 2


def halves(*numbers: int) -> Procedure[list[int | str]]:
    found: list[int | str] = []
    for number in numbers:
        try:
            found.append((yield partial(half, number)))
        except ValueError as exc:
            found.append(f"not {exc}")
    return found


async def test_results_are_sent_into_a_procedure_and_errors_thrown_into_it() -> None:
    assert await perform(halves(4, 3, 2)) == [2, "not 3", 1]
    assert await perform(halves()) == []


async def test_a_task_continues_what_was_begun_elsewhere() -> None:
    begun = halves(4, 3)
    wait = next(begun)
    assert await perform(begun, wait) == [2, "not 3"]


async def test_an_exception_of_a_procedure_is_raised() -> None:
    def fails() -> Procedure[None]:
        yield PAUSE
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        await perform(fails())


async def test_a_cancelled_procedure_is_closed_where_it_waits() -> None:
    closed = []

    def waits() -> Procedure[None]:
        try:
            yield trio.sleep_forever
        finally:
            closed.append(True)

    with trio.move_on_after(0):
        await perform(waits())
    assert closed == [True]


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_reply_is_awaited_or_calls_back(is_known: bool) -> None:
    def asks(reply: Reply) -> Procedure[str]:
        return f"it was {(yield reply)}"

    awaited, called = Reply(), Reply()
    found: list[int] = []
    if is_known:
        awaited.put(7)
        assert await perform(asks(awaited)) == "it was 7"
        return
    called.then = found.append
    async with trio.open_nursery() as nursery:
        nursery.start_soon(perform, asks(awaited))
        await trio.testing.wait_all_tasks_blocked()
        awaited.put(7)
        called.put(8)
    assert found == [8]


def test_mapped_pauses_after_every_few_elements() -> None:
    results: list[str] = []

    def keeps() -> Procedure[None]:
        results.extend((yield from mapped(str, range(4 * ELEMENTS_PER_TURN))))

    assert list(keeps()) == [PAUSE] * 3
    assert results == [str(number) for number in range(4 * ELEMENTS_PER_TURN)]
    with pytest.raises(StopIteration):
        next(mapped(str, range(ELEMENTS_PER_TURN)))
