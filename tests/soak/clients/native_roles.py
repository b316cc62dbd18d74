"""What both native clients do: an idempotent feeder, transactions, a reader that keeps a group's offsets.

It is written for the client of trio programs. An `api` opens its producers and consumers, and has what the blocking client does
in other words (`TrioApi`, `BlockingApi`); the blocking one never waits for an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from triolog.protocol.errors import TriologError
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.consumer import AtOffset

from .worker import MOST_PENDING, PATIENCE_S, POLL_S, TRANSACTION_MS, Partition, Record, Work, id_of

PATIENCE_MS: Final = int(PATIENCE_S * 1000)
PRODUCING: Final = {"delivery_timeout_ms": PATIENCE_MS, "request_timeout_ms": 8000, "max_block_ms": PATIENCE_MS, "linger_ms": 5}
COMMIT_EVERY_S: Final = 1.0
SETTLE_S: Final = 0.02

Pending = list[tuple[Partition, str, Any]]


def config_of(work: Work) -> ClientConfig:
    return ClientConfig(client_id=work.notes.who, connect_timeout_ms=3000, request_timeout_ms=8000)


async def feed(work: Work, api: Any) -> None:
    """Until nothing more is to be sent, with another producer when one is of no use any more."""
    while not work.orders.is_quiet:
        pending: Pending = []
        try:
            async with api.open_producer(**PRODUCING) as producer:
                await _feed(work, api, producer, pending)
        except* TriologError as exc:
            work.notes.write("loses its producer", error=repr(exc))
        _settle(work, pending)


async def _feed(work: Work, api: Any, producer: Any, pending: Pending) -> None:
    name = work.producer_name()
    while not work.orders.is_quiet:
        where, records = work.to_feed()
        work.notes.sends(where, name, [each.noted for each in records])
        for each in records:
            pending.append((where, each.id, await _send(producer, where, each)))
        until = time.monotonic() + work.pause_after(len(records))
        while not work.orders.is_quiet and (time.monotonic() < until or len(pending) > MOST_PENDING):
            await api.poll(producer)
            _settle(work, pending)
            await api.pause(SETTLE_S)


async def _send(producer: Any, where: Partition, record: Record) -> Any:
    topic, number = where
    key = record.key.encode() or None
    return await producer.send(topic, record.value, key=key, partition=number, timestamp_ms=record.timestamp)


def _settle(work: Work, pending: Pending) -> None:
    """Note what is done, and forget it."""
    for where, identity, future in [each for each in pending if each[2].is_done]:
        try:
            offset = future.value().offset
        except TriologError as exc:
            work.notes.given_up([identity], repr(exc))
        else:
            work.notes.acknowledged(where, [identity], offset)
    pending[:] = [each for each in pending if not each[2].is_done]


async def move(work: Work, api: Any) -> None:
    """Transactions, one after the other, with another producer when one is of no use any more."""
    transactional_id = str(work.role["transactional_id"])
    options = {**PRODUCING, "transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_MS}
    while not work.orders.is_quiet:
        name = work.producer_name()
        work.notes.introduces(transactional_id, name)
        try:
            async with api.open_producer(**options) as producer:
                work.notes.introduced(transactional_id, name)
                while not work.orders.is_quiet and await _transact(work, api, producer, name):
                    pass
        except* TriologError as exc:
            work.notes.write("loses its producer", error=repr(exc))
            await api.pause(POLL_S)


async def _transact(work: Work, api: Any, producer: Any, name: str) -> bool:
    """Whether its outcome is known."""
    transaction = work.transaction_name()
    handle = producer.transaction()
    await handle.begin()
    sent: Pending = []
    outcome: bool | None = None
    is_committed = work.rng.random() < 0.75
    try:
        for where, records in work.to_move():
            work.notes.sends(where, name, [each.noted for each in records], transaction)
            for each in records:
                sent.append((where, each.id, await _send(producer, where, each)))
        if not is_committed:
            await producer.flush()
        work.notes.ends(transaction, commit=is_committed)
        await (handle.commit() if is_committed else handle.abort())
        outcome = is_committed
    except TriologError:
        try:
            await handle.abort()
            outcome = False
        except TriologError:
            outcome = None
    count = len(sent)
    _settle(work, sent)
    work.notes.ended(transaction, outcome)
    await api.pause(work.pause_after(count, 0.5))
    return outcome is not None


async def read(work: Work, api: Any) -> None:
    """All partitions of some topics, from where its group is; commits as it goes. With another consumer when one gives up."""
    while not work.orders.is_over:
        try:
            await _read(work, api)
        except* TriologError as exc:
            work.notes.write("loses its consumer", error=repr(exc))
            await api.pause(POLL_S)


async def _read(work: Work, api: Any) -> None:
    committed, group = bool(work.role["committed"]), str(work.role["group"])
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    options = {"isolation": isolation, "group": group, "offset_reset": "earliest", "retry_timeout_ms": PATIENCE_MS}
    async with api.open_consumer(**options, max_wait_ms=250) as consumer:
        await _insist(lambda: consumer.assign(list(work.role["topics"])), work, api)
        await _go_to_committed(work, api, consumer, group)
        commit_at = time.monotonic() + COMMIT_EVERY_S
        dirty: dict[TopicPartition, int] = {}
        while not work.orders.is_over:
            if (batch := await api.next_batch(consumer)) is not None:
                where = (batch.partition.topic, batch.partition.partition)
                records = [(each.offset, id_of(each.value), each.timestamp) for each in batch.records()]
                work.notes.polled(where, records, committed=committed, group=group, next_position=batch.next_offset)
                dirty[batch.partition] = batch.next_offset
            if dirty and time.monotonic() > commit_at:
                await _commit(work, consumer, group, dirty)
                dirty, commit_at = {}, time.monotonic() + COMMIT_EVERY_S
        if dirty:
            await _commit(work, consumer, group, dirty)


async def _commit(work: Work, consumer: Any, group: str, offsets: dict[TopicPartition, int]) -> None:
    work.notes.commits(group, {(where.topic, where.partition): offset for where, offset in offsets.items()})
    is_kept: bool | None = True
    try:
        await consumer.commit(offsets)
    except TriologError:
        is_kept = None
    for where, offset in offsets.items():
        work.notes.offset_committed(group, (where.topic, where.partition), offset, is_kept)


async def _go_to_committed(work: Work, api: Any, consumer: Any, group: str) -> None:
    begun = time.monotonic_ns()
    known = await _insist(lambda: consumer.committed(), work, api)
    for each in consumer.assignment:
        where, kept = (each.topic, each.partition), known.get(each)
        work.notes.offset_fetched(group, where, -1 if kept is None else kept.offset, begun)
        work.notes.moved(where, None if kept is None else kept.offset)
        if kept is not None:
            place = AtOffset(kept.offset)
            await _insist(lambda each=each, place=place: consumer.seek(each, place), work, api)


async def _insist(call: Callable[[], Awaitable[Any]], work: Work, api: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await call()
        except TriologError:
            if time.monotonic() > deadline or work.orders.is_over:
                raise
            await api.pause(POLL_S)


ROLES: Final = {"feed": feed, "move": move, "read": read}
