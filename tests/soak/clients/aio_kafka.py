"""aiokafka: an idempotent feeder, transactions, a member of a classic group, each in an event loop of its own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import aiokafka
import attrs
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, ProducerFenced

from .worker import MOST_PENDING, PATIENCE_S, SESSION_MS, TRANSACTION_MS, Partition, Record, Work, found_in, run

CALL_MS: Final = 10_000
BROKEN: Final = (KafkaError, TimeoutError, AssertionError)
"""What a producer raises that is of no use any more; an AssertionError where its state allows no such call (0.14.0)."""


def settings(work: Work) -> dict[str, Any]:
    return {
        "bootstrap_servers": work.task.kafka,
        "client_id": work.notes.who.replace("/", "-"),
        "retry_backoff_ms": 100,
        "request_timeout_ms": CALL_MS,
    }


async def started(work: Work, make: Callable[[], Any]) -> Any:
    """A client that has found the server, which may be away."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        client = make()
        try:
            await client.start()
            return client
        except (KafkaError, OSError):
            await client.stop()
            if work.orders.is_over or asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.3)


async def feed(work: Work) -> None:
    """A record that is given up ends the order of its producer: another one begins."""
    while not work.orders.is_quiet:
        producer = await started(
            work, lambda: aiokafka.AIOKafkaProducer(**settings(work), enable_idempotence=True, linger_ms=5)
        )
        name, waiting, failed = work.producer_name(), set[asyncio.Task[None]](), asyncio.Event()
        while not failed.is_set() and not work.orders.is_quiet:
            where, records = work.to_feed()
            work.notes.sends(where, name, [each.noted for each in records])
            for each in records:
                try:
                    future = await _send(producer, where, each)
                except KafkaError as exc:
                    work.notes.given_up([each.id], repr(exc))
                    failed.set()
                    break
                task = asyncio.create_task(_settle(work, where, each.id, future, failed))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            await asyncio.sleep(work.pause_after(len(records)))
            while len(waiting) > MOST_PENDING and not failed.is_set() and not work.orders.is_quiet:
                await asyncio.sleep(0.1)
        if waiting:
            await asyncio.wait(waiting, timeout=PATIENCE_S)
        await _stop(producer)


async def _send(producer: Any, where: Partition, record: Record) -> Awaitable[Any]:
    told = {"key": record.key.encode() or None, "partition": where[1], "timestamp_ms": record.timestamp}
    sent: Awaitable[Any] = await producer.send(where[0], record.value, **told)
    return sent


async def _settle(work: Work, where: Partition, identity: str, future: Awaitable[Any], failed: asyncio.Event) -> None:
    try:
        metadata = await future
    except KafkaError as exc:
        work.notes.given_up([identity], repr(exc))
        failed.set()
    else:
        work.notes.acknowledged(where, [identity], metadata.offset)


async def _stop(client: Any) -> None:
    try:
        await asyncio.wait_for(client.stop(), 10)
    except (*BROKEN, asyncio.CancelledError):
        return


async def move(work: Work) -> None:
    """Transactions, with another producer when one is of no use any more."""
    transactional_id = str(work.role["transactional_id"])
    while not work.orders.is_quiet:
        name = work.producer_name()
        work.notes.introduces(transactional_id, name)
        producer = await started(
            work,
            lambda: aiokafka.AIOKafkaProducer(
                **settings(work), transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_MS
            ),
        )
        try:
            work.notes.introduced(transactional_id, name)
            while not work.orders.is_quiet and await _transact(work, producer, name):
                pass
        except BROKEN as exc:
            work.notes.write("loses its producer", error=repr(exc))
        await _stop(producer)


async def _transact(work: Work, producer: Any, name: str) -> bool:
    """Whether the producer is still good."""
    transaction = work.transaction_name()
    await producer.begin_transaction()
    sent: list[tuple[Partition, str, asyncio.Future[Any]]] = []
    is_committed = work.rng.random() < 0.75
    outcome: bool | None = None
    try:
        for where, records in work.to_move():
            work.notes.sends(where, name, [each.noted for each in records], transaction)
            for each in records:
                sent.append((where, each.id, asyncio.ensure_future(await _send(producer, where, each))))
        await producer.flush()
        work.notes.ends(transaction, commit=is_committed)
        async with asyncio.timeout(PATIENCE_S):
            await (producer.commit_transaction() if is_committed else producer.abort_transaction())
        outcome = is_committed
    except ProducerFenced:
        pass
    except BROKEN as exc:
        work.notes.write("transaction failed", error=repr(exc))
    if sent:
        await asyncio.wait([future for _, _, future in sent], timeout=1)
    for where, identity, future in sent:
        if future.done() and future.exception() is None:
            work.notes.acknowledged(where, [identity], future.result().offset)
    work.notes.ended(transaction, outcome)
    await asyncio.sleep(work.pause_after(len(sent), 0.5))
    return outcome is not None


class _Assignments(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes that reading goes on elsewhere."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.generation = 0

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        for each in assigned:
            self.work.notes.moved((each.topic, each.partition), None)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.generation += 1


@attrs.define(eq=False)
class Member:
    work: Work
    consumer: Any = None

    async def run(self) -> None:
        role = self.work.role
        self.consumer = await started(
            self.work,
            lambda: aiokafka.AIOKafkaConsumer(
                **settings(self.work),
                group_id=role["group"],
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed" if role["committed"] else "read_uncommitted",
                partition_assignment_strategy=[RangePartitionAssignor],
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=1000,
                fetch_max_wait_ms=250,
            ),
        )
        self.consumer.subscribe([role["topic"]], listener=_Assignments(self.work))
        while not self.work.orders.is_over:
            try:
                await self._take(await self.consumer.getmany(timeout_ms=500))
            except KafkaError as exc:
                self.work.notes.write("poll failed", error=repr(exc))
                await asyncio.sleep(0.2)
        await _stop(self.consumer)

    async def _take(self, batches: dict[Any, list[Any]]) -> None:
        if not batches:
            return
        offsets = self.work.take(found_in(batches))
        try:
            await self.consumer.commit({aiokafka.TopicPartition(*where): offset for where, offset in offsets.items()})
            is_kept = True
        except KafkaError as exc:
            self.work.notes.write("commit failed", error=repr(exc))
            is_kept = None
        self.work.committed(offsets, is_kept)


def in_a_loop(part: Callable[[Work], Awaitable[None]]) -> Callable[[Work], None]:
    def play(work: Work) -> None:
        async def main() -> None:
            await part(work)

        asyncio.run(main())

    return play


if __name__ == "__main__":
    run({"feed": in_a_loop(feed), "move": in_a_loop(move), "member": in_a_loop(lambda work: Member(work).run())})
