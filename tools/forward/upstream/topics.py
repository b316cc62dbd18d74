"""Topics upstream: are they there with enough partitions, made where they are missing; how large may their batches be?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ..errors import TopicStoppedError, TryAgainError
from ..source.source import SourceTopic
from .connection import BATCH_BYTES, CONNECT_S, UpstreamClients, Verdict, judge, words

if TYPE_CHECKING:
    from confluent_kafka import Consumer

CARRIED: Final = frozenset(
    {
        *("cleanup.policy", "max.message.bytes", "retention.ms", "delete.retention.ms"),
        *("min.compaction.lag.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "compression.type"),
    }
)
"""What a topic that is made takes over from the source: what its records are and how long they are kept. How a small machine
lays them on its flash (`segment.bytes`, `retention.bytes`) is its own matter, and so is a clock that stamps records: times are
kept."""
ADMIN_S: Final = 10.0
VISIBLE_S: Final = 10.0
POLL_S: Final = 0.1
MAX_MESSAGE_BYTES: Final = "max.message.bytes"


class UpstreamTopics:
    """Asked when a session begins. Owner: the session."""

    def __init__(self, clients: UpstreamClients, consumer: Consumer, create_config: Mapping[str, str]) -> None:
        self._clients = clients
        self._consumer = consumer
        self._create_config = create_config

    def partitions(self, target: str) -> int:
        """Return the number of partitions; 0: the topic does not exist. Raises TopicStoppedError, TryAgainError."""
        described = self._clients.patiently(
            lambda timeout_s: self._consumer.list_topics(target, timeout=timeout_s), self._poll, "no metadata"
        )
        topic = described.topics.get(target)
        if topic is None:
            return 0
        if topic.error is None:
            return len(topic.partitions)
        if topic.error.code() == 3:  # UNKNOWN_TOPIC_OR_PARTITION
            return 0
        if judge(topic.error.code()) is Verdict.TOPIC:
            raise TopicStoppedError(target, f"the upstream returned: {words(topic.error)}")
        raise TryAgainError(f"metadata of {target}: {words(topic.error)}")

    def check(self, topic: SourceTopic, target: str, *, creates: bool) -> None:
        """It is there and has a partition for each of the source's. Raises TopicStoppedError, TryAgainError."""
        there, wanted = self.partitions(target), max(topic.partitions, default=0) + 1
        if not there:
            how = f"kafka-topics.sh --create --topic {target} --partitions {wanted}"
            if not creates:
                raise TopicStoppedError(topic.name, f"the upstream has no topic {target}. Create it: {how}")
            self._create(topic, target, wanted, how)
        elif there < wanted:
            raise TopicStoppedError(
                topic.name,
                f"it has {wanted} partitions, but {target} upstream has {there}. Add partitions: kafka-topics.sh "
                f"--alter --topic {target} --partitions {wanted}",
            )

    def batch_bytes(self, targets: Iterable[str]) -> int:
        """The largest batch that all of these topics take, as far as the upstream tells."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        smallest = BATCH_BYTES
        resources = [ConfigResource(ResourceType.TOPIC, target) for target in targets]
        if not resources:
            return smallest
        admin = self._clients.admin()  # which must not go before its futures have come
        with contextlib.suppress(KafkaException):
            for future in admin.describe_configs(resources, request_timeout=ADMIN_S).values():
                with contextlib.suppress(KafkaException, TimeoutError):  # mostly for want of a right to know it
                    entry = future.result(ADMIN_S + 1).get(MAX_MESSAGE_BYTES)
                    if entry is not None and str(entry.value).isdigit():
                        smallest = min(smallest, int(entry.value))
        return max(smallest, 1)

    def _create(self, topic: SourceTopic, target: str, partitions: int, how: str) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        config = {key: value for key, value in topic.config.items() if key in CARRIED} | dict(self._create_config)
        admin = self._clients.admin()
        new = NewTopic(target, num_partitions=partitions, replication_factor=-1, config=config)
        try:
            admin.create_topics([new], operation_timeout=ADMIN_S, request_timeout=ADMIN_S)[target].result(CONNECT_S)
        except TimeoutError as exc:
            reason = self._clients.notices.explain("no response in time")
            raise TryAgainError(f"cannot create {target} at {self._clients.to}: {reason}") from exc
        except KafkaException as exc:
            error = exc.args[0]
            if error.code() != 36:  # TOPIC_ALREADY_EXISTS
                if error.code() < 0:
                    raise self._clients.failure(exc, f"cannot create {target}") from exc
                raise TopicStoppedError(
                    topic.name,
                    f"the upstream has no topic {target} and does not allow creating it ({words(error)}). Create it: {how}",
                ) from exc
        deadline = time.monotonic() + VISIBLE_S
        while self.partitions(target) < partitions:
            if time.monotonic() >= deadline:
                raise TryAgainError(f"{target} was created but is not visible yet")
            time.sleep(POLL_S)

    def _poll(self) -> None:
        self._consumer.poll(0)
