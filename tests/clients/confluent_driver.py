"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import attrs
import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.clients.driver import DEADLINE_S, Message, Received

UNKNOWN_OFFSET = -1001


@attrs.define(eq=False)
class ConfluentProducer:
    client: confluent_kafka.Producer

    def send(self, topic: str, messages: Sequence[Message]) -> list[int]:
        delivered: dict[int, confluent_kafka.Message] = {}
        errors: list[confluent_kafka.KafkaError] = []

        def report(slot: int) -> Any:
            def take(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
                if error is not None:
                    errors.append(error)
                delivered[slot] = message

            return take

        for slot, each in enumerate(messages):
            self.client.produce(
                topic,
                value=each.value,
                key=each.key,
                headers=list(each.headers),
                partition=each.partition,
                timestamp=each.timestamp_ms or 0,
                on_delivery=report(slot),
            )
            self.client.poll(0)
        assert self.client.flush(DEADLINE_S) == 0, "the client still waits for acknowledgements"
        if errors:
            raise confluent_kafka.KafkaException(errors[0])
        offsets = [delivered[slot].offset() for slot in range(len(messages))]
        return [-1 if offset in (None, UNKNOWN_OFFSET) else offset for offset in offsets]


@attrs.define(eq=False)
class ConfluentDriver:
    bootstrap: str
    name: str = "confluent-kafka"

    def _settings(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            **settings,
        }

    @contextmanager
    def producer(
        self, *, acks: str = "all", codec: str = "none", idempotent: bool = False, max_bytes: int | None = None
    ) -> Iterator[ConfluentProducer]:
        settings = self._settings(**{"acks": acks, "compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 1})
        if max_bytes is not None:
            settings["message.max.bytes"] = max_bytes
        producer = ConfluentProducer(confluent_kafka.Producer(settings))
        yield producer
        del producer.client  # its threads end with it

    @contextmanager
    def _consumer(self) -> Iterator[confluent_kafka.Consumer]:
        settings = self._settings(
            **{"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error", "fetch.wait.max.ms": 50}
        )
        with closing(confluent_kafka.Consumer(settings)) as consumer:
            yield consumer

    def read(self, topic: str, count: int, *, starts: dict[int, int]) -> list[Received]:
        found: list[Received] = []
        deadline = time.monotonic() + DEADLINE_S
        with self._consumer() as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, number, offset) for number, offset in starts.items()])
            while len(found) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(found), timeout=0.5):
                    if message.error() is not None:
                        raise confluent_kafka.KafkaException(message.error())
                    found.append(
                        Received(
                            partition=message.partition(),
                            offset=message.offset(),
                            timestamp_ms=message.timestamp()[1],
                            key=message.key(),
                            value=message.value(),
                            headers=tuple(message.headers() or ()),
                        )
                    )
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """librdkafka says the end of the log where there is no such record."""
        with self._consumer() as consumer:
            asked = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
            [found] = consumer.offsets_for_times([asked], timeout=DEADLINE_S)
            if found.error is not None:
                raise confluent_kafka.KafkaException(found.error)
            return None if found.offset < 0 else found.offset

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        with self._consumer() as consumer:
            asked = confluent_kafka.TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(asked, timeout=DEADLINE_S)
            return low, high

    def partitions(self, topic: str) -> set[int]:
        return set(AdminClient(self._settings()).list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
