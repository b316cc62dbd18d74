"""librdkafka: an idempotent feeder, an exactly-once pipe, members of groups of both kinds, lookups by time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition, libversion

from .worker import MOST_PENDING, SESSION_MS, TRANSACTION_MS, Partition, Work, by_partition, id_of, run

# Where the one broker is away librdkafka begins anew ("rebootstrap"); a transactional producer may then wait for ever for the
# broker that it has given up.
STAYING: Final = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020B0000 else {}
BACKOFF: Final[dict[str, Any]] = {
    **STAYING,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}
CALL_S: Final = 10.0
MOST_IN_A_TRANSACTION: Final = 50


def settings(work: Work, **more: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": work.task.kafka, "client.id": work.notes.who, **BACKOFF, **named}


def feed(work: Work) -> None:
    producer = Producer(settings(work, enable_idempotence=True, linger_ms=5, message_timeout_ms=0))
    name = work.producer_name()
    while not work.orders.is_quiet:
        where, records = work.to_feed()
        work.notes.sends(where, name, [each.noted for each in records])
        for each in records:
            producer.produce(
                where[0], each.value, each.key or None, where[1], timestamp=each.timestamp, on_delivery=delivered(work, each.id)
            )
        until = time.monotonic() + work.pause_after(len(records))
        while not work.orders.is_quiet and (time.monotonic() < until or len(producer) > MOST_PENDING):
            producer.poll(0.1)
    while len(producer) and not work.orders.is_over:
        producer.poll(0.1)


def delivered(work: Work, identity: str) -> Callable[[KafkaError | None, Any], None]:
    def told(error: KafkaError | None, message: Any) -> None:
        if error is None:
            work.notes.acknowledged((message.topic(), message.partition()), [identity], message.offset())
        else:
            work.notes.given_up([identity], str(error))

    return told


@attrs.define(eq=False)
class Member:
    """Of a group. What is read of partitions that were taken away meanwhile is forgotten."""

    work: Work
    consumer: Any = None
    was_rebalanced: bool = False

    @property
    def group(self) -> str:
        return str(self.work.role["group"])

    def run(self) -> None:
        role = self.work.role
        kind = {"session_timeout_ms": SESSION_MS} if role["protocol"] == "classic" else {}
        isolation = "read_committed" if role["committed"] else "read_uncommitted"
        told = settings(self.work, group_id=self.group, group_protocol=role["protocol"], isolation_level=isolation, **kind)
        rest = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 250}
        if role["protocol"] == "classic":
            rest["partition.assignment.strategy"] = "range"
        self.consumer = Consumer({**told, **rest})
        self.consumer.subscribe([role["topic"]], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
        self.open()
        while not self.work.orders.is_over:
            if batch := self._read():
                self.take(batch)
        self.consumer.close()

    def open(self) -> None:
        """Before the first batch."""

    def take(self, batch: Sequence[Any]) -> None:
        self._note(batch)
        offsets = behind(batch)
        self.work.notes.commits(self.group, offsets)
        answers: Sequence[Any] = ()
        try:
            asked = [TopicPartition(*where, offset) for where, offset in offsets.items()]
            answers = self.consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException:
            pass
        kept = {(each.topic, each.partition) for each in answers if each.error is None}
        for where, offset in offsets.items():
            self.work.notes.offset_committed(self.group, where, offset, True if where in kept else None)

    def _note(self, batch: Sequence[Any], transaction: str = "") -> None:
        found = (((each.topic(), each.partition()), _found(each)) for each in batch)
        committed = bool(self.work.role["committed"])
        for where, records in by_partition(found).items():
            self.work.notes.polled(where, records, committed=committed, group=self.group, transaction=transaction)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Reading begins where the group is, as it was told here and noted."""
        self.was_rebalanced = True
        known = self._committed(partitions)
        for each in partitions:
            each.offset = known.get((each.topic, each.partition), 0)
            self.work.notes.moved((each.topic, each.partition), each.offset)
        if self.work.role["protocol"] == "classic":
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)

    def _gone(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.was_rebalanced = True

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[Partition, int]:
        """Of the partitions that have something. The server may be away for long, and nothing can be read meanwhile."""
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        for _ in self.work.keep_trying():
            begun = time.monotonic_ns()
            try:
                found = self.consumer.committed(asked, timeout=CALL_S)
            except KafkaException:
                continue
            if any(each.error is not None for each in found):
                continue
            for each in found:
                self.work.notes.offset_fetched(self.group, (each.topic, each.partition), max(each.offset, -1), begun)
            return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
        raise TimeoutError("the group's offsets could not be had")

    def _read(self) -> list[Any]:
        batch: list[Any] = []
        wanted = self.work.rng.randint(1, MOST_IN_A_TRANSACTION)
        self.was_rebalanced = False
        while len(batch) < wanted and (message := self.consumer.poll(0.1 if batch else 0.3)) is not None:
            if (error := message.error()) is None:
                batch.append(message)
            elif error.fatal():
                raise KafkaException(error)
        if self.was_rebalanced:
            self.rewind()
            return []
        return batch

    def rewind(self) -> None:
        """Go on where the group is."""
        assignment = self.consumer.assignment()
        known = self._committed(assignment) if assignment else {}
        for each in assignment:
            each.offset = known.get((each.topic, each.partition), 0)
            self.work.notes.moved((each.topic, each.partition), each.offset)
            try:
                self.consumer.seek(each)
            except KafkaException:
                self.was_rebalanced = True  # it went meanwhile


def _found(message: Any) -> tuple[int, str, int]:
    return message.offset(), id_of(message.value()), message.timestamp()[1]


def behind(batch: Sequence[Any]) -> dict[Partition, int]:
    """Where a group is that has taken a batch."""
    return {(each.topic(), each.partition()): each.offset() + 1 for each in batch}


class FencedError(Exception):
    """Somebody else has the transactional id now."""


@attrs.define(eq=False)
class Pipe(Member):
    """Takes batches to the output and commits their offsets in one transaction; some it aborts."""

    producer: Any = None
    name: str = ""

    @property
    def transactional_id(self) -> str:
        return str(self.work.role["transactional_id"])

    def run(self) -> None:
        try:
            super().run()
        except FencedError:
            self.work.notes.write("fenced")

    def open(self) -> None:
        self.producer = Producer(
            settings(self.work, transactional_id=self.transactional_id, linger_ms=0, transaction_timeout_ms=TRANSACTION_MS)
        )
        self.name = self.work.producer_name()
        self.work.notes.introduces(self.transactional_id, self.name)
        self._insist(lambda: self.producer.init_transactions(CALL_S))
        self.work.notes.introduced(self.transactional_id, self.name)

    def take(self, batch: Sequence[Any]) -> None:
        transaction = self.work.transaction_name()
        is_aborted = self.work.rng.random() < 0.2
        offsets = behind(batch)
        try:
            self.producer.begin_transaction()
            self._note(batch, transaction)
            for each in batch:
                self._copy(each, transaction)
            if is_aborted:
                self.producer.flush(CALL_S)
            metadata = self.consumer.consumer_group_metadata()
            self.work.notes.commits(self.group, offsets, transaction)
            asked = [TopicPartition(*where, offset) for where, offset in offsets.items()]
            self._insist(lambda: self.producer.send_offsets_to_transaction(asked, metadata, CALL_S))
            if is_aborted:
                self._abort(transaction)
            else:
                self.work.notes.ends(transaction, commit=True)
                self._insist(lambda: self.producer.commit_transaction(CALL_S))
                self.work.notes.ended(transaction, True)
        except KafkaException as exc:
            self._recover(exc.args[0], transaction)

    def _copy(self, message: Any, transaction: str) -> None:
        copy = self.work.copy_of(id_of(message.value()), transaction)
        where = str(self.work.role["target"]), message.partition()
        self.work.notes.sends(where, self.name, [copy.noted], transaction)
        told = delivered(self.work, copy.id)
        self.producer.produce(where[0], copy.value, None, where[1], timestamp=copy.timestamp, on_delivery=told)

    def _abort(self, transaction: str) -> None:
        self.work.notes.ends(transaction, commit=False)
        self._insist(lambda: self.producer.abort_transaction(CALL_S))
        self.work.notes.ended(transaction, False)
        self.rewind()

    def _recover(self, error: KafkaError, transaction: str) -> None:
        if error.code() == KafkaError._FENCED:
            raise FencedError(str(error))
        if error.fatal():
            self.work.notes.ended(transaction, None)
            self.open()
            self.rewind()
        elif error.txn_requires_abort():
            try:
                self._abort(transaction)
            except KafkaException as exc:
                self._recover(exc.args[0], transaction)
        else:
            raise KafkaException(error)

    def _insist(self, call: Callable[[], object]) -> None:
        error: KafkaException | None = None
        for _ in self.work.keep_trying():
            try:
                call()
                return
            except KafkaException as exc:
                error = exc
                if not exc.args[0].retriable():
                    raise
        assert error is not None
        raise error


def look(work: Work) -> None:
    consumer = Consumer(settings(work, group_id="nobody", isolation_level="read_uncommitted"))

    def ask(where: Partition, timestamp: int) -> tuple[int, int | None] | None:
        try:
            [found] = consumer.offsets_for_times([TopicPartition(*where, timestamp)], timeout=CALL_S)
        except KafkaException:
            return None
        return None if found.error is not None else (max(found.offset, -1), None)

    work.look(ask)
    consumer.close()


if __name__ == "__main__":
    run({"feed": feed, "member": lambda work: Member(work).run(), "pipe": lambda work: Pipe(work).run(), "look": look})
