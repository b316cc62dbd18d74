"""Changes of topics above a quota, at Apache Kafka 4.3.1 and at triolog: who is refused, and who has to be quiet.

Offsets that members of a consumer group commit at their epoch and at older ones (KIP-1251), to Apache Kafka 4.3.1 and to
triolog: who may is the same.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.groups import ConsumerGroupHeartbeatTopicPartitions
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

from tests.support import kafka_quotas
from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_wire import CLIENT_ID, KafkaWire, ask

# A broker starts. Scripts compare what is set and described (test_differential.py); the commit tier has what Kafka answered.

LAST: Final = [("user", "last")]
OWN: Final = [("client-id", CLIENT_ID)]


def wait_for_last(client: KafkaWire) -> None:
    """Kafka's controller takes quotas before its broker knows of them; what came first is known then, too."""
    client.call(kafka_quotas.altering((LAST, [("producer_byte_rate", 1.0)])), 1)
    while not client.call(kafka_quotas.asking(("user", 0, "last")), 1).entries:
        """Asked again: the answer says it when it is so."""


def clear(client: KafkaWire) -> None:
    while entries := client.call(kafka_quotas.asking(), 1).entries or ():
        for entry in entries:
            parts = [(each.entity_type, each.entity_name) for each in entry.entity]
            client.call(kafka_quotas.altering((parts, [(each.key, None) for each in entry.values])), 1)


def changes(address: Address) -> list[tuple[list[str], bool]]:
    """What becomes of changes of topics above a quota, and whether their client has to be quiet: each on a connection of its
    own, since nobody listens to who has to be quiet."""
    with closing(KafkaWire.connect(address)) as client:
        client.call(kafka_quotas.altering((OWN, [(kafka_quotas.MUTATIONS, 0.1)])), 1)
        wait_for_last(client)
    found = []
    for body, version in [*kafka_quotas.mutations(is_strict=True), *kafka_quotas.mutations(is_strict=False)]:
        with closing(KafkaWire.connect(address)) as client:
            answer = client.call(body, version)
            found.append((kafka_quotas.mutated(answer), answer.throttle_time_ms > 0))
    with closing(KafkaWire.connect(address)) as client:
        clear(client)
    return found


def test_changes_of_topics_are_limited_as_by_kafka(broker: BlockingBroker, apache: KafkaBroker) -> None:
    ours = changes(broker.kafka)
    assert changes(Address.parse(apache.address)) == ours
    refused, granted = (["THROTTLING_QUOTA_EXCEEDED"], True), (["NONE"], True)
    assert ours == [(["NONE"], False), *[refused] * 3, *[granted] * 4]


# A broker starts. The commit tier has the rules: server/groups/consumer/test_groups.py.

GROUP, TOPIC, PARTITIONS = "group", "topic", 6
TRIES: Final = 3
TIMEOUT_MS: Final = 60_000
ASSIGNOR: Final = {"server_assignor": "range"}


def heartbeat(client: KafkaWire, member: str, epoch: int, owned: list[Any] | None = None) -> Any:
    said: dict[str, Any] = {"topic_partitions": owned}
    if epoch == 0:
        said = {"topic_partitions": [], "subscribed_topic_names": [TOPIC], "rebalance_timeout_ms": TIMEOUT_MS, **ASSIGNOR}
    return client.call(ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id=member, member_epoch=epoch, **said), 1)


def commits(client: KafkaWire, member: str, epoch: int, version: int) -> list[int]:
    """The error of each partition alone, and of one that the group does not read."""
    codes = []
    for topic, number in [*((TOPIC, number) for number in range(PARTITIONS)), ("another", 0)]:
        part = {"partition_index": number, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [part]}]
        body = ask("OffsetCommit", group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member, topics=topics)
        answer = client.call(body, version)
        codes.append(answer.topics[0].partitions[0].error_code)
    return codes


def answers(client: KafkaWire) -> list[Any]:
    client.call(create_topics(new_topic(TOPIC, PARTITIONS), new_topic("another")), 7)
    find = ask("FindCoordinator", key_type=0, coordinator_keys=[GROUP])
    while client.call(find, 4).coordinators[0].error_code:
        """Asked again until there is a coordinator."""
    while (joined := heartbeat(client, "a", 0)).error_code or not joined.assignment.topic_partitions:
        """And until it knows of the topic."""
    first_epoch, found = joined.member_epoch, []
    epochs, owned = {"a": first_epoch}, {"a": _partitions(joined)}

    def beat(member: str) -> None:
        told = heartbeat(client, member, epochs[member], owned[member])
        found.append((member, told.error_code, told.member_epoch - first_epoch))
        epochs[member] = told.member_epoch
        if told.assignment is not None:
            owned[member] = _partitions(told)

    def commit_all() -> None:
        for member, epoch in epochs.items():
            for said in range(first_epoch - 1, epoch + 2):
                found.append((member, said - first_epoch, commits(client, member, said, 9)))

    commit_all()
    found.append(commits(client, "a", first_epoch, 8))
    for member in "bc":
        joined = heartbeat(client, member, 0)
        epochs[member], owned[member] = joined.member_epoch, _partitions(joined)
        beat("a")
        commit_all()  # "a" has to give something up
        for each in list(epochs) * TRIES:
            beat(each)
        commit_all()
    heartbeat(client, "b", -1)
    del epochs["b"]
    commit_all()
    return found


def _partitions(told: Any) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    return [{"topic_id": part.topic_id, "partitions": part.partitions} for part in told.assignment.topic_partitions]


def test_who_may_commit_is_the_same(broker: BlockingBroker, apache: KafkaBroker) -> None:
    with closing(KafkaWire.connect(broker.kafka)) as client:
        ours = answers(client)
    with closing(KafkaWire.connect(Address.parse(apache.address))) as client:
        expected = answers(client)
    assert ours == expected
    at_first = [codes for member, said, codes in expected[-20:] if (member, said) == ("a", 0)]
    assert at_first == [[0, 0, *[ErrorCode.STALE_MEMBER_EPOCH] * 5]]
