"""What a request costs grows with what it names, not with its square: a client that names a topic's thousand partitions must
not hold up everybody else. Counted in instructions of the interpreter, which are the same on every machine, idle or busy."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import trio.testing
from triolog.protocol.kafka.apis import APIS, Api, ApiKey
from triolog.protocol.kafka.entities import ITSELF
from triolog.protocol.kafka.messages.offsets import OffsetFetchRequestGroup
from triolog.protocol.kafka.messages.share_group_offsets import DescribeShareGroupOffsetsRequestGroup
from triolog.protocol.kafka.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatSubtopology,
    StreamsGroupHeartbeatTopology,
    StreamsGroupTopicInfo,
)
from triolog.protocol.types import TopicPartition
from triolog.server.groups.streams.values import StreamsStatusCode
from triolog.server.listeners.kafka.error_answers import element_of
from triolog.server.listeners.kafka.fake.subjects import TOPICS, Place

from tests.support.kafka_server import KafkaServer, batch, kafka_server
from tests.support.kafka_stream import KafkaStream

pytestmark = pytest.mark.full

FEW: Final = 20
TIMES: Final = 8
MANY: Final = TIMES * FEW
TOLERANCE: Final = 1.3
"""Of linear growth. A look at each of a topic's partitions for each of them would be two instructions each at the very least,
and is 1.6 and more."""

LARGE: Final = 1 << 20
FILLED: Final[dict[str, Any]] = {
    "acks": -1,
    "timeout_ms": 30_000,
    "group_id": "group",
    "generation_id_or_member_epoch": -1,
    "min_bytes": 0,
    "max_bytes": LARGE,
    "partition_max_bytes": LARGE,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "response_partition_limit": 2000,
    "validate_only": True,
}
"""Fields for which nothing, their default, would be refused before anything is done."""

PARTITION_APIS: Final = [(key, place) for key, places in TOPICS.items() for place in places if place.partitions is not None]
TOPIC_APIS: Final = [
    (key, place)
    for key, places in TOPICS.items()
    for place in places
    if place.partitions is None and key is not ApiKey.STREAMS_GROUP_HEARTBEAT
]
"""A topology makes sense only with all of its lists: `streams_heartbeat` has them."""


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """Every write is synced, and therefore takes a thread: whether a small one does otherwise depends on how busy it is."""
    async with kafka_server(fast_path, durability="fsync", auto_create_topics_enable=False) as server:
        yield server


@pytest.fixture
async def client(kafka: KafkaServer) -> AsyncIterator[KafkaStream]:
    async with kafka.connected() as connected:
        yield connected


@contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Instructions that this thread's interpreter carries out in the block: client, server and scheduler."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


def made(cls: type, **fields: Any) -> Any:
    """A structure with what it takes to be carried out."""
    value = cls()
    for name, content in {**FILLED, **fields}.items():
        if hasattr(value, name):
            setattr(value, name, content)
    return value


def request_of(api: Api, place: Place, topics: list[Any]) -> Any:
    outer, _, inner = place.path.rpartition(".")
    if not outer:
        return made(api.request, **{inner: topics})
    return made(api.request, **{outer: [made(element_of(api.request, outer), **{inner: topics})]})


def streams_heartbeat(names: list[str]) -> StreamsGroupHeartbeatRequest:
    """The first member of an application of its own: one part of its topology reads the topics and has a changelog for each,
    and hands on to another one through as many more."""
    changelogs, handed_on = [f"changelog-{name}" for name in names], [f"handed-on-{name}" for name in names]
    reader = made(
        StreamsGroupHeartbeatSubtopology,
        subtopology_id="reader",
        source_topics=names,
        state_changelog_topics=[made(StreamsGroupTopicInfo, name=name) for name in changelogs],
        repartition_sink_topics=handed_on,
    )
    heir = made(
        StreamsGroupHeartbeatSubtopology,
        subtopology_id="heir",
        repartition_source_topics=[made(StreamsGroupTopicInfo, name=name) for name in handed_on],
    )
    return made(
        StreamsGroupHeartbeatRequest,
        group_id=f"application-{len(names)}-{names[0]}",
        member_id="member",
        process_id="process",
        rebalance_timeout_ms=30_000,
        topology=StreamsGroupHeartbeatTopology(epoch=0, subtopologies=[reader, heir]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def topic_class(api: Api, place: Place) -> type:
    cls = api.request
    for name in place.path.split("."):
        cls = element_of(cls, name)
    return cls


async def cost(client: KafkaStream, api: Api, request: Any) -> int:
    """Of a request whose like was made before, so that nothing is loaded or compiled any more, of a server at rest."""
    await trio.testing.wait_all_tasks_blocked()
    with counting() as counted:
        await client.call(request, api.highest)
        return counted()


@pytest.mark.parametrize(("key", "place"), PARTITION_APIS, ids=lambda value: getattr(value, "name", None))
async def test_a_request_costs_what_its_partitions_cost(
    kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Place
) -> None:
    api = APIS[key]
    cls = topic_class(api, place)

    async def request(count: int) -> Any:
        name = f"topic-{count}"
        assert place.partitions is not None
        if name not in kafka.broker.topics.names():
            await kafka.broker.topics.create(name, count)
        partitions = list(range(count))
        if place.number != ITSELF:
            partition_class = element_of(cls, place.partitions)
            partitions = [made(partition_class, **{place.number: number, "records": batch("x")}) for number in partitions]
        fields = {place.name: name, "topic_id": kafka.topic_id(name), place.partitions: partitions}
        return request_of(api, place, [made(cls, **fields)])

    for count in (FEW, MANY):
        await client.call(await request(count), api.highest)
    few, many = [await cost(client, api, await request(count)) for count in (FEW, MANY)]
    assert few > FEW, "nothing was counted"
    assert many <= TOLERANCE * TIMES * few, f"{key.name}: {few} instructions for {FEW} partitions, {many} for {MANY}"


@pytest.mark.parametrize(("key", "place"), TOPIC_APIS, ids=lambda value: getattr(value, "name", None))
async def test_a_request_costs_what_its_topics_cost(kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Place) -> None:
    api = APIS[key]
    names = [f"topic-{number}" for number in range(MANY)]
    for name in names:
        await kafka.broker.topics.create(name)

    def request(count: int) -> Any:
        if place.name == ITSELF:
            return request_of(api, place, names[:count])
        cls = topic_class(api, place)
        return request_of(api, place, [made(cls, **{place.name: name, "count": 2}) for name in names[:count]])

    await client.call(request(1), api.highest)
    few, many = [await cost(client, api, request(count)) for count in (FEW, MANY)]
    assert few > FEW, "nothing was counted"
    assert many <= TOLERANCE * TIMES * few, f"{key.name}: {few} instructions for {FEW} topics, {many} for {MANY}"


async def test_a_topology_costs_what_its_topics_cost(kafka: KafkaServer, client: KafkaStream) -> None:
    """The topics are read, and those between the application's parts made."""
    api, costs = APIS[ApiKey.STREAMS_GROUP_HEARTBEAT], []
    for count in (1, FEW, MANY):
        names = [f"topic-{count}-{number}" for number in range(count)]
        for name in names:
            await kafka.broker.topics.create(name)
        await trio.testing.wait_all_tasks_blocked()
        with counting() as counted:
            answer = await client.call(streams_heartbeat(names), api.highest)
            costs.append(counted())
        assert (answer.error_code, answer.member_epoch) == (0, 1), answer
        assert StreamsStatusCode.MISSING_SOURCE_TOPICS not in {status.status_code for status in answer.status}
    _, few, many = costs
    assert many <= TOLERANCE * TIMES * few, f"{few} instructions for {FEW} topics, {many} for {MANY}"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (ApiKey.DESCRIBE_GROUPS, "groups"),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"),
        (ApiKey.SHARE_GROUP_DESCRIBE, "group_ids"),
        (ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids"),
        (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "groups"),
        (ApiKey.DELETE_GROUPS, "groups_names"),
        (ApiKey.OFFSET_FETCH, "groups"),
        (ApiKey.FIND_COORDINATOR, "coordinator_keys"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_request_costs_what_its_groups_cost(kafka: KafkaServer, client: KafkaStream, key: ApiKey, path: str) -> None:
    api = APIS[key]
    await kafka.broker.topics.create("topic")
    names = [f"group-{number}" for number in range(MANY)]
    for name in names:
        await kafka.broker.offsets.commit(name, [(TopicPartition("topic", 0), 7, None)])

    def request(count: int) -> Any:
        groups: list[Any] = names[:count]
        if key is ApiKey.OFFSET_FETCH:
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups]
        if key is ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
            groups = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in groups]
        return made(api.request, **{path: groups})

    await client.call(request(1), api.highest)
    few, many = [await cost(client, api, request(count)) for count in (FEW, MANY)]
    assert few > FEW, "nothing was counted"
    assert many <= TOLERANCE * TIMES * few, f"{key.name}: {few} instructions for {FEW} groups, {many} for {MANY}"


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ],
    ids=lambda value: value.name,
)
async def test_a_request_costs_what_its_configurations_cost(kafka: KafkaServer, client: KafkaStream, key: ApiKey) -> None:
    api = APIS[key]
    names = [f"topic-{number}" for number in range(MANY)]
    for name in names:
        await kafka.broker.topics.create(name)
    cls = element_of(api.request, "resources")

    def request(count: int) -> Any:
        return made(api.request, resources=[made(cls, resource_name=name) for name in names[:count]], validate_only=False)

    await client.call(request(1), api.highest)
    few, many = [await cost(client, api, request(count)) for count in (FEW, MANY)]
    assert few > FEW, "nothing was counted"
    assert many <= TOLERANCE * TIMES * few, f"{key.name}: {few} instructions for {FEW} topics, {many} for {MANY}"
