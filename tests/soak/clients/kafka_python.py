"""kafka-python: an idempotent feeder, a member of a classic group, lookups by time."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import attrs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor

from .worker import MOST_PENDING, PATIENCE_S, SESSION_MS, Partition, Work, found_in, run

PATIENCE_MS: Final = int(PATIENCE_S * 1000)
POLL_MS: Final = 500
"""A poll that ends while the answer to SyncGroup is under way loses the assignment (3.0.12), and the next one joins anew."""

Pending = deque[tuple[Partition, str, Any]]


def settings(work: Work) -> dict[str, Any]:
    return {
        "bootstrap_servers": work.task.kafka,
        "client_id": work.notes.who,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 500,
        "retry_backoff_ms": 50,
        "request_timeout_ms": 10_000,
        "bootstrap_timeout_ms": PATIENCE_MS,
        "metrics_enabled": False,
    }


def feed(work: Work) -> None:
    """A record that is given up ends the order of its producer: another one begins."""
    while not work.orders.is_quiet:
        options = {"enable_idempotence": True, "acks": "all", "delivery_timeout_ms": PATIENCE_MS, "max_block_ms": PATIENCE_MS}
        producer = kafka.KafkaProducer(**settings(work), **options, linger_ms=5)
        pending: Pending = deque()
        name, is_good = work.producer_name(), True
        while is_good and not work.orders.is_quiet:
            where, records = work.to_feed()
            work.notes.sends(where, name, [each.noted for each in records])
            for each in records:
                told = {"key": each.key.encode() or None, "partition": where[1], "timestamp_ms": each.timestamp}
                pending.append((where, each.id, producer.send(where[0], each.value, **told)))
            until = time.monotonic() + work.pause_after(len(records))
            while is_good and not work.orders.is_quiet and (time.monotonic() < until or len(pending) > MOST_PENDING):
                is_good = _settle(work, pending)
                work.orders.pause(0.02)
        try:
            producer.flush(PATIENCE_S)
            _settle(work, pending)
            producer.close(timeout=1)
        except kafka.errors.KafkaError as exc:
            work.notes.write("loses its producer", error=repr(exc))
            _settle(work, pending)


def _settle(work: Work, pending: Pending) -> bool:
    """Note what is done, and forget it; whether all went well."""
    is_good = True
    for where, identity, future in [each for each in pending if each[2].is_done]:
        if future.succeeded():
            work.notes.acknowledged(where, [identity], future.value.offset)
        else:
            work.notes.given_up([identity], repr(future.exception))
            is_good = False
    left = [each for each in pending if not each[2].is_done]
    pending.clear()
    pending.extend(left)
    return is_good


class _Assignments(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes from where reading goes on."""

    def __init__(self, member: Member) -> None:
        self.member = member

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        for each in assigned:
            self.member.work.notes.moved((each.topic, each.partition), None)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """What was read is committed before the next poll, or not at all."""


@attrs.define(eq=False)
class Member:
    work: Work
    consumer: Any = None

    def run(self) -> None:
        role = self.work.role
        self.consumer = kafka.KafkaConsumer(
            **settings(self.work),
            group_id=role["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if role["committed"] else "read_uncommitted",
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1000,
            fetch_max_wait_ms=250,
        )
        self.consumer.subscribe([role["topic"]], listener=_Assignments(self))
        while not self.work.orders.is_over:
            try:
                self._take(self.consumer.poll(POLL_MS))
            except kafka.errors.KafkaError as exc:
                self.work.notes.write("poll failed", error=repr(exc))
                time.sleep(0.2)
        self.consumer.close(timeout_ms=5000)

    def _take(self, batches: dict[Any, list[Any]]) -> None:
        if not batches:
            return
        offsets = self.work.take(found_in(batches))
        asked = {kafka.TopicPartition(*where): kafka.OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()}
        try:
            self.consumer.commit(asked, timeout_ms=20_000)
            is_kept = True
        except kafka.errors.KafkaError as exc:
            self.work.notes.write("commit failed", error=repr(exc))
            is_kept = None
        self.work.committed(offsets, is_kept)


def look(work: Work) -> None:
    consumer = kafka.KafkaConsumer(**settings(work), group_id=None)

    def ask(where: Partition, timestamp: int) -> tuple[int, int | None] | None:
        asked = kafka.TopicPartition(*where)
        try:
            found = consumer.offsets_for_times({asked: timestamp})[asked]
        except kafka.errors.KafkaError:
            return None
        return (-1, None) if found is None else (found.offset, found.timestamp)

    work.look(ask)
    consumer.close(timeout_ms=1000)


if __name__ == "__main__":
    run({"feed": feed, "member": lambda work: Member(work).run(), "look": look})
