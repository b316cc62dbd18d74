"""`fetch` of an embedded broker reads on until there is a record, or the end of what may be read."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY, EmbeddedBroker, open_broker

from tests.support.brokers import PATIENCE_S

T = "topic"


async def read_all(broker: EmbeddedBroker, **options: Any) -> list[int]:
    """Offsets, as a program reads that fetches from one after the last record."""
    found: list[int] = []
    while records := await broker.fetch(T, found[-1] + 1 if found else 0, **options):
        found += [record.offset for record in records]
    return found


async def append_in_transaction(broker: EmbeddedBroker, name: str, count: int, *, aborts: bool = False) -> None:
    transaction = broker.transaction(name)
    await transaction.begin()
    await transaction.append(T, [b"x" * 40] * count)
    await (transaction.abort() if aborts else transaction.commit())


@pytest.mark.parametrize("committed_only", [True, False])
async def test_a_page_of_markers_does_not_end_the_partition(committed_only: bool) -> None:
    async with open_broker(MEMORY, native=None) as broker:
        await broker.create_topic(T, config={"segment.bytes": "300"})
        for _ in range(6):
            await append_in_transaction(broker, "till", 3)
        want = [record.offset for record in await broker.log(T).records()]
        assert len(want) == 18
        assert await read_all(broker, committed_only=committed_only) == want
        for offset in range(want[-1]):
            assert await broker.fetch(T, offset, committed_only=committed_only)
        assert await broker.fetch(T, want[-1] + 1, committed_only=committed_only) == []


async def test_a_page_of_headers_that_compaction_left_does_not_end_the_partition() -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01"}
    async with open_broker(MEMORY, native=None) as broker:
        await broker.create_topic(T, config=config)
        for _ in range(4):  # an idempotent producer's last batch stays as a header
            transaction = broker.transaction("till")
            await transaction.begin()
            await transaction.append(T, [(None, b"a", b"v" * 100, ())])
            await transaction.commit()
        for number in range(9):
            await broker.append(T, [(None, b"abc"[number % 3 : number % 3 + 1], b"w" * 150, ())])
        await broker.log(T).compact()
        want = [record.offset for record in await broker.log(T).records()]
        assert want
        assert await read_all(broker) == want


async def test_records_of_aborted_and_open_transactions_come_only_when_requested() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await append_in_transaction(broker, "aborted", 2, aborts=True)
        await broker.append(T, [b"plain"])
        still_open = broker.transaction("open")
        await still_open.begin()
        await still_open.append(T, [b"pending"])
        assert await read_all(broker) == [3]
        assert await read_all(broker, committed_only=False) == [0, 1, 3, 4]
        times = {"start_timestamp": 0}
        assert [each.offset for each in await broker.fetch(T, **times)] == [3]
        assert [each.offset for each in await broker.fetch(T, **times, committed_only=False)] == [0, 1, 3, 4]
        await still_open.commit()
        assert await read_all(broker) == [3, 4]


async def test_a_marker_does_not_end_the_wait_for_a_record() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        found: list[Any] = []

        async def wait() -> None:
            found.extend(await broker.fetch(T, max_wait_s=PATIENCE_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await append_in_transaction(broker, "till", 1, aborts=True)
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            await broker.append(T, [b"plain"])
        assert [record.value for record in found] == [b"plain"]
        assert await broker.log(T).records() == found
        assert broker.core.reader.snapshot(TopicPartition(T, 0)).high_watermark == 3
