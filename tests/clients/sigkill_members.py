"""Members of groups under a server that is killed now and then: movers, who take what is fed to another topic in transactions,
and watchers, who read that one and commit. No two members take the same record for the group, whatever happens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.driver import DEADLINE_S
from tests.clients.sigkill_loads import OUTPUT, PATIENT, Load, Taken

ABORTED: Final = b"aborted:"
MOST_IN_A_TRANSACTION: Final = 20
READER: Final[dict[str, Any]] = {
    **PATIENT,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 20,
}
SERVER_IS_AWAY: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


@attrs.define(eq=False)
class Member(Load):
    """A member of a group. Its batches hold nothing of partitions that went while they were read."""

    group: str
    topic: str
    protocol: str
    consumer: Any = None
    is_done: bool = False
    """Set by the test: there is nothing left to read."""
    _was_rebalanced: bool = False

    def work(self) -> None:
        self.consumer = Consumer(self.settings(READER, group_id=self.group, group_protocol=self.protocol))
        try:
            self.consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost)
            self.open()
            while not self.is_done and self.progress.error is None:
                if batch := self._read():
                    self.take(batch)
        finally:
            self.consumer.close()
            self.consumer = None

    def open(self) -> None:
        """Before the first batch."""

    def take(self, batch: Sequence[Taken]) -> None:
        raise NotImplementedError

    def seen(self, record: Taken) -> None:
        """Each record as it comes."""

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_rebalanced = True

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_rebalanced = True

    def _read(self) -> list[Taken]:
        batch: list[Taken] = []
        wanted = self.rng.randint(1, MOST_IN_A_TRANSACTION)
        self._was_rebalanced = False
        while len(batch) < wanted and (message := self.consumer.poll(0.05)) is not None:
            if (error := message.error()) is None:
                record = Taken.of(message)
                self.seen(record)
                batch.append(record)
            elif error.code() not in SERVER_IS_AWAY and not error.retriable():
                raise KafkaException(error)
        if self._was_rebalanced:
            self.rewind()
            return []
        return batch

    def rewind(self) -> None:
        """Go on where the group is."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                committed = self.consumer.committed(self.consumer.assignment(), timeout=5)
                for each in committed:
                    self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise


def behind(batch: Iterable[Taken]) -> list[TopicPartition]:
    """Where a group is that has taken a batch."""
    offsets = {each.partition: (each.topic, each.offset + 1) for each in batch}
    return [TopicPartition(topic, partition, offset) for partition, (topic, offset) in offsets.items()]


@attrs.define(eq=False)
class Mover(Member):
    """Takes a batch, writes it to the output and commits its offsets in one transaction; some of them it aborts.

    librdkafka's abort throws away what it has not sent yet, mostly the whole transaction, so a run may leave nothing aborted in
    the log. So the first one and every other one is aborted when its records are acknowledged, and those are in the log.
    """

    transactional_id: str = "mover"
    producer: Any = None
    aborted: int = 0
    """Transactions that were begun for that, however they ended."""
    acknowledged: list[Taken] = attrs.field(factory=list)
    """Of all its transactions, aborted ones too."""

    def work(self) -> None:
        try:
            super().work()
        finally:
            self.producer = None  # its threads end when nothing refers to it

    def open(self) -> None:
        self.producer = Producer(self.settings(PATIENT, transactional_id=self.transactional_id, linger_ms=0))
        self._insist(lambda: self.producer.init_transactions(5))

    def take(self, batch: Sequence[Taken]) -> None:
        is_aborted = self.rng.random() < 0.25
        try:
            self.producer.begin_transaction()
            for each in batch:
                value = ABORTED + each.value if is_aborted else each.value
                self.producer.produce(OUTPUT, value, partition=each.partition, on_delivery=self._delivered)
            if is_aborted:
                self.aborted += 1
                if self.aborted % 2 == 1:
                    self.producer.flush(DEADLINE_S)
            metadata = self.consumer.consumer_group_metadata()
            self._insist(lambda: self.producer.send_offsets_to_transaction(behind(batch), metadata, 5))
            if is_aborted:
                self._abort()
            else:
                self._insist(lambda: self.producer.commit_transaction(5))
                self.progress.count(moved=len(batch))
        except KafkaException as exc:
            self._recover(exc.args[0])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(Taken.of(message))

    def _abort(self) -> None:
        self._insist(lambda: self.producer.abort_transaction(5))
        self.progress.count()
        self.rewind()

    def _recover(self, error: KafkaError) -> None:
        if error.fatal():
            self.open()
            self.rewind()
        elif error.txn_requires_abort():
            try:
                self._abort()
            except KafkaException as exc:
                self._recover(exc.args[0])
        else:
            raise KafkaException(error)

    def _insist(self, call: Callable[[], object]) -> None:
        """What may be tried again is, for as long as a server may be away."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                call()
                return
            except KafkaException as exc:
                if not exc.args[0].retriable() or time.monotonic() > deadline:
                    raise


@attrs.define(eq=False)
class Commits:
    """Offsets of one group that were acknowledged, of all its members. They never go back."""

    acknowledged: dict[int, int] = attrs.field(factory=dict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def take(self, partition: int, offset: int) -> None:
        with self._lock:
            before = self.acknowledged.get(partition, 0)
            assert offset > before, f"partition {partition} was committed at {before} and then at {offset}"
            self.acknowledged[partition] = offset

    def check_start(self, partition: int, offset: int) -> None:
        with self._lock:
            before = self.acknowledged.get(partition, 0)
        assert offset >= before, f"partition {partition} was committed at {before}, and a member begins at {offset}"


@attrs.define(eq=False)
class Watcher(Member):
    """Reads the output as a member of a group and commits what it has read."""

    commits: Commits = attrs.field(factory=Commits)
    records: list[Taken] = attrs.field(factory=list)
    _begun: set[int] = attrs.field(factory=set)
    """Partitions of which something was read since they were assigned."""

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._assigned(consumer, partitions)
        self._begun.clear()

    def seen(self, record: Taken) -> None:
        if record.partition not in self._begun:
            self._begun.add(record.partition)
            self.commits.check_start(record.partition, record.offset)
        self.records.append(record)

    def take(self, batch: Sequence[Taken]) -> None:
        try:
            answers = self.consumer.commit(offsets=behind(batch), asynchronous=False)
        except KafkaException:
            return
        for each in answers:
            if each.error is None:
                self.commits.take(each.partition, each.offset)
        self.progress.count()
