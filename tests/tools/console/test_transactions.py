from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition

from tests.support.transactions import TransactionalProducer

from .conftest import Shown, shown_broker, told

PLACE = TopicPartition("t", 1)


@pytest.fixture
async def opened() -> AsyncIterator[Shown]:
    """`mover` has a transaction open in t-1, `idle` none, and producer 77000 one that hangs."""
    async with shown_broker(
        config={"retention.ms": "-1"}, topics={"t": 2, "other": 1}, console={"allow_changes": True}
    ) as shown:
        await TransactionalProducer.start(shown.broker.core, "idle")
        await (await TransactionalProducer.start(shown.broker.core, "mover")).produce(PLACE, "v")
        batch = build_batch([(1, None, b"v", ())], producer_id=77_000, producer_epoch=4, base_sequence=0, is_transactional=True)
        await shown.broker.core.writer.append(PLACE, batch)
        await shown.browser.open("/transactions")
        yield shown


async def test_what_is_open_comes_first_and_what_hangs_is_said(opened: Shown) -> None:
    page = await told(opened.browser, "/transactions")
    rows = [(each["transactional_id"], each["state"], each["open_ms"] is not None) for each in page["transactions"]]
    assert rows == [("mover", "Ongoing", True), ("idle", "Empty", False)]
    producers = [(each["topic"], each["partition"], each["is_hanging"]) for each in page["producers"]]
    assert sorted(producers) == [("t", 1, False), ("t", 1, True)]
    assert (page["topic"], {"t", "other"} <= {*page["topics"]}, page["can_change"]) == (None, True, True)
    found = await told(opened.browser, "/transactions/mover")
    assert (found["state"], found["partitions"]) == ("Ongoing", [{"topic": "t", "partition": 1}])
    assert (await opened.browser.get("/api/transactions/nobody")).status == 404


async def test_an_open_transaction_and_one_that_hangs_are_aborted(opened: Shown) -> None:
    done = await opened.browser.post("/api/transactions/abort", {"transactional_id": "mover"})
    assert done.json == {"transactional_id": "mover", "aborted": True}
    assert (await told(opened.browser, "/transactions/mover"))["state"] == "CompleteAbort"
    again = await opened.browser.post("/api/transactions/abort", {"transactional_id": "mover"})
    assert (again.status, again.json["error"]["name"]) == (400, "INVALID_TXN_STATE")
    producers = (await told(opened.browser, "/transactions?topic=t"))["producers"]
    assert [each["transaction_start_offset"] is not None for each in producers] == [True, False]
    assert (await told(opened.browser, "/transactions?topic=other"))["producers"] == []
    assert (await opened.browser.get("/api/transactions?topic=nothing")).status == 404
    done = await opened.browser.post("/api/transactions/abort", {"topic": "t", "partition": 1, "producer_id": 77_000})
    assert (done.status, done.json["start_offset"]) == (200, 1)
    assert (await told(opened.browser, "/transactions"))["producers"] == []


async def test_what_is_to_be_aborted_has_to_be_named(opened: Shown) -> None:
    place = {"topic": "t", "partition": 1, "producer_id": 1}
    for body in (
        *({}, {"transactional_id": 5}, {"topic": "t"}, {"topic": "t", "partition": 1}),
        *(place | {"partition": "1"}, place | {"producer_id": "x"}),
    ):
        assert (await opened.browser.post("/api/transactions/abort", body)).status == 400, body
