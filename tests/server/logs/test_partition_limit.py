"""How many partitions clients may create."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import ErrorCode, RequestError

from tests.support.brokers import running_broker


async def test_clients_create_partitions_up_to_a_limit_of_all_topics(fast_path: Path) -> None:
    async with running_broker(fast_path, max_partitions=5) as broker:
        await broker.topics.create("a", 3)
        for refused in (lambda: broker.topics.create("b", 3), lambda: broker.topics.create_partitions("a", 6)):
            with pytest.raises(RequestError, match="would make 6, max_partitions=5 allows no more") as caught:
                await refused()  # type: ignore[no-untyped-call]
            assert caught.value.code is ErrorCode.POLICY_VIOLATION
        await broker.topics.create_partitions("a", 4)
        await broker.topics.create("b", 1)
        await broker.offsets.commit("group", [])
        await broker.topics.delete("a")
        await broker.topics.create("c", 4)


async def test_partitions_that_exist_are_served_whatever_the_limit(fast_path: Path) -> None:
    async with running_broker(fast_path) as broker:
        await broker.topics.create("a", 3)
    async with running_broker(fast_path, max_partitions=1) as broker:
        assert broker.topics.partition_count("a") == 3
        with pytest.raises(RequestError, match="POLICY_VIOLATION"):
            await broker.topics.create("b", 1)
