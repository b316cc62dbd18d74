"""The native client of trio programs: idempotent feeder, transactions, reader that keeps a group's offsets, lookups by time."""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio
from triolog.protocol.errors import TriologError
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.client.admin import Admin
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import Client
from triolog.tools.client.consumer import AtOffset, Consumer, open_consumer
from triolog.tools.client.greeted_connection import TcpOpener
from triolog.tools.client.producer import Producer, SentRecord, open_producer

from .notes import Notebook, Notes
from .worker import MOST_PENDING, PATIENCE_S, POLL_S, TRANSACTION_MS, Orders, Partition, Record, Task, Work, id_of

PATIENCE_MS: Final = int(PATIENCE_S * 1000)
PRODUCING: Final = {
    "delivery_timeout_ms": PATIENCE_MS,
    "request_timeout_ms": 8000,
    "max_block_ms": PATIENCE_MS,
    "linger_ms": 5,
}
COMMIT_EVERY_S: Final = 1.0


async def feed(work: Work, client: Client) -> None:
    """Until nothing more is to be sent. A record that is given up ends the order of its producer: another one begins."""
    while not work.orders.is_quiet:
        async with trio.open_nursery() as nursery, open_producer(client, **PRODUCING) as producer:
            name, waiting = work.producer_name(), trio.CapacityLimiter(MOST_PENDING)
            is_good = True
            while is_good and not work.orders.is_quiet:
                where, records = work.to_feed()
                work.notes.sends(where, name, [each.noted for each in records])
                for each in records:
                    try:
                        sent = await _send(producer, where, each)
                    except TriologError as exc:
                        work.notes.given_up([each.id], repr(exc))
                        is_good = False
                        break
                    nursery.start_soon(_settle, work, where, each.id, sent, waiting)
                pause_s = work.pause_after(len(records))
                await trio.sleep(pause_s)
                while waiting.borrowed_tokens >= MOST_PENDING and not work.orders.is_quiet:
                    await trio.sleep(POLL_S)


async def _send(producer: Producer, where: Partition, record: Record) -> SentRecord:
    topic, number = where
    key = record.key.encode() or None
    return await producer.send(topic, record.value, key=key, partition=number, timestamp_ms=record.timestamp)


async def _settle(work: Work, where: Partition, identity: str, sent: SentRecord, waiting: trio.CapacityLimiter) -> None:
    async with waiting:
        try:
            metadata = await sent
        except TriologError as exc:
            work.notes.given_up([identity], repr(exc))
        else:
            work.notes.acknowledged(where, [identity], metadata.offset)


