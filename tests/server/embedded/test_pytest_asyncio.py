"""A broker in fixtures and tests of pytest-asyncio."""

from __future__ import annotations

import pytest

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


def test_fixtures_and_tests_share_their_loop_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    without = [argument for name in ("trio", "anyio", "randomly", "xdist", "timeout") for argument in ("-p", f"no:{name}")]
    options = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
    found = pytester.runpytest_subprocess("-W", "error", *without, *options)
    found.assert_outcomes(passed=2)
