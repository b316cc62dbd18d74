"""The native client without trio: an idempotent feeder, transactions, a reader that keeps a group's offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from triolog.protocol.errors import TriologError
from triolog.protocol.types import Isolation, TopicPartition
from triolog.tools.client.blocking import AtOffset, BlockingClient, BlockingConsumer, BlockingProducer, BlockingRecord
from triolog.tools.client.config import ClientConfig

from .worker import MOST_PENDING, PATIENCE_S, POLL_S, TRANSACTION_MS, Partition, Record, Work, id_of, run

T = TypeVar("T")
PATIENCE_MS: Final = int(PATIENCE_S * 1000)
PRODUCING: Final = {
    "delivery_timeout_ms": PATIENCE_MS,
    "request_timeout_ms": 8000,
    "max_block_ms": PATIENCE_MS,
    "linger_ms": 5,
}
COMMIT_EVERY_S: Final = 1.0

Pending = list[tuple[Partition, str, BlockingRecord]]


def client_of(work: Work) -> BlockingClient:
    config = ClientConfig(client_id=work.notes.who, connect_timeout_ms=3000, request_timeout_ms=8000)
    return BlockingClient(work.task.native_address, config)


def feed(work: Work) -> None:
    while not work.orders.is_quiet:
        with client_of(work) as client:
            producer = BlockingProducer(client, **PRODUCING)
            pending: Pending = []
            try:
                _feed(work, producer, pending)
                producer.close()
            except TriologError as exc:
                work.notes.write("loses its producer", error=repr(exc))
                producer.close(flush=False)
            _settle(work, pending)


def _feed(work: Work, producer: BlockingProducer, pending: Pending) -> None:
    """Raises TriologError when the producer is of no use any more."""
    name = work.producer_name()
    while not work.orders.is_quiet:
        where, records = work.to_feed()
        work.notes.sends(where, name, [each.noted for each in records])
        for each in records:
            pending.append((where, each.id, _send(producer, where, each)))
        until = time.monotonic() + work.pause_after(len(records))
        while not work.orders.is_quiet and (time.monotonic() < until or len(pending) > MOST_PENDING):
            producer.poll()
            _settle(work, pending)
            work.orders.pause(0.02)


def _send(producer: BlockingProducer, where: Partition, record: Record) -> BlockingRecord:
    topic, number = where
    key = record.key.encode() or None
    return producer.send(topic, record.value, key=key, partition=number, timestamp_ms=record.timestamp)


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


def move(work: Work) -> None:
    transactional_id = str(work.role["transactional_id"])
    options = {**PRODUCING, "transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_MS}
    while not work.orders.is_quiet:
        with client_of(work) as client:
            name = work.producer_name()
            work.notes.introduces(transactional_id, name)
            try:
                producer = BlockingProducer(client, **options)
            except TriologError as exc:
                work.notes.write("loses its producer", error=repr(exc))
                work.orders.pause(POLL_S)
                continue
            work.notes.introduced(transactional_id, name)
            try:
                while not work.orders.is_quiet and _transact(work, producer, name):
                    pass
                producer.close()
            except TriologError as exc:
                work.notes.write("loses its producer", error=repr(exc))
                producer.close(flush=False)


def _transact(work: Work, producer: BlockingProducer, name: str) -> bool:
    """Whether its outcome is known."""
    transaction = work.transaction_name()
    handle = producer.transaction()
    handle.begin()
    sent: Pending = []
    outcome: bool | None = None
    is_committed = work.rng.random() < 0.75
    try:
        for where, records in work.to_move():
            work.notes.sends(where, name, [each.noted for each in records], transaction)
            for each in records:
                sent.append((where, each.id, _send(producer, where, each)))
        if not is_committed:
            producer.flush()
        work.notes.ends(transaction, commit=is_committed)
        if is_committed:
            handle.commit()
        else:
            handle.abort()
        outcome = is_committed
    except TriologError:
        try:
            handle.abort()
            outcome = False
        except TriologError:
            outcome = None
    count = len(sent)
    _settle(work, sent)
    work.notes.ended(transaction, outcome)
    work.orders.pause(work.pause_after(count, 0.5))
    return outcome is not None


def read(work: Work) -> None:
    """All partitions of some topics, from where its group is; commits as it goes. With another consumer when one gives up."""
    while not work.orders.is_over:
        try:
            _read(work)
        except TriologError as exc:
            work.notes.write("loses its consumer", error=repr(exc))
            time.sleep(POLL_S)


def _read(work: Work) -> None:
    committed, group = bool(work.role["committed"]), str(work.role["group"])
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    options = {"isolation": isolation, "group": group, "offset_reset": "earliest", "retry_timeout_ms": PATIENCE_MS}
    with client_of(work) as client, BlockingConsumer(client, max_wait_ms=250, **options) as consumer:
        _insist(lambda: consumer.assign(list(work.role["topics"])), work)
        _go_to_committed(work, consumer, group)
        commit_at = time.monotonic() + COMMIT_EVERY_S
        dirty: dict[TopicPartition, int] = {}
        while not work.orders.is_over:
            try:
                batch = consumer.next_batch(timeout_s=COMMIT_EVERY_S)
            except TimeoutError:
                batch = None
            if batch is not None:
                where = (batch.partition.topic, batch.partition.partition)
                records = [(each.offset, id_of(each.value), each.timestamp) for each in batch.records()]
                work.notes.polled(where, records, committed=committed, group=group, next_position=batch.next_offset)
                dirty[batch.partition] = batch.next_offset
            if dirty and time.monotonic() > commit_at:
                _commit(work, consumer, group, dirty)
                dirty, commit_at = {}, time.monotonic() + COMMIT_EVERY_S
        if dirty:
            _commit(work, consumer, group, dirty)


def _commit(work: Work, consumer: BlockingConsumer, group: str, offsets: dict[TopicPartition, int]) -> None:
    work.notes.commits(group, {(where.topic, where.partition): offset for where, offset in offsets.items()})
    is_kept: bool | None = True
    try:
        consumer.commit(offsets)
    except TriologError:
        is_kept = None
    for where, offset in offsets.items():
        work.notes.offset_committed(group, (where.topic, where.partition), offset, is_kept)


def _go_to_committed(work: Work, consumer: BlockingConsumer, group: str) -> None:
    begun = time.monotonic_ns()
    known = _insist(consumer.committed, work)
    for each in consumer.assignment:
        where, kept = (each.topic, each.partition), known.get(each)
        work.notes.offset_fetched(group, where, -1 if kept is None else kept.offset, begun)
        work.notes.moved(where, None if kept is None else kept.offset)
        if kept is not None:
            consumer.seek(each, AtOffset(kept.offset))


def _insist(call: Callable[[], T], work: Work) -> T:
    error: TriologError | None = None
    for _ in work.keep_trying():
        try:
            return call()
        except TriologError as exc:
            error = exc
    assert error is not None
    raise error


if __name__ == "__main__":
    run({"feed": feed, "move": move, "read": read})
