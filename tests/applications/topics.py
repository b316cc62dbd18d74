"""What goes into topics before an application and comes out behind it, by librdkafka, over restarts of the broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple, Self

import attrs
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.confluent_driver import PATIENT

DEADLINE_S: Final = 120.0
POLL_S: Final = 0.1
FETCHED: Final = 1_000
READ_S: Final = 0.02


class Sent(NamedTuple):
    """A record for a topic; `timestamp_ms` 0: of now."""

    key: str | None
    value: str
    timestamp_ms: int = 0


class Read(NamedTuple):
    key: str | None
    value: str


def make_topics(address: str, *names: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": address, **PATIENT})
    for made in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        made.result(DEADLINE_S)


def wait_topic(address: str, name: str, check: Callable[[], None]) -> None:
    """Wait until somebody has made it. `check` raises when nobody will."""
    admin = AdminClient({"bootstrap.servers": address, **PATIENT})
    deadline = time.monotonic() + DEADLINE_S
    while name not in admin.list_topics(timeout=DEADLINE_S).topics:
        check()
        assert time.monotonic() < deadline, f"{name} was not made within {DEADLINE_S:g} s"
        time.sleep(POLL_S)


def feed(address: str, topic: str, records: Iterable[Sent]) -> None:
    """Send them, and wait until all are acknowledged."""
    feed_all(address, ((topic, record) for record in records))


def feed_all(address: str, records: Iterable[tuple[str, Sent]]) -> None:
    """The same with records of several topics."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, **PATIENT})
    failures: list[object] = []

    def told(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    for topic, record in records:
        key = None if record.key is None else record.key.encode()
        producer.produce(topic, record.value.encode(), key, timestamp=record.timestamp_ms, on_delivery=told)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert not failures, failures[:5]


@attrs.define(eq=False)
class Reader:
    """Reads what is committed in topics from their start. Owner: the test."""

    topics: Sequence[str]
    partitions: int
    """Of each topic."""
    records: list[Read]
    _consumer: Any
    counts: Counter[str] = attrs.field(factory=Counter)
    """How many records so far, by topic."""
    _at_end: set[tuple[str, int]] = attrs.field(factory=set)

    @classmethod
    @contextmanager
    def of(cls, address: str, *topics: str, partitions: int = 1) -> Iterator[Self]:
        settings = {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "fetch.error.backoff.ms": 10,
            **PATIENT,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(partitions)])
            yield cls(topics, partitions, [], consumer)

    @property
    def is_at_end(self) -> bool:
        """Whether it has been at the end of all partitions."""
        return len(self._at_end) == len(self.topics) * self.partitions

    def wait_for(self, is_enough: Callable[[list[Read]], bool], check: Callable[[], None] = lambda: None) -> list[Read]:
        """Read until it is enough; answers all so far. `check` raises when no more will come."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_enough(self.records):
            check()
            assert time.monotonic() < deadline, f"{self.topics}: {self.counts} records within {DEADLINE_S:g} s"
            self._read()
        return self.records

    def _read(self) -> None:
        for message in self._consumer.consume(FETCHED, READ_S):
            if (error := message.error()) is None:
                key = message.key()
                self.records.append(Read(None if key is None else key.decode(), message.value().decode()))
                self.counts[message.topic()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add((message.topic(), message.partition()))
            else:  # the broker is away, or has not taken over the partition yet
                assert error.retriable() or error.code() < 0, error


def read_all(address: str, topic: str, partitions: int = 1) -> list[Read]:
    """What is committed, up to the end."""
    with Reader.of(address, topic, partitions=partitions) as reader:
        return reader.wait_for(lambda _: reader.is_at_end)
