"""Streams groups asked of Apache Kafka 4.3.1 and of triolog: the answers are the same, to the words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
import triolog
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.kafka.messages.streams_groups import (
    StreamsGroupCopartitionGroup,
    StreamsGroupEndpoint,
    StreamsGroupTaskIds,
    StreamsGroupTaskOffset,
)
from triolog.server.config.broker_config import Address
from triolog.server.fake.kafka.kafka_versions import maxima_of
from triolog.tools.bench.kafka.jars import kafka_jars

from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import KafkaWire, api_of, ask
from tests.support.streams_members import GROUP, PLAIN, SOURCE, heartbeat, internal, part, topology

# A broker starts. The commit tier has what it answered: server/listeners/kafka/test_streams_groups.py.

AT_ONCE: Final = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.assignment.interval.ms": "0",
}
COUNTED: Final = topology(part("0", source_topics=[SOURCE], state_changelog_topics=[internal("store-changelog")]))
JOINED: Final = part(
    "0",
    source_topics=[SOURCE, "five"],
    copartition_groups=[
        StreamsGroupCopartitionGroup(source_topics=[0, 1], source_topic_regex=[], repartition_source_topics=[])
    ],
)
IDS: Final = [StreamsGroupTaskIds(subtopology_id="0", partitions=[0])]


def owned(*numbers: int) -> dict[str, Any]:
    active = [StreamsGroupTaskIds(subtopology_id="0", partitions=list(numbers))] if numbers else []
    return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}


def standbys(count: int) -> Any:
    config = {"name": "streams.num.standby.replicas", "config_operation": 0, "value": str(count)}
    resource = {"resource_type": 32, "resource_name": GROUP, "configs": [config]}
    return ask("IncrementalAlterConfigs", resources=[resource], validate_only=False)


def describing(*groups: str) -> Any:
    return ask("StreamsGroupDescribe", group_ids=list(groups), include_authorized_operations=False)


REFUSED: Final = [
    heartbeat(instance_id="i"),
    heartbeat(task_offsets=[StreamsGroupTaskOffset(subtopology_id="0", partition=0, offset=0)]),
    heartbeat(task_end_offsets=[]),
    heartbeat(warmup_tasks=IDS, member_id=""),
    heartbeat(topology=topology(part("0", source_topics=[SOURCE], source_topic_regex=["t.*"]))),
    heartbeat(member_id=" "),
    heartbeat(group_id=""),
    heartbeat(rack_id=""),
    heartbeat(rebalance_timeout_ms=-1),
    heartbeat(active_tasks=IDS),
    heartbeat(standby_tasks=None),
    heartbeat(topology=None),
    heartbeat(-2),
    heartbeat(-3),
    heartbeat(1, active_tasks=[]),
    heartbeat(1, topology=PLAIN),
    heartbeat(1),
    heartbeat(-1),
    heartbeat(topology=topology(part("0", source_topics=["__consumer_offsets"]))),
    heartbeat(topology=topology(part("0", source_topics=["bad name"]))),
    heartbeat(topology=topology(part("0", source_topics=[SOURCE], state_changelog_topics=[internal("c", 3)]))),
    heartbeat(topology=topology(part("0", state_changelog_topics=[internal("c")]))),
    heartbeat(topology=topology(part("0", source_topics=[SOURCE]), part("1", repartition_source_topics=[internal("r")]))),
    heartbeat(
        topology=topology(
            part("0", source_topics=[SOURCE]),
            part("1", repartition_source_topics=[internal("r")], repartition_sink_topics=["r"]),
        )
    ),
    describing("unknown"),
]
RECONFIGURED: Final = heartbeat(4, **owned(0, 1))
"""Kafka's coordinator knows of a group's new configuration a moment after it was answered."""
LIVED: Final = [
    heartbeat(topology=COUNTED, user_endpoint=StreamsGroupEndpoint(host="here", port=1)),
    describing(GROUP),
    heartbeat(2),
    describing(GROUP),
    heartbeat(3),
    heartbeat(9),
    heartbeat(1),
    heartbeat(1, member_id="nobody"),
    heartbeat(3, **owned(0, 3)),
    heartbeat(3, active_tasks=[StreamsGroupTaskIds(subtopology_id="7", partitions=[0])], standby_tasks=[], warmup_tasks=[]),
    heartbeat(topology=PLAIN),
    heartbeat(topology=COUNTED, member_id="b", process_id="p2"),
    describing(GROUP),
    heartbeat(3),
    heartbeat(4, member_id="b"),
    heartbeat(3, **owned(0, 1)),
    heartbeat(4, member_id="b", **owned()),
    describing(GROUP),
    heartbeat(2, **owned(0)),
    standbys(1),
    RECONFIGURED,
    heartbeat(4, member_id="b", **owned(2)),
    describing(GROUP),
    ask("ListGroups", states_filter=[], types_filter=["streams"]),
    ask("ListGroups", states_filter=["Stable"], types_filter=[]),
    ask("DescribeGroups", groups=[GROUP]),
    ask("DeleteGroups", groups_names=[GROUP]),
    heartbeat(5, shutdown_application=True),
    heartbeat(5, member_id="b"),
    heartbeat(-1),
    heartbeat(5, member_id="b"),
    heartbeat(-1, member_id="b"),
    describing(GROUP),
    ask("ListGroups", states_filter=["Empty"], types_filter=[]),
    ask("DeleteGroups", groups_names=[GROUP]),
    describing(GROUP),
    heartbeat(group_id="joined", topology=topology(JOINED)),
    heartbeat(group_id="missing", topology=topology(part("0", source_topics=["d", "b", "a", "c"]))),
    heartbeat(group_id="stale", topology=topology(*PLAIN["subtopologies"], epoch=3)),
    heartbeat(group_id="stale", topology=PLAIN, member_id="b"),
    describing("joined"),
    describing("missing"),
    describing("stale"),
]
LEFT: Final = LIVED[-3:]
"""What is asked of groups that stay."""


def told(answer: Any) -> Any:
    return attrs.asdict(answer, value_serializer=lambda _instance, _field, value: value)


def answers(client: KafkaWire) -> list[Any]:
    client.call(create_topics(new_topic(SOURCE, 3), new_topic("five", 5)), 7)
    _until(
        client,
        ask("FindCoordinator", key_type=0, coordinator_keys=[GROUP]),
        lambda answer: answer.coordinators[0].error_code == 0,
    )
    _until(client, describing("unknown"), lambda answer: answer.groups[0].error_code == 69)
    found = []
    for body in (*REFUSED, *LIVED):
        if body is LIVED[2]:
            # Kafka makes internal topics after it has answered, and knows of them a moment later.
            found.append(_until(client, body, lambda answer: not answer.status))
        elif body is RECONFIGURED:
            found.append(_until(client, body, lambda answer: answer.member_epoch == 5))
        else:
            found.append(client.call(body, _version(body)))
    return [told(answer) for answer in found]


def _version(body: Any) -> int:
    key = api_of(body).key
    return min(APIS[key].highest, maxima_of("4.3")[key])


def _until(client: KafkaWire, body: Any, is_so: Callable[[Any], bool]) -> Any:
    while not is_so(answer := client.call(body, _version(body))):
        """Asked again: the answer says it when it is so."""
    return answer


def test_answers_are_those_of_kafka(kafka: KafkaCalls, tmp_path: Path) -> None:
    with triolog.blocking.open(tmp_path / "ours", for_tests=True, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
        with closing(KafkaWire.connect(broker.kafka)) as client:
            ours = answers(client)
    with KafkaBroker(tmp_path / "kafka", kafka_jars(), kafka, settings=AT_ONCE) as theirs:
        theirs.format()
        theirs.start()
        with closing(KafkaWire.connect(Address.parse(theirs.address))) as client:
            expected = answers(client)
        theirs.stop()
    for body, one, other in zip([*REFUSED, *LIVED], ours, expected, strict=True):
        assert one == other, body
    with triolog.blocking.open(theirs.log_directory, for_tests=True, kafka=Address("127.0.0.1", 0), lenient=False) as adopted:
        with closing(KafkaWire.connect(adopted.kafka)) as client:
            assert [told(client.call(body, 0)) for body in LEFT] == expected[-len(LEFT) :]
