"""Requests about topics, their configuration and the cluster."""

from __future__ import annotations

from typing import Any, Final

from triolog.protocol.kafka.messages.topics import MetadataRequestTopic

from tests.kafka.differential.symbols import Symbol
from tests.support.kafka_admin import (
    APPEND,
    BROKER_TYPE,
    DELETE,
    NO_ID,
    SET,
    SUBTRACT,
    TOPIC_TYPE,
    alter,
    alter_incrementally,
    create_topics,
    delete_states,
    delete_topics,
    describe,
    more_partitions,
    new_topic,
)
from tests.support.kafka_wire import ask

from .world import GROUPS, TOPICS, TRANSACTIONAL_IDS, Step, Topic, World

KEPT: Final = {"retention.ms": "-1", "min.compaction.lag.ms": str(10**15)}
"""Nothing is deleted or compacted by itself."""
CONFIGS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "wide": {"segment.index.bytes": "64"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "2000", "segment.ms": "5000"},
    "packed": {"compression.type": "gzip"},
    "compacted": {"cleanup.policy": "compact"},
    "brief": {"message.timestamp.before.max.ms": "1000000000000000", "index.interval.bytes": "1"},
    "odd": {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact,delete", "compression.type": "lz4"},
}
PARTITIONS: Final = {"wide": 3, "plain": 2, "stamped": 2}
CHANGES: Final[tuple[tuple[str, str], ...]] = (
    ("max.message.bytes", "1500"),
    ("max.message.bytes", "1000000"),
    ("segment.bytes", "1048576"),
    ("segment.bytes", "bogus"),
    ("index.interval.bytes", "100"),
    ("compression.type", "zstd"),
    ("compression.type", "uncompressed"),
    ("compression.type", "producer"),
    ("compression.type", "none"),
    ("message.timestamp.type", "CreateTime"),
    ("message.timestamp.before.max.ms", "9223372036854775807"),
    ("message.timestamp.after.max.ms", "100"),
    ("delete.retention.ms", "5"),
    ("flush.messages", "0"),
    ("flush.messages", "1"),
    ("min.cleanable.dirty.ratio", "0.25"),
    ("min.cleanable.dirty.ratio", "2"),
    ("unclean.leader.election.enable", "true"),
    ("preallocate", "yes"),
    ("no.such.key", "1"),
)
DESCRIBED_KEYS: Final = ("retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "message.timestamp.type")


def create(world: World) -> Step:
    """One of the script's topics, whether it is there or not; sometimes with something wrong."""
    missing = [name for name in TOPICS if name not in world.topics]
    name = world.one_of(missing) if missing and world.chance(0.9) else world.one_of(TOPICS)
    partitions = world.mostly(PARTITIONS.get(name, 1), -1, 0, -2, usually=0.93)
    replicas = world.mostly(1, -1, 0, 2, usually=0.95)
    configs: dict[str, str | None] = {**KEPT, **CONFIGS[name]}
    if world.chance(0.06):
        configs[world.one_of(["retention.ms", "no.such.key"])] = world.one_of(["bogus", None])
    only_validates = world.chance(0.08)
    body = create_topics(new_topic(name, partitions, replicas, configs=configs), validate_only=only_validates)

    def learn(answer: Any) -> None:
        [topic] = answer["topics"]
        if topic["error_code"] == 0 and not only_validates:
            world.topics[name] = Topic(name, max(partitions, 1))
            if isinstance(topic["topic_id"], Symbol):
                world.topics[name].id = topic["topic_id"]

    # Kafka tells the id that a topic would have had, which is a deviation.
    versions = {"highest": 6} if only_validates else {"lowest": world.mostly(7, 0)}
    return world.step(body, learn=learn, changes_metadata=True, **versions)


def delete(world: World) -> Step:
    name = world.topic_name()

    def learn(answer: Any) -> None:
        if answer["responses"][0]["error_code"] == 0:
            del world.topics[name]

    if world.chance(0.5):
        return world.step(delete_topics(name), highest=5, learn=learn, changes_metadata=True)
    topic_id: Any = world.topics[name].id if name in world.topics else NO_ID
    named = (None, topic_id) if isinstance(topic_id, Symbol) and world.chance(0.5) else (name, NO_ID)
    return world.step(delete_states(named), lowest=6, learn=learn, changes_metadata=True)


def delete_all(world: World) -> Step:
    return world.step(delete_topics(*world.topics), highest=5, changes_metadata=True)


def grow(world: World) -> Step:
    name = world.topic_name()
    count = world.topics[name].partitions if name in world.topics else 1
    total = world.mostly(count + 1, count, count - 1, 0, -1, usually=0.5)
    if count >= 4:
        total = world.one_of([count, count - 1])
    only_validates = world.chance(0.2)

    def learn(answer: Any) -> None:
        if answer["results"][0]["error_code"] == 0 and not only_validates:
            world.topics[name].partitions = total

    body = more_partitions((name, total), validate_only=only_validates)
    return world.step(body, learn=learn, changes_metadata=True)


def describe_configs(world: World) -> Step:
    resources = [(world.mostly(TOPIC_TYPE, 99, usually=0.97), world.topic_name())]
    keys = world.mostly(None, list(DESCRIBED_KEYS), [], ["no.such.key"], usually=0.5)
    return world.step(describe(*resources, keys=keys, synonyms=world.chance(0.5), documentation=world.chance(0.2)))


def alter_configs(world: World) -> Step:
    name = world.topic_name()
    changes = [world.one_of(CHANGES)] if world.chance(0.8) else []
    configs: list[tuple[str, str | None]] = [*KEPT.items(), *CONFIGS.get(name, {}).items(), *changes]
    resource = (TOPIC_TYPE, name, list(dict(configs).items()))
    return world.step(alter(resource, validate_only=world.chance(0.2)), changes_metadata=True)


def alter_some(world: World) -> Step:
    key, value = world.one_of(CHANGES)
    operation = world.mostly(SET, DELETE, usually=0.7)
    change: tuple[str, int, str | None] = (key, operation, value if operation == SET else None)
    if world.chance(0.15):
        # Nothing is left of no policy: an empty one is a deviation, and the topics would differ from then on.
        change = ("cleanup.policy", *world.one_of([(APPEND, "compact"), (APPEND, "delete"), (APPEND, "x"), (SUBTRACT, "x")]))
    body = alter_incrementally((TOPIC_TYPE, world.topic_name(), [change]), validate_only=world.chance(0.1))
    return world.step(body, changes_metadata=True)


def metadata(world: World) -> Step:
    """Of some topics by name or id, of all, of none."""
    names = [world.topic_name() for _ in range(world.mostly(1, 2, 0))]
    by_id = world.chance(0.3)
    topics: list[MetadataRequestTopic] | None = [
        {"topic_id": world.topic_id(name), "name": None} if by_id else {"topic_id": NO_ID, "name": name}
        for name in dict.fromkeys(names)
    ]
    if world.chance(0.05):
        topics = [{"topic_id": NO_ID, "name": world.one_of(["", "bad name", "x" * 250, "..", "__share_group_state"])}]
    body = ask(
        "Metadata",
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=world.chance(0.3),
        include_topic_authorized_operations=world.chance(0.3),
    )

    def learn(answer: Any) -> None:
        for topic in answer["topics"]:
            if topic["name"] in world.topics and isinstance(topic["topic_id"], Symbol):
                world.topics[topic["name"]].id = topic["topic_id"]

    return world.step(body, lowest=12 if by_id else 4, learn=learn)


def describe_partitions(world: World) -> Step:
    topics = [{"name": name} for name in dict.fromkeys(world.topic_name() for _ in range(2))]
    return world.step(
        ask("DescribeTopicPartitions", topics=topics, response_partition_limit=world.mostly(2000, 1, 3), cursor=None)
    )


def cluster(world: World) -> Step:
    return world.step(
        ask(
            "DescribeCluster",
            include_cluster_authorized_operations=world.chance(0.5),
            endpoint_type=world.mostly(1, 9),
            include_fenced_brokers=world.chance(0.5),
        )
    )


def coordinator(world: World) -> Step:
    kind = world.mostly(0, 1, 3, usually=0.5)
    keys = [world.mostly(world.one_of(GROUPS if kind == 0 else TRANSACTIONAL_IDS), "", usually=0.95)]
    return world.step(ask("FindCoordinator", key=keys[0], key_type=kind, coordinator_keys=keys))


def describe_producers(world: World) -> Step:
    topics = [
        {"name": name, "partition_indexes": numbers} for name, numbers in world.partitions_of([world.topic_name()], 3).items()
    ]
    return world.step(ask("DescribeProducers", topics=topics))


def broker_configs(world: World) -> Step:
    """Keys that both have."""
    keys = ["num.partitions", "message.max.bytes", "log.segment.bytes", "no.such.key"]
    return world.step(describe((BROKER_TYPE, world.mostly("1", "7", "x")), keys=keys, synonyms=world.chance(0.5)))


def log_dirs(world: World) -> Step:
    """Of some partitions; both have one directory."""
    topics = [
        {"topic": name, "partitions": numbers}
        for name, numbers in world.partitions_of([world.topic_name() for _ in range(2)], 3).items()
    ]
    return world.step(ask("DescribeLogDirs", topics=topics))
