"""Clients live on when a broker is reset, copied or forked: no producer id is given to two of them."""

from __future__ import annotations

import uuid
from pathlib import Path

from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import MEMORY, EmbeddedBroker, open_broker

from tests.support.logs import START_MS

ORDERS = TopicPartition("orders", 0)


async def new_ids(broker: EmbeddedBroker) -> list[int]:
    """Of two idempotent producers and one with a transactional id that nobody had."""
    names = (None, None, uuid.uuid4().hex)
    return [(await broker.core.producers.init(name, 60_000))[0] for name in names]


async def append(broker: EmbeddedBroker, producer_id: int, text: bytes, sequence: int = 0) -> None:
    batch = build_batch([(START_MS, None, text, ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    await broker.core.writer.append(ORDERS, batch)


async def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return await broker.log("orders").values()


async def test_a_producer_that_lives_through_a_reset_shares_its_id_with_no_new_one() -> None:
    """Its next record and the first one of a new producer would be the same batch to the log."""
    async with open_broker(MEMORY, topics=["orders"]) as broker:
        before = await new_ids(broker)
        await append(broker, before[0], b"before")
        for _ in range(2):
            await broker.reset()
            await append(broker, before[0], b"lives on")
            after = await new_ids(broker)
            assert len({*before, *after}) == len(before) + len(after)
            await append(broker, after[0], b"new")
            assert await values(broker) == [b"lives on", b"new"]
            before += after


async def test_a_copy_and_a_fork_give_out_ids_of_their_own(tmp_path: Path) -> None:
    seen: list[int] = []
    async with open_broker(MEMORY, topics=["orders"]) as broker:
        await broker.snapshot(tmp_path / "early")
        seen += await new_ids(broker)
        await broker.snapshot(tmp_path / "late")
        seen += await new_ids(broker)
        async with broker.fork() as fork, fork.fork() as deeper:
            seen += [*await new_ids(fork), *await new_ids(deeper)]
    for name in ("early", "late"):
        async with open_broker(tmp_path / name) as copy:
            seen += await new_ids(copy)
    assert len(set(seen)) == len(seen)
