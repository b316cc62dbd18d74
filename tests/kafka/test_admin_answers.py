"""Administration asked of Apache Kafka and of triolog, both strict: the errors are the same, for the same names and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

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
    by_hand,
    create_topics,
    delete_records,
    delete_states,
    delete_topics,
    describe,
    more_partitions,
    new_topic,
)
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_wire import KafkaWire, ask

# A broker starts. The commit tier has the errors that it gave: server/listeners/kafka/test_create_topics.py and its neighbours.

Call = tuple[Any, int]

MAKING: Final[list[Call]] = [
    (create_topics(new_topic("many", 5), new_topic("one", -1, -1, configs={"retention.ms": "5"})), 7),
    (create_topics(new_topic("many", 0, 0), new_topic("validated"), validate_only=True), 7),
    (create_topics(new_topic("r0", 1, 0), new_topic("r3", 1, 3), new_topic("p0", 0), new_topic("pm", -2)), 6),
    (create_topics(new_topic("both", 0, 0), new_topic("rm", 1, -2)), 5),
    (create_topics(new_topic("dup"), new_topic("dup"), new_topic("beside")), 4),
    (create_topics(by_hand("a1", [1], [1]), by_hand("a2", [1], partitions=2), by_hand("a3", [1], replicas=1)), 7),
    (create_topics(by_hand("a4", []), by_hand("a5", [1, 1]), by_hand("a6", [9]), by_hand("a7", [1], [])), 7),
    (create_topics(*(new_topic(f"g{n}", -1, -1, [(k, [1]) for k in ks]) for n, ks in enumerate([(0, 2), (0, 0), (1,)]))), 7),
    (create_topics(*(new_topic(name) for name in ("bad name", "", ".", "..", "x" * 250, "__cluster_metadata"))), 7),
    (create_topics(new_topic("c1", configs={"no.such": "1"}), new_topic("c2", configs={"retention.ms": "x"})), 7),
    (create_topics(new_topic("c3", configs={"retention.ms": None}), new_topic("c4", configs={"flush.ms": "-1"})), 3),
    (create_topics(new_topic("c5", configs={"min.insync.replicas": "3", "unclean.leader.election.enable": "true"})), 2),
    (create_topics(new_topic("c6", configs={"remote.storage.enable": "true", "retention.ms": "1"})), 7),
    (create_topics(new_topic("c7", configs={"leader.replication.throttled.replicas": "0"})), 7),
    (create_topics(new_topic("on_e"), new_topic("x" * 249)), 7),
    (create_topics(new_topic("on.e")), 7),
]
DOWN, UP = 2, 1
SEVERAL_UPDATES: Final = [
    [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in updates]
    for updates in (
        [],
        [("group.version", 0, DOWN), ("no.such", 1, UP)],
        [("group.version", 0, DOWN), ("transaction.version", 1, DOWN)],
        [("group.version", 0, DOWN), ("group.version", 1, UP)],
        [("group.version", 1, UP), ("group.version", 0, UP)],
    )
]

USING: Final[list[Call]] = [
    (more_partitions(("many", 6), ("many", 7)), 3),
    (more_partitions(("many", 6), ("many2", 7), ("one", 1), ("a1", 1), ("beside", -1), validate_only=True), 2),
    (more_partitions(("many", 7, [[1]])), 1),
    (more_partitions(("many", 7, [[1], [9]])), 0),
    (more_partitions(("many", 7, [[1], [1, 1]])), 3),
    (more_partitions(("many", 7, [[1], []])), 3),
    (more_partitions(("many", 7, [])), 3),
    (more_partitions(("beside", 3)), 3),
    (delete_records(("many", 0, -1), ("many", 1, 5), ("many", 77, 0), ("many", 2, -2), ("nope", 0, 0)), 2),
    (describe((TOPIC_TYPE, "one"), (TOPIC_TYPE, "nope"), (TOPIC_TYPE, ""), (TOPIC_TYPE, "bad name")), 4),
    (describe((BROKER_TYPE, "1"), (BROKER_TYPE, ""), (BROKER_TYPE, "7"), (BROKER_TYPE, "x")), 1),
    (alter((TOPIC_TYPE, "one", [("retention.ms", "7")]), validate_only=True), 2),
    (alter((TOPIC_TYPE, "one", [("retention.ms", None)])), 1),
    (alter((TOPIC_TYPE, "one", [("no.such", "1")]), (TOPIC_TYPE, "nope", [("retention.ms", "1")])), 0),
    (alter((TOPIC_TYPE, "", [("retention.ms", "1")])), 2),
    (alter((TOPIC_TYPE, "one", [("retention.ms", "1"), ("retention.ms", "2")])), 2),
    (alter((BROKER_TYPE, "1", [("num.partitions", "2")]), (99, "1", []), (8, "1", [("root", "INFO")])), 2),
    (alter((BROKER_TYPE, "7", [("num.partitions", "2")])), 2),
    (alter_incrementally((TOPIC_TYPE, "one", [("retention.ms", SET, "9"), ("segment.ms", SET, "100")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("retention.ms", DELETE, None), ("no.such", DELETE, None)])), 0),
    (alter_incrementally((TOPIC_TYPE, "one", [("no.such", SET, "1")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("retention.ms", SET, None)])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("retention.ms", APPEND, "1")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("no.such", APPEND, "1")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("cleanup.policy", APPEND, "compact,compact")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("cleanup.policy", SUBTRACT, "nothing,delete")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("cleanup.policy", APPEND, "bogus")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("flush.ms", SET, "1"), ("flush.ms", SET, "2")])), 1),
    (alter_incrementally((TOPIC_TYPE, "one", [("leader.replication.throttled.replicas", APPEND, "x")])), 1),
    (alter_incrementally((TOPIC_TYPE, "nope", [("flush.ms", SET, "1")]), (99, "x", [("flush.ms", SET, "1")])), 1),
    (alter_incrementally((BROKER_TYPE, "1", [("num.partitions", SET, "2")])), 1),
    *((ask("ListConfigResources", resource_types=types), 1) for types in ([], [2], [4], [16], [99])),
    *(
        (ask("DescribeCluster", include_cluster_authorized_operations=True, endpoint_type=kind, include_fenced_brokers=True), 2)
        for kind in (0, 1, 2, 9)
    ),
    *(
        (
            ask(
                "DescribeTopicPartitions",
                topics=[{"name": name} for name in names],
                response_partition_limit=limit,
                cursor=cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
            ),
            0,
        )
        for names, limit, cursor in [
            (["one", "many", "nope", "bad name"], 3, None),
            (["one", "many", "nope"], 2000, ("many", 3)),
            (["one", "many"], 5, None),
            (["one", "many"], 0, ("many", 4)),
            (["one", "many"], 9, ("zzz", 0)),
            (["one", "many"], 9, ("many", -1)),
            ([], 4, ("many", 2)),
        ]
    ),
    *(
        (ask("ElectLeaders", election_type=kind, topic_partitions=[{"topic": name, "partitions": [0, 77]}]), version)
        for kind, name, version in [(0, "many", 0), (0, "many", 2), (1, "many", 2), (1, "nope", 1), (9, "many", 2)]
    ),
    *(
        (
            ask(
                "AlterPartitionReassignments",
                topics=[
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": number, "replicas": replicas}
                            for number, replicas in enumerate([None, [1], [], [9], [1, 1]])
                        ],
                    }
                ],
            ),
            1,
        )
        for name in ("many", "nope")
    ),
    *(
        (
            ask(
                "DescribeClientQuotas",
                components=[
                    {"entity_type": kind, "match_type": match_type, "match": match} for kind, match_type, match in components
                ],
                strict=False,
            ),
            1,
        )
        for components in [
            [],
            [("user", 0, "a")],
            [("group", 0, "a")],
            [("", 0, "a")],
            [("user", 7, "a")],
            [("user", 0, None)],
            [("user", 1, "x")],
            [("user", 2, None), ("user", 2, None)],
            [("ip", 0, "127.0.0.1"), ("user", 2, None)],
        ]
    ),
    *(
        (ask("UpdateFeatures", feature_updates=[{"feature": name, "max_version_level": level}], validate_only=True), version)
        for name, level, version in [("group.version", 1, 1), ("group.version", 9, 2), ("no.such", 1, 1), ("", 1, 2)]
    ),
    *(
        (
            ask(
                "UpdateFeatures",
                feature_updates=[{"feature": name, "max_version_level": level, "upgrade_type": kind}],
                validate_only=True,
            ),
            2,
        )
        for name in ("group.version", "streams.version", "transaction.version", "no.such")
        for level in range(-1, 4)
        for kind in range(4)
    ),
    *((ask("UpdateFeatures", feature_updates=updates, validate_only=True), 1) for updates in SEVERAL_UPDATES),
    (delete_topics("nope", "beside", "beside"), 5),
    (delete_states(("nope", NO_ID), (None, NO_ID), ("both", bytes(15) + b"y")), 6),
    (delete_states((None, bytes(15) + b"x")), 6),
    (delete_states(("c5", NO_ID), ("c5", NO_ID), ("a1", NO_ID)), 6),
]


def errors(answer: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """(names and numbers on the way, the error there) of everything in an answer that can have an error."""
    fields = {attribute.name: getattr(answer, attribute.name) for attribute in attrs.fields(type(answer))}
    naming = ("name", "topic", "resource_type", "resource_name", "partition_index", "partition_id", "feature")
    place = (*place, *(fields[name] for name in naming if name in fields))
    if "error_code" in fields:
        yield place, ErrorCode(fields["error_code"]).name
    for value in fields.values():
        for each in value if isinstance(value, list) else ():
            if attrs.has(type(each)):
                yield from errors(each, place)


def answers(client: KafkaWire, calls: list[Call]) -> list[dict[tuple[Any, ...], str]]:
    return [dict(errors(client.call(body, version))) for body, version in calls]


def wait_for_topics(client: KafkaWire) -> None:
    """Kafka's controller makes topics before its broker knows of them."""
    everything = ask(
        "Metadata", topics=None, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    while not {"x" * 249, "c5", "a1"} <= {topic.name for topic in client.call(everything, 12).topics}:
        """Asked again: the answer says it when it is so."""


def test_errors_are_those_of_kafka(broker: BlockingBroker, apache: KafkaBroker) -> None:
    with closing(KafkaWire.connect(broker.kafka)) as client:
        ours = [answers(client, calls) for calls in (MAKING, USING)]
    with closing(KafkaWire.connect(Address.parse(apache.address))) as client:
        expected = [answers(client, MAKING)]
        wait_for_topics(client)
        expected.append(answers(client, USING))
    for calls, found, wanted in zip((MAKING, USING), ours, expected, strict=True):
        for (body, version), one, other in zip(calls, found, wanted, strict=True):
            assert one == other, f"v{version} {body}"
