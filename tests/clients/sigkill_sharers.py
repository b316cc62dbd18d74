"""Members of a share group (KIP-932) under a server that is killed now and then: what they have accepted never comes again, and
what they have given back comes with the delivery count that the server has written down, and one more.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import attrs
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message, ShareConsumer

from tests.clients.driver import DEADLINE_S
from tests.clients.sigkill_loads import PATIENT, Load, Taken

SHARER: Final[dict[str, Any]] = {**PATIENT, "share.acknowledgement.mode": "explicit", "max.poll.records": 20}
SERVER_IS_AWAY: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
RELEASED: Final = 0.1
"""How many of the records are given back."""
NEVER: Final = frozenset({0})


@attrs.define(eq=False)
class Shared:
    """What all members together know of records. Any thread may call it."""

    accepted: set[Taken] = attrs.field(factory=set)
    """The server has said that they are done."""
    unsure: set[Taken] = attrs.field(factory=set)
    """Accepted, and nobody knows whether the server has heard of it."""
    written: dict[Taken, frozenset[int]] = attrs.field(factory=dict)
    """What the server may have written down as the delivery count; of those that nobody gave back `NEVER`."""
    servers: int = 1
    """How many there were so far."""
    outlived: int = 0
    """Delivery counts that came from another server than the one that had written them down."""
    _released: dict[Taken, int] = attrs.field(factory=dict)
    """To which server a record was given back."""
    _lock: threading.Condition = attrs.field(factory=threading.Condition)

    def given(self, records: Mapping[Taken, int]) -> None:
        """Records with their delivery counts. What is done never comes again."""
        with self._lock:
            again = self.accepted & records.keys()
            wrong = {
                record: (count, written)
                for record, count in records.items()
                if count - 1 not in (written := self.written.get(record, NEVER))
            }
            self.outlived += sum(
                count > 1 and self._released[record] < self.servers for record, count in records.items() if record not in wrong
            )
        assert not again, f"accepted, and given again: {sorted(again)}"
        assert not wrong, f"given with another delivery count than one more than was written down: {wrong}"

    def give_back(self, records: Mapping[Taken, int]) -> None:
        """Their delivery counts are about to be written down."""
        with self._lock:
            for record, count in records.items():
                self.written[record] = self.written.get(record, NEVER) | {count}
                self._released[record] = self.servers

    def confirm_given_back(self, records: Mapping[Taken, int]) -> None:
        """They are. Another member may have given them back once more by now."""
        with self._lock:
            for record, count in records.items():
                self.written[record] = frozenset(each for each in self.written[record] if each >= count)

    def confirm(self, records: set[Taken]) -> None:
        with self._lock:
            twice = self.accepted & records
            self.accepted |= records
            self.unsure -= records
            self._lock.notify_all()
        assert not twice, f"accepted twice: {sorted(twice)}"

    def doubt(self, records: set[Taken]) -> None:
        with self._lock:
            self.unsure |= records - self.accepted
            self._lock.notify_all()

    def wait(self, seconds: float) -> None:
        """Until more is known, at most so long."""
        with self._lock:
            self._lock.wait(seconds)

    def done(self) -> set[Taken]:
        with self._lock:
            return self.accepted | self.unsure


@attrs.define(eq=False)
class Sharer(Load):
    """Accepts what it is given, and gives some back."""

    group: str
    topic: str
    shared: Shared
    is_done: bool = False
    """Set by the test: there is nothing left to read."""

    def work(self) -> None:
        consumer = ShareConsumer(self.settings(SHARER, group_id=self.group))
        try:
            consumer.subscribe([self.topic])
            while not self.is_done and self.progress.error is None:
                if messages := self._polled(consumer):
                    self._settle(consumer, messages)
        finally:
            consumer.close()

    def _polled(self, consumer: ShareConsumer) -> list[Message]:
        found = []
        for message in consumer.poll(0.05):
            if (error := message.error()) is None:
                found.append(message)
            elif error.code() not in SERVER_IS_AWAY and not error.retriable():
                raise KafkaException(error)
        return found

    def _settle(self, consumer: ShareConsumer, messages: list[Message]) -> None:
        self.shared.given({Taken.of(message): message.delivery_count() for message in messages})
        accepted: dict[int, set[Taken]] = {}
        given_back: dict[int, dict[Taken, int]] = {}
        for message in messages:
            if self.rng.random() < RELEASED:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
                given_back.setdefault(message.partition(), {})[Taken.of(message)] = message.delivery_count()
            else:
                consumer.acknowledge(message)
                accepted.setdefault(message.partition(), set()).add(Taken.of(message))
        for counts in given_back.values():
            self.shared.give_back(counts)
        stored = self._committed(consumer)
        for partition, records in accepted.items():
            if partition in stored:
                self.shared.confirm(records)
                self.progress.count(moved=len(records))
            else:
                self.shared.doubt(records)
        for partition in given_back.keys() & stored:
            self.shared.confirm_given_back(given_back[partition])

    def _committed(self, consumer: ShareConsumer) -> set[int]:
        """The partitions of which the server has said that it has written down what became of records."""
        try:
            return {each.partition for each, error in consumer.commit_sync(DEADLINE_S).items() if error is None}
        except KafkaException as exc:
            if not exc.args[0].retriable() and exc.args[0].code() not in SERVER_IS_AWAY:
                raise
            return set()