async def move(work: Work, client: Client) -> None:
    """Transactions, one after the other, with another producer when one is of no use any more."""
    transactional_id = str(work.role["transactional_id"])
    options = {**PRODUCING, "transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_MS}
    while not work.orders.is_quiet:
        name = work.producer_name()
        work.notes.introduces(transactional_id, name)
        try:
            async with open_producer(client, **options) as producer:
                work.notes.introduced(transactional_id, name)
                while not work.orders.is_quiet and await _transact(work, producer, name):
                    pass
        except* TriologError as exc:
            work.notes.write("loses its producer", error=repr(exc))
            await trio.sleep(POLL_S)


async def _transact(work: Work, producer: Producer, name: str) -> bool:
    """Whether its outcome is known."""
    transaction = work.transaction_name()
    handle = producer.transaction()
    await handle.begin()
    sent: list[tuple[Partition, str, SentRecord]] = []
    outcome: bool | None = None
    is_committed = work.rng.random() < 0.75
    count = 0
    try:
        for where, records in work.to_move():
            work.notes.sends(where, name, [each.noted for each in records], transaction)
            count += len(records)
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
    for where, identity, future in sent:
        _settled(work, where, identity, future)
    work.notes.ended(transaction, outcome)
    await trio.sleep(work.pause_after(count, 0.5))
    return outcome is not None


def _settled(work: Work, where: Partition, identity: str, future: SentRecord) -> None:
    if not future.is_done:
        return
    try:
        offset = future.value().offset
    except TriologError as exc:
        work.notes.given_up([identity], repr(exc))
    else:
        work.notes.acknowledged(where, [identity], offset)


async def read(work: Work, client: Client) -> None:
    """All partitions of some topics, from where its group is; commits as it goes. With another consumer when one gives up."""
    while not work.orders.is_over:
        try:
            await _read(work, client)
        except* TriologError as exc:
            work.notes.write("loses its consumer", error=repr(exc))
            await trio.sleep(POLL_S)


async def _read(work: Work, client: Client) -> None:
    committed, group = bool(work.role["committed"]), str(work.role["group"])
    options = {
        "isolation": Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED,
        "group": group,
        "offset_reset": "earliest",
        "retry_timeout_ms": PATIENCE_MS,
        "max_wait_ms": 250,
    }
    async with open_consumer(client, **options) as consumer:
        await _insist(lambda: consumer.assign(list(work.role["topics"])), work)
        await _go_to_committed(work, consumer, group)
        commit_at = time.monotonic() + COMMIT_EVERY_S
        dirty: dict[TopicPartition, int] = {}
        while not work.orders.is_over:
            with trio.move_on_after(COMMIT_EVERY_S):
                batch = await consumer.next_batch()
                assert batch is not None
                where = (batch.partition.topic, batch.partition.partition)
                records = [(each.offset, id_of(each.value), each.timestamp) for each in batch.records()]
                work.notes.polled(where, records, committed=committed, group=group, next_position=batch.next_offset)
                dirty[batch.partition] = batch.next_offset
            if dirty and time.monotonic() > commit_at:
                await _commit(work, consumer, group, dirty)
                dirty, commit_at = {}, time.monotonic() + COMMIT_EVERY_S
        if dirty:
            await _commit(work, consumer, group, dirty)


async def _commit(work: Work, consumer: Consumer, group: str, offsets: dict[TopicPartition, int]) -> None:
    work.notes.commits(group, {(where.topic, where.partition): offset for where, offset in offsets.items()})
    try:
        await consumer.commit(offsets)
        is_kept = True
    except TriologError:
        is_kept = None
    for where, offset in offsets.items():
        work.notes.offset_committed(group, (where.topic, where.partition), offset, is_kept)


async def _go_to_committed(work: Work, consumer: Consumer, group: str) -> None:
    begun = time.monotonic_ns()
    known = await _insist(consumer.committed, work)
    for each in consumer.assignment:
        where, kept = (each.topic, each.partition), known.get(each)
        work.notes.offset_fetched(group, where, -1 if kept is None else kept.offset, begun)
        work.notes.moved(where, None if kept is None else kept.offset)
        if kept is not None:
            await _insist(partial(consumer.seek, each, AtOffset(kept.offset)), work)


async def _insist(call: Callable[[], Awaitable[object]], work: Work) -> object:
    deadline = trio.current_time() + PATIENCE_S
    while True:
        try:
            return await call()
        except TriologError:
            if trio.current_time() > deadline or work.orders.is_over:
                raise
            await trio.sleep(POLL_S)


async def look(work: Work, client: Client) -> None:
    while not work.orders.is_quiet:
        where = work.a_partition(work.rng.choice(("plain", "copied")))
        timestamp = time.time_ns() // 1_000_000 - work.rng.choice((0, 500, 5000, 60_000, 600_000))
        begun = time.monotonic_ns()
        try:
            found = (await Admin(client).offsets_for_times({TopicPartition(*where): timestamp}))[TopicPartition(*where)]
        except TriologError:
            await trio.sleep(POLL_S)
            continue
        work.notes.looked_up(where, timestamp, begun, found.offset, found.timestamp)
        await trio.sleep(work.rng.uniform(0, 2))


PARTS: Final = {"feed": feed, "move": move, "read": read, "look": look}


async def main(task: Task, orders: Orders, notes: Notes) -> None:
    """All roles, each over a connection of its own."""
    async with trio.open_nursery() as nursery:
        for number, role in enumerate(task.roles):
            who = f"{task.name}/{task.life}/{role['role']}{number}"
            work = Work(task, role, orders, Notebook(notes, who), random.Random(f"{task.seed}/{who}"))
            nursery.start_soon(_play, work)


async def _play(work: Work) -> None:
    work.notes.write("begins")
    async with trio.open_nursery() as nursery:
        config = ClientConfig(client_id=work.notes.who, connect_timeout_ms=3000, request_timeout_ms=8000)
        client = Client(nursery, TcpOpener(work.task.native_address), config)
        await PARTS[work.role["role"]](work, client)
        client.close()
        nursery.cancel_scope.cancel()
    work.notes.write("is done")


if __name__ == "__main__":
    told, heard = Task.from_json(sys.argv[1]), Orders()
    written = Notes(told.history)
    threading.Thread(target=heard.listen, daemon=True).start()
    try:
        trio.run(main, told, heard, written)
    except BaseException:
        written.write(told.name, "failed", error=traceback.format_exc())
        raise
