"""A load of librdkafka on a server that is killed now and then: it feeds a topic, which `sigkill_sharers` read.

Each load is a thread that lives longer than the servers: clients find the next one by themselves.
"""

from __future__ import annotations

import random
import threading
from typing import Any, Final, NamedTuple

import attrs
from confluent_kafka import KafkaError, KafkaException, Message, Producer, libversion

from tests.clients.driver import DEADLINE_S

INPUT: Final = "input"
PARTITIONS: Final = 4
MOST_AHEAD: Final = 300
"""Records that are fed and not moved yet."""
# Where the one broker is away librdkafka begins anew ("rebootstrap"); a transactional producer may then wait for ever for the
# broker that it has given up.
STAYING: Final = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020B0000 else {}
PATIENT: Final[dict[str, Any]] = {
    **STAYING,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}


class Taken(NamedTuple):
    """A record at its place, as a consumer has got it or as its producer was told."""

    topic: str
    partition: int
    offset: int
    value: bytes

    @classmethod
    def of(cls, message: Any) -> Taken:
        return cls(message.topic(), message.partition(), message.offset(), message.value())


@attrs.define(eq=False)
class Progress:
    """What all loads have seen acknowledged. A load that fails ends the run."""

    acknowledged: int = 0
    moved: int = 0
    error: BaseException | None = None
    is_over: bool = False
    _changed: threading.Condition = attrs.field(factory=threading.Condition)

    def count(self, *, moved: int = 0) -> None:
        with self._changed:
            self.acknowledged += 1
            self.moved += moved
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Until so many more things are acknowledged."""
        with self._changed:
            wanted = self.acknowledged + count
            reached = self._changed.wait_for(lambda: self.error or self.acknowledged >= wanted, DEADLINE_S)
        if self.error is not None:
            raise self.error
        assert reached, f"{self.acknowledged} acknowledged within {DEADLINE_S} s, {wanted} waited for"


@attrs.define(eq=False)
class Load:
    """Owner of its clients: the thread that it runs in."""

    bootstrap: str
    rng: random.Random
    progress: Progress
    thread: threading.Thread = attrs.field(init=False)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name=type(self).__name__)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as exc:
            self.progress.fail(exc)

    def work(self) -> None:
        raise NotImplementedError

    def settings(self, base: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **base, **{name.replace("_", "."): value for name, value in more.items()}}


@attrs.define(eq=False)
class Feeder(Load):
    """An idempotent producer of numbers. What it has given to librdkafka is delivered, however long it takes."""

    sent: int = 0
    acknowledged: list[Taken] = attrs.field(factory=list)

    def work(self) -> None:
        producer = Producer(self.settings(PATIENT, enable_idempotence=True, linger_ms=1, message_timeout_ms=0))
        while not self.progress.is_over and self.progress.error is None:
            if self.sent - self.progress.moved < MOST_AHEAD:
                value, partition = str(self.sent).encode(), self.rng.randrange(PARTITIONS)
                producer.produce(INPUT, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
                producer.poll(0)
            else:
                producer.poll(0.01)
        assert producer.flush(DEADLINE_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.progress.fail(KafkaException(error))
        else:
            self.acknowledged.append(Taken.of(message))
            self.progress.count()
