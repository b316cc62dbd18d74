"""What has a timeout is told when it is over, and only then; so are produces of both protocols that a device holds up."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode
from triolog.protocol.native import messages
from triolog.server.fake.clock import MovedClock
from triolog.server.listeners.connections.deadlines import CHECK_S, Deadlines

from tests.support.attackers import BothListeners, both_listeners
from tests.support.brokers import until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_server import TOPIC, batch, produce_request


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


LONG_MS = 600_000


@asynccontextmanager
async def held_up(path: Path) -> AsyncIterator[BothListeners]:
    """A server whose device takes nothing within the block."""
    fs = GateFileSystem()
    async with both_listeners(path, fs=fs) as server:
        with fs.hold("write", ".log"):
            yield server


def native_produce(timeout_ms: int) -> messages.ProduceRequest:
    return messages.ProduceRequest((messages.ProducePartition(TOPIC, 0, batch("x")),), timeout_ms=timeout_ms)


async def test_a_native_produce_is_answered_when_its_timeout_is_over(tmp_path: Path) -> None:
    async with held_up(tmp_path) as server, server.native_client() as client:
        with trio.fail_after(30):
            answer = await client.call(native_produce(1))
        assert answer.partitions[0].error.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("protocol", ["kafka", "native"])
async def test_what_has_a_timeout_is_forgotten_with_its_connection(tmp_path: Path, protocol: str) -> None:
    async with held_up(tmp_path) as server:
        listener = server.kafka.listener if protocol == "kafka" else server.native
        deadlines = listener._reactor.deadlines
        if protocol == "kafka":
            async with server.kafka_client() as client:
                await client.send(produce_request(batch("x"), timeout_ms=LONG_MS), 9)
                await until(lambda: len(deadlines) == 1)
                await client.reset()
        else:
            async with server.native_client() as native:
                await native.send(native_produce(LONG_MS))
                await until(lambda: len(deadlines) == 1)
        listener.stop(0)
        await until(lambda: listener.connections == 0)
        assert len(deadlines) == 0
