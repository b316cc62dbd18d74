"""kafka-python: written in Python, with threads."""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import attrs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    import kafka

from tests.clients.driver import DEADLINE_S, Message, Received

# Its log lines have its connections in them: pytest, which keeps the lines of a test, would keep their sockets.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


@contextmanager
def _closed(client: Any) -> Iterator[Any]:
    """Close at the end, and let go what it leaves: connections that were refused keep sockets until they are collected."""
    try:
        with closing(client):
            yield client
    finally:
        del client
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@attrs.define(eq=False)
class KafkaPythonProducer:
    client: Any
    acks: str

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        futures = [
            self.client.send(
                topic,
                value=each.value,
                key=each.key,
                headers=list(each.headers),
                partition=each.partition,
                timestamp_ms=each.timestamp_ms,
            )
            for each in messages
        ]
        self.client.flush(DEADLINE_S)
        offsets = [future.get(DEADLINE_S).offset for future in futures]
        return [-1] * len(messages) if self.acks == "0" else offsets


@attrs.define(eq=False)
class KafkaPythonDriver:
    bootstrap: str
    name: str = "kafka-python"

    @contextmanager
    def producer(
        self, *, acks: str = "all", codec: str = "none", idempotent: bool = False, max_bytes: int | None = None
    ) -> Iterator[KafkaPythonProducer]:
        settings: dict[str, Any] = {
            "acks": acks if acks == "all" else int(acks),
            "compression_type": None if codec == "none" else codec,
            "enable_idempotence": idempotent,
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 100,
        }
        if max_bytes is not None:
            settings |= {"max_request_size": max_bytes, "batch_size": max_bytes}
        with _closed(kafka.KafkaProducer(bootstrap_servers=self.bootstrap, **settings)) as client:
            yield KafkaPythonProducer(client, acks)

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        settings = {"enable_auto_commit": False, "auto_offset_reset": "none", "fetch_max_wait_ms": 50}
        with _closed(kafka.KafkaConsumer(bootstrap_servers=self.bootstrap, **settings)) as consumer:
            yield consumer

    def read(self, topic: str, count: int, *, starts: dict[int, int]) -> list[Received]:
        found: list[Received] = []
        deadline = time.monotonic() + DEADLINE_S
        with self._consumer() as consumer:
            consumer.assign([kafka.TopicPartition(topic, number) for number in starts])
            for number, offset in starts.items():
                consumer.seek(kafka.TopicPartition(topic, number), offset)
            while len(found) < count and time.monotonic() < deadline:
                for records in consumer.poll(500, max_records=count - len(found)).values():
                    found += [
                        Received(
                            partition=each.partition,
                            offset=each.offset,
                            timestamp_ms=each.timestamp,
                            key=each.key,
                            value=each.value,
                            headers=tuple(each.headers),
                        )
                        for each in records
                    ]
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
            return None if found is None else int(found.offset)

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([asked])[asked], consumer.end_offsets([asked])[asked]

    def partitions(self, topic: str) -> set[int]:
        with self._consumer() as consumer:
            return set(consumer.partitions_for_topic(topic))
