"""Members of a share group (KIP-932) under a server that is killed now and then: what they have accepted never comes again."""

from __future__ import annotations

import threading
from typing import Any, Final

import attrs
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from tests.clients.driver import DEADLINE_S
from tests.clients.sigkill_loads import PATIENT, Load, Taken
from tests.clients.sigkill_members import SERVER_IS_AWAY

SHARER: Final[dict[str, Any]] = {**PATIENT, "share.acknowledgement.mode": "explicit", "max.poll.records": 20}
RELEASED: Final = 0.1
"""How many of the records are given back."""


@attrs.define(eq=False)
class Shared:
    """What all members together know of records. Any thread may call it."""

    accepted: set[Taken] = attrs.field(factory=set)
    """The server has said that they are done."""
    unsure: set[Taken] = attrs.field(factory=set)
    """Accepted, and nobody knows whether the server has heard of it."""
    _lock: threading.Condition = attrs.field(factory=threading.Condition)

    def given(self, records: list[Taken]) -> None:
        """What is done never comes again."""
        with self._lock:
            again = self.accepted.intersection(records)
        assert not again, f"accepted, and given again: {sorted(again)}"

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
    released: int = 0

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
        self.shared.given([Taken.of(message) for message in messages])
        accepted: dict[int, set[Taken]] = {}
        for message in messages:
            if self.rng.random() < RELEASED:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
                self.released += 1
            else:
                consumer.acknowledge(message)
                accepted.setdefault(message.partition(), set()).add(Taken.of(message))
        try:
            answers = {each.partition: error for each, error in consumer.commit_sync(DEADLINE_S).items()}
        except KafkaException as exc:
            if not exc.args[0].retriable() and exc.args[0].code() not in SERVER_IS_AWAY:
                raise
            answers = {}
        for partition, records in accepted.items():
            if partition in answers and answers[partition] is None:
                self.shared.confirm(records)
                self.progress.count(moved=len(records))
            else:
                self.shared.doubt(records)
