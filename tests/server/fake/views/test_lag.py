"""Lag counts records that a group has yet to read: markers, aborted records and empty offsets are not among them."""

from __future__ import annotations

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY, EmbeddedBroker, open_broker

T, G = "topic", "group"
FIRST, SECOND = TopicPartition(T, 0), TopicPartition(T, 1)


async def transact(broker: EmbeddedBroker, name: str, batches: int, *, commits: bool) -> None:
    transaction = broker.transaction(name)
    await transaction.begin()
    for number in range(batches):
        await transaction.append(T, [(None, b"%d" % number, b"v", ())] * 3)
    await (transaction.commit() if commits else transaction.abort())


@pytest.mark.parametrize("commits", [True, False])
async def test_a_marker_at_the_end_is_not_waited_for(commits: bool) -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await broker.append(T, [b"a", b"b"])
        await transact(broker, "till", 2, commits=commits)
        records = await broker.log(T).records()
        assert len(records) == (8 if commits else 2)
        await broker.groups.commit(G, {FIRST: 1})
        assert await broker.groups.lag(G, T) == len(records) - 1
        with pytest.raises(TimeoutError, match=rf"behind in topic by {{0: {len(records) - 1}}}"):
            await broker.groups.wait_no_lag(G, T, timeout_s=0.02)
        await broker.groups.commit(G, {FIRST: records[-1].offset + 1})
        await broker.groups.wait_no_lag(G, T, timeout_s=0.02)
        assert await broker.groups.lag(G) == await broker.groups.lag(G, T) == 0


async def test_a_topic_of_aborted_records_alone_has_no_lag() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await transact(broker, "till", 3, commits=False)
        await broker.groups.wait_no_lag(G, T, timeout_s=0.02)
        assert await broker.groups.lag(G, T) == 0


async def test_holes_of_compaction_and_deleted_records_have_no_lag() -> None:
    config = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}
    async with open_broker(MEMORY, native=None) as broker:
        await broker.create_topic(T, config=config)
        await broker.append(T, [(None, b"%d" % (number % 2), b"v", ()) for number in range(10)])
        await broker.groups.commit(G, {FIRST: 0})
        assert await broker.groups.lag(G, T) == 10
        await broker.log(T).compact()
        assert await broker.groups.lag(G, T) == len(await broker.log(T).records()) == 2
        await broker.delete_records(T)
        assert await broker.groups.lag(G, T) == 0


async def test_an_open_transaction_has_no_lag_and_records_after_it_have() -> None:
    async with open_broker(MEMORY, native=None, topics=[T]) as broker:
        await broker.append(T, [b"a"])
        await broker.groups.commit(G, {FIRST: 1})
        transaction = broker.transaction("till")
        await transaction.begin()
        await transaction.append(T, [b"pending"])
        assert await broker.groups.lag(G, T) == 0
        await broker.append(T, [b"plain"])
        assert await broker.groups.lag(G, T) == 1
        await transaction.commit()
        assert await broker.groups.lag(G, T) == 2


async def test_a_partition_without_a_commit_counts_as_in_the_waits() -> None:
    async with open_broker(MEMORY, native=None, topics={T: 2}) as broker:
        await broker.append(T, [b"a", b"b", b"c"], partition=1)
        await broker.groups.commit(G, {FIRST: 0})
        assert await broker.groups.lag(G) == await broker.groups.lag(G, T) == 3
        await broker.groups.commit(G, {SECOND: 2})
        assert await broker.groups.lag(G) == 1
