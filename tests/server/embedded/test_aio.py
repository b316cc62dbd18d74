"""What is particular to asyncio: the loop is never blocked, tasks cancel their calls, and nothing is left behind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.control.clock import MovedClock
from triolog.server.control.views.groups_view import GroupsView
from triolog.server.control.views.log_view import LogView
from triolog.server.embedded import MEMORY, EmbeddedBroker, open_broker
from triolog.server.embedded.aio import AioBroker, AioGroups, AioLog, AioTransaction
from triolog.server.embedded.aio import open_broker as open_aio
from triolog.server.embedded.transaction import Transaction

from tests.server.embedded.programs import is_clean
from tests.support import leaks
from tests.support.brokers import PATIENCE_S
from tests.support.counts import FULL, mode

T = "topic"
HOUR_MS = 3_600_000
FIRST = TopicPartition(T, 0)


def in_asyncio(case: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await case()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    asyncio.run(main())


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():
        await asyncio.sleep(0)


def waiters_of(broker: AioBroker) -> Callable[[], Awaitable[bool]]:
    """Whether somebody waits for a record."""

    async def look() -> bool:
        actor = broker._target.core._manager.topics.actor(FIRST)
        return await broker.call_now(lambda: len(actor.waiters) > 0)

    return look


def test_a_cancelled_task_cancels_its_call_in_the_broker() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            task = asyncio.create_task(broker.fetch(T, max_wait_s=3600))
            await until(waiters_of(broker))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not await waiters_of(broker)()

    in_asyncio(case)


def test_a_call_that_takes_too_long_is_cancelled_too() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(broker.fetch(T, max_wait_s=3600), 0.001)
            assert not await waiters_of(broker)()

    in_asyncio(case)


def test_an_append_that_is_cancelled_before_it_is_handed_over_has_not_happened() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            task = asyncio.create_task(broker.append(T, [b"never"]))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await broker.append(T, [b"first"])).base_offset == 0

    in_asyncio(case)


def test_an_append_that_is_cancelled_while_the_device_syncs_is_there_all_the_same() -> None:
    """It was enqueued: the outcome is unknown to its task."""

    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T], durability="fsync") as broker:
            faults = broker._target.faults
            fault = await broker.call_now(lambda: faults.disk("delay", operation="sync", path="*.log", delay_ms=HOUR_MS))
            task = asyncio.create_task(broker.append(T, [b"a"]))
            await broker.call(lambda: fault.wait_fired(timeout_s=PATIENCE_S))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await broker.call_now(fault.release)
            assert [each.value for each in await broker.fetch(T, max_wait_s=PATIENCE_S)] == [b"a"]

    in_asyncio(case)


def test_the_loop_goes_on_while_a_call_waits() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T, "other"], durability="fsync") as broker:
            faults = broker._target.faults
            rule = {"operation": "sync", "path": f"*{T}-0/*.log", "delay_ms": HOUR_MS}
            fault = await broker.call_now(lambda: faults.disk("delay", **rule))
            held = asyncio.create_task(broker.append(T, [b"a"]))
            await broker.call(lambda: fault.wait_fired(timeout_s=PATIENCE_S))
            await asyncio.sleep(0)
            assert [each.base_offset for each in [await broker.append("other", [b"b"]) for _ in range(3)]] == [0, 1, 2]
            assert not held.done()
            await broker.call_now(fault.release)
            assert (await held).base_offset == 0

    in_asyncio(case)


def test_tasks_that_append_to_one_partition_share_its_offsets() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            results = await asyncio.gather(*(broker.append(T, [b"%d" % number]) for number in range(200)))
            assert sorted(each.base_offset for each in results) == list(range(200))

    in_asyncio(case)


def test_a_cancelled_follow_loses_nothing() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            follow = broker.follow(T)
            for number in range(3):
                task = asyncio.ensure_future(anext(follow))
                await until(waiters_of(broker))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await broker.append(T, [b"%d" % number])
                assert (await anext(follow)).value == b"%d" % number

    in_asyncio(case)


def test_a_follow_reads_when_it_is_asked_and_not_ahead() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            for _ in range(10):
                await broker.append(T, [bytes(1000)])
            log = broker._target.core.logs
            follow = broker.follow(T, max_bytes=1)
            seen = []
            for _ in range(3):
                await anext(follow)
                seen.append(await broker.call_now(lambda: log.statistics(FIRST).fetched_bytes))
            assert seen == [seen[0], 2 * seen[0], 3 * seen[0]]

    in_asyncio(case)


def test_a_call_that_the_stop_overtakes_says_so() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None, topics=[T]) as broker:
            task = asyncio.create_task(broker.fetch(T, max_wait_s=3600))
            await until(waiters_of(broker))
        with pytest.raises(RuntimeError, match="the broker was stopped during the call"):
            await task
        with pytest.raises(RuntimeError, match="the broker does not run"):
            await broker.topics()
        with pytest.raises(RuntimeError, match="started already"):
            await broker.__aenter__()

    in_asyncio(case)


def test_another_loop_is_told_that_the_broker_is_not_its_own() -> None:
    async def case() -> None:
        async with open_aio(MEMORY, native=None) as broker:

            def elsewhere() -> None:
                with pytest.raises(RuntimeError, match="opened by another event loop"):
                    asyncio.run(broker.topics())

            await asyncio.to_thread(elsewhere)

    in_asyncio(case)


def test_a_block_that_is_cancelled_is_a_clean_stop(tmp_path: Path) -> None:
    async def case() -> None:
        inside = asyncio.Event()

        async def program() -> None:
            async with open_aio(tmp_path, native=None, topics=[T]) as broker:
                await broker.append(T, [b"kept"])
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(program())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_clean(tmp_path)

    in_asyncio(case)


def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async def case() -> None:
        task = asyncio.ensure_future(open_aio(tmp_path, native=None).__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with open_aio(tmp_path, native=None):
            pass

    in_asyncio(case)


def test_a_stop_that_is_cancelled_goes_to_its_end(tmp_path: Path) -> None:
    async def case() -> None:
        broker = await open_aio(tmp_path, native=None).__aenter__()
        task = asyncio.create_task(broker.__aexit__(None, None, None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_clean(tmp_path)

    in_asyncio(case)


def test_the_clock_is_the_callers() -> None:
    async def case() -> None:
        clock = MovedClock(lambda: 1000)
        async with open_aio(MEMORY, native=None, clock=clock, topics=[T]) as broker:
            await broker.append(T, [b"a"])
            assert [each.timestamp for each in await broker.fetch(T)] == [1000]

    in_asyncio(case)


def test_brokers_that_were_closed_leave_no_thread_no_descriptor_and_no_task() -> None:
    count = 100 if mode() == FULL else 10

    async def case() -> None:
        before = leaks.snapshot()
        for _ in range(count):
            async with open_aio(MEMORY, topics=[T]) as broker:
                await broker.append(T, [b"a"])
                waits = asyncio.create_task(broker.fetch(T, 1, max_wait_s=3600))
                assert (await anext(broker.follow(T))).value == b"a"
                waits.cancel()
                await asyncio.wait([waits])
        assert leaks.leaks_since(before) == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def main() -> None:
        await case()

    asyncio.run(main())


# ---- the faces alike ---------------------------------------------------------------------------------------------------------

PAIRS = (
    (EmbeddedBroker, AioBroker, {"forked_into", "stop", "node_down", "node_up", "move_leader", "move_coordinator"}),
    (LogView, AioLog, set[str]()),
    (GroupsView, AioGroups, {"rebalance", "freeze"}),
    (Transaction, AioTransaction, set[str]()),
)
"""A class of the trio thread, the one that stands for it, and what only the first one has."""


def methods_of(owner: type) -> Iterator[tuple[str, Any]]:
    return ((name, each) for name, each in vars(owner).items() if inspect.isfunction(each) and not name.startswith("_"))


@pytest.mark.parametrize(("target", "proxy", "inner"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_stands_for_a_class_has_its_methods_with_the_same_parameters_and_words(
    target: type, proxy: type, inner: set[str]
) -> None:
    names = {name for name, _ in methods_of(target)} - inner
    assert names
    for name, method in methods_of(target):
        if name in names:
            called = getattr(proxy, name)
            assert list(inspect.signature(called).parameters) == list(inspect.signature(method).parameters), name
            assert inspect.getdoc(called), name


def test_it_is_opened_with_the_same_arguments() -> None:
    assert inspect.signature(open_aio) == inspect.signature(open_broker)
