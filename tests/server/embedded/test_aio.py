"""What is particular to asyncio: the loop is never blocked, a stop ends calls, and nothing is left behind. A broker in the
lifespan of a FastAPI application, driven by the framework's own client. A broker in fixtures and tests of pytest-asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import triolog
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY
from triolog.server.embedded.aio import open as open_aio

from tests.server.embedded.drivers import inside, on_every_face, turn, until_waited_for
from tests.server.embedded.programs import is_clean
from tests.support import leaks
from tests.support.brokers import PATIENCE_S
from tests.support.counts import counts

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

T = "topic"
HOUR_S = 3600
in_asyncio = partial(on_every_face, faces=("asyncio",))


@in_asyncio(MEMORY, topics=[T])
async def test_a_call_that_takes_too_long_is_cancelled_too(broker: Any) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(broker.fetch(T, max_wait_s=HOUR_S), 0.001)
    await until_waited_for(broker, T, count=0)


@in_asyncio(MEMORY, topics=[T, "other"], durability="fsync")
async def test_the_loop_goes_on_while_a_call_waits(broker: Any) -> None:
    rule = {"operation": "sync", "path": f"*{T}-0/*.log", "delay_ms": HOUR_S * 1000}
    fault = await inside(broker, lambda own: own.faults.disk("delay", **rule))
    held = asyncio.create_task(broker.append(T, [b"a"]))
    await inside(broker, lambda own: fault.wait_fired(timeout_s=PATIENCE_S))
    await turn()
    assert [each.base_offset for each in [await broker.append("other", [b"b"]) for _ in range(3)]] == [0, 1, 2]
    assert not held.done()
    await inside(broker, lambda own: fault.release())
    assert (await held).base_offset == 0


@in_asyncio(MEMORY, topics=[T])
async def test_tasks_that_append_to_one_partition_share_its_offsets(broker: Any) -> None:
    results = await asyncio.gather(*(broker.append(T, [b"%d" % number]) for number in range(200)))
    assert sorted(each.base_offset for each in results) == list(range(200))


@in_asyncio(MEMORY, topics=[T])
async def test_a_follow_reads_when_it_is_asked_and_not_ahead(broker: Any) -> None:
    for _ in range(10):
        await broker.append(T, [bytes(1000)])
    follow = broker.follow(T, max_bytes=1)
    seen = []
    for _ in range(3):
        await anext(follow)
        seen.append(await inside(broker, lambda own: own.core.logs.statistics(TopicPartition(T, 0)).fetched_bytes))
    assert seen == [seen[0], 2 * seen[0], 3 * seen[0]]


@in_asyncio()
async def test_a_call_that_the_stop_overtakes_says_so(opened: Any) -> None:
    async with opened(MEMORY, topics=[T]) as broker:
        task = asyncio.create_task(broker.fetch(T, max_wait_s=HOUR_S))
        await until_waited_for(broker, T)
    with pytest.raises(RuntimeError, match="the broker was stopped during the call"):
        await task
    with pytest.raises(RuntimeError, match="the broker is not running"):
        await broker.topics()
    with pytest.raises(RuntimeError, match="already started"):
        await broker.__aenter__()


@in_asyncio(MEMORY)
async def test_another_loop_is_told_that_the_broker_is_not_its_own(broker: Any) -> None:
    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="opened by another event loop"):
            asyncio.run(broker.topics())

    await asyncio.to_thread(elsewhere)


def test_a_stop_that_is_cancelled_goes_to_its_end(tmp_path: Path) -> None:
    async def case() -> None:
        broker = await open_aio(tmp_path, native=None).__aenter__()
        task = asyncio.create_task(broker.__aexit__(None, None, None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_clean(tmp_path)

    asyncio.run(case())


def test_brokers_that_were_closed_leave_no_thread_no_descriptor_and_no_task() -> None:
    async def case() -> None:
        before = leaks.snapshot()
        for _ in range(counts(100)):
            async with open_aio(MEMORY, topics=[T]) as broker:
                await broker.append(T, [b"a"])
                waits = asyncio.create_task(broker.fetch(T, 1, max_wait_s=HOUR_S))
                assert (await anext(broker.follow(T))).value == b"a"
                waits.cancel()
                await asyncio.wait([waits])
        assert leaks.leaks_since(before) == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(case())


@pytest.fixture
def driven() -> Callable[[Path], TestClient]:
    """FastAPI is loaded by those who need it."""
    from fastapi.testclient import TestClient

    from tests.server.embedded.fastapi_application import application

    return lambda path: TestClient(application(path))


def test_an_application_appends_reads_and_copies_in_its_routes_and_tasks(
    tmp_path: Path, driven: Callable[[Path], TestClient]
) -> None:
    with driven(tmp_path) as client:
        assert client.post("/readings/cellar?value=21.5").json() == {"offset": 0}
        assert client.post("/readings/cellar?value=35").json() == {"offset": 1}
        assert client.get("/readings").json() == ["21.5", "35"]
        assert client.get("/alarms/1").json() == ["35"]
        refused = client.get("/readings?topic=gone")
        assert (refused.status_code, "gone" in refused.json()["detail"]) == (404, True)
    assert is_clean(tmp_path)


def test_it_goes_on_where_it_was_when_it_is_started_again(tmp_path: Path, driven: Callable[[Path], TestClient]) -> None:
    for value in (31, 32):
        with driven(tmp_path) as client:
            client.post(f"/readings/cellar?value={value}")
            assert client.get(f"/alarms/{value - 30}").json() == ["31", "32"][: value - 30]
    with triolog.blocking.open(tmp_path) as broker:
        assert len(list(broker.follow("alarms", max_wait_s=0))) == 2
        assert set(broker.groups.committed("alarms")) == {TopicPartition("readings", each) for each in (0, 1)}


pytest_plugins = ["pytester"]

TESTS = """
import pytest_asyncio
import triolog

@pytest_asyncio.fixture
async def broker():
    async with triolog.aio.open(":memory:", topics={"orders": 2}) as broker:
        yield broker

async def test_an_order_is_followed(broker):
    await broker.append("orders", [b"one espresso"], key=b"table 4")
    async for order in broker.follow("orders", group="baristas"):
        assert order.key == b"table 4"
        await order.commit()
        break
    assert await broker.groups.lag("baristas") == 0

async def test_nothing_of_it_is_in_the_next_test(broker):
    assert await broker.groups.committed("baristas") == {}
"""


@pytest.mark.merge
def test_fixtures_and_tests_share_their_loop_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    without = [argument for name in ("trio", "anyio", "randomly", "xdist", "timeout") for argument in ("-p", f"no:{name}")]
    options = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
    found = pytester.runpytest_subprocess("-W", "error", *without, *options)
    found.assert_outcomes(passed=2)
