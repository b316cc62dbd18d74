"""A consumer of share groups (KIP-932) of librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from tests.clients.driver import DEADLINE_S, Given, Said

TYPES = {"accept": AcknowledgeType.ACCEPT, "release": AcknowledgeType.RELEASE, "reject": AcknowledgeType.REJECT}
POLL_S = 0.2


@attrs.define(eq=False)
class ConfluentSharer:
    """It belongs to one thread."""

    consumer: ShareConsumer
    topic: str

    def poll(self) -> list[Given]:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if given := [_given(message) for message in self.consumer.poll(POLL_S)]:
                return given
        raise AssertionError("nothing was given in time")

    def acknowledge(self, said: Sequence[Said] = ()) -> list[str]:
        for partition, offset, what in said:
            self.consumer.acknowledge_offset(self.topic, partition, offset, TYPES[what])
        answers = self.consumer.commit_sync(DEADLINE_S)
        return [error.args[0].name() for error in answers.values() if error is not None]

    def leave(self) -> None:
        self.consumer.close()


def _given(message: Message) -> Given:
    if message.error() is not None:
        raise KafkaException(message.error())
    return Given(message.partition(), message.offset(), message.value(), message.delivery_count())
