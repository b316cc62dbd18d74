"""What a request costs grows with what it names, not with its square, and is spread over turns of the event loop: a client that
names a topic's thousand partitions must not hold up everybody else. Counted in instructions of the interpreter, which are the
same on every machine, idle or busy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import pytest
import trio
import trio.testing
from triolog.protocol.kafka.apis import APIS, ITSELF, Api, ApiKey
from triolog.protocol.kafka.messages import streams_groups
from triolog.protocol.kafka.messages.offsets import OffsetFetchRequestGroup
from triolog.protocol.kafka.messages.security import DescribeAclsRequest
from triolog.protocol.kafka.messages.share_groups import DescribeShareGroupOffsetsRequestGroup
from triolog.protocol.types import TopicPartition
from triolog.server.fake.kafka.subjects import TOPICS, Place
from triolog.server.groups.streams.values import StreamsStatusCode
from triolog.server.listeners.kafka.error_answers import element_of

from tests.support.kafka_server import TOPIC, KafkaServer, batch
from tests.support.kafka_stream import KafkaStream

pytestmark = pytest.mark.merge

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

GROUP_APIS: Final = [
    (ApiKey.DESCRIBE_GROUPS, "groups"),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    (ApiKey.SHARE_GROUP_DESCRIBE, "group_ids"),
    (ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids"),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "groups"),
    (ApiKey.DELETE_GROUPS, "groups_names"),
    (ApiKey.OFFSET_FETCH, "groups"),
    (ApiKey.FIND_COORDINATOR, "coordinator_keys"),
]
CONFIG_APIS: Final = [ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS]

COUNT: Final = 300
LISTS: Final = 4
"""Of topics, in a topology."""
PER_ELEMENT: Final = 340
"""Of the longest turn, which reads all elements or writes their answers; error codes are gathered in the same one. All of the
work for an element is 500 to 9,000."""
ELSEWHERE: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,  # one batch of the group's log, whose records are written in one go
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_RECORDS,  # what a directory knows of its logs is written once for all of them
    }
)


@pytest.fixture
def settings() -> dict[str, Any]:
    """Every write is synced, and therefore takes a thread: whether a small one does otherwise depends on how busy it is."""
    return {"durability": "fsync", "auto_create_topics_enable": False}


@contextmanager
def counting() -> Iterator[Callable[[], int]]:
    """Instructions that this thread's interpreter carries out in the block: client, server and scheduler."""
    count = 0

    def opcode(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        return opcode

    def call(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return opcode

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


class Longest(trio.abc.Instrument):
    """The most instructions that a task of the server has carried out between two turns of others."""

    def __init__(self, counted: Callable[[], int]) -> None:
        self.client, self.counted = trio.lowlevel.current_task(), counted
        self.before = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.before = self.counted()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self.client:
            self.most = max(self.most, self.counted() - self.before)


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


def streams_heartbeat(names: list[str]) -> streams_groups.StreamsGroupHeartbeatRequest:
    """The first member of an application of its own: one part of its topology reads the topics and has a changelog for each,
    and hands on to another one through as many more."""
    changelogs, handed_on = [f"changelog-{name}" for name in names], [f"handed-on-{name}" for name in names]
    reader = made(
        streams_groups.StreamsGroupHeartbeatSubtopology,
        subtopology_id="reader",
        source_topics=names,
        state_changelog_topics=[made(streams_groups.StreamsGroupTopicInfo, name=name) for name in changelogs],
        repartition_sink_topics=handed_on,
    )
    heir = made(
        streams_groups.StreamsGroupHeartbeatSubtopology,
        subtopology_id="heir",
        repartition_source_topics=[made(streams_groups.StreamsGroupTopicInfo, name=name) for name in handed_on],
    )
    return made(
        streams_groups.StreamsGroupHeartbeatRequest,
        group_id=f"application-{len(names)}-{names[0]}",
        member_id="member",
        process_id="process",
        rebalance_timeout_ms=30_000,
        topology=streams_groups.StreamsGroupHeartbeatTopology(epoch=0, subtopologies=[reader, heir]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def topic_class(api: Api, place: Place) -> type:
    cls = api.request
    for name in place.path.split("."):
        cls = element_of(cls, name)
    return cls


def of_partitions(kafka: KafkaServer, key: ApiKey, place: Place, name: str, numbers: range, **fields: Any) -> Any:
    """A request that names these partitions of one topic."""
    assert place.partitions is not None
    cls, partitions = topic_class(APIS[key], place), list[Any](numbers)
    if place.number != ITSELF:
        inner = element_of(cls, place.partitions)
        partitions = [made(inner, **{place.number: number}, **fields) for number in partitions]
    named = {place.name: name, "topic_id": kafka.topic_id(name), place.partitions: partitions}
    return request_of(APIS[key], place, [made(cls, **named)])


def of_topics(key: ApiKey, place: Place, names: list[str]) -> Any:
    if place.name == ITSELF:
        return request_of(APIS[key], place, names)
    cls = topic_class(APIS[key], place)
    return request_of(APIS[key], place, [made(cls, **{place.name: name, "count": 2}) for name in names])


def of_others(key: ApiKey, path: str, names: list[str]) -> Any:
    """A request that names groups, transactional ids, resources or filters."""
    elements: list[Any] = names
    if key is ApiKey.OFFSET_FETCH:
        elements = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    elif key is ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
        elements = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in names]
    elif key is ApiKey.DELETE_ACLS:
        elements = [DescribeAclsRequest(resource_name_filter=name, principal_filter=None, host_filter=None) for name in names]
    elif path == "resources":
        elements = [made(element_of(APIS[key].request, path), resource_name=name) for name in names]
    return made(APIS[key].request, **{path: elements, "validate_only": False})


def by_name(value: Any) -> str | None:
    return getattr(value, "name", None)


async def cost(client: KafkaStream, key: ApiKey, request: Any) -> int:
    """Of a request whose like was made before, so that nothing is loaded or compiled any more, of a server at rest."""
    await trio.testing.wait_all_tasks_blocked()
    with counting() as counted:
        await client.call(request, APIS[key].highest)
        return counted()


async def check_growth(client: KafkaStream, key: ApiKey, request: Callable[[int], Any], warm: tuple[int, ...] = (1,)) -> None:
    for count in warm:
        await client.call(request(count), APIS[key].highest)
    few, many = [await cost(client, key, request(count)) for count in (FEW, MANY)]
    assert few > FEW, "nothing was counted"
    assert many <= TOLERANCE * TIMES * few, f"{key.name}: {few} instructions for {FEW} elements, {many} for {MANY}"


async def topics_made(kafka: KafkaServer, count: int) -> list[str]:
    names = [f"topic-{number}" for number in range(count)]
    for name in names:
        await kafka.broker.topics.create(name)
    return names


@pytest.mark.parametrize(("key", "place"), PARTITION_APIS, ids=by_name)
async def test_cost_grows_with_partitions(kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Place) -> None:
    for count in (FEW, MANY):
        await kafka.broker.topics.create(f"topic-{count}", count)

    def request(count: int) -> Any:
        return of_partitions(kafka, key, place, f"topic-{count}", range(count), records=batch("x"))

    await check_growth(client, key, request, warm=(FEW, MANY))


@pytest.mark.parametrize(("key", "place"), TOPIC_APIS, ids=by_name)
async def test_a_request_costs_what_its_topics_cost(kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Place) -> None:
    names = await topics_made(kafka, MANY)
    await check_growth(client, key, lambda count: of_topics(key, place, names[:count]))


async def test_a_topology_costs_what_its_topics_cost(kafka: KafkaServer, client: KafkaStream) -> None:
    """The topics are read, and those between the application's parts made."""
    key, costs = ApiKey.STREAMS_GROUP_HEARTBEAT, []
    for count in (1, FEW, MANY):
        names = [f"topic-{count}-{number}" for number in range(count)]
        for name in names:
            await kafka.broker.topics.create(name)
        await trio.testing.wait_all_tasks_blocked()
        with counting() as counted:
            answer = await client.call(streams_heartbeat(names), APIS[key].highest)
            costs.append(counted())
        assert (answer.error_code, answer.member_epoch) == (0, 1), answer
        assert StreamsStatusCode.MISSING_SOURCE_TOPICS not in {status.status_code for status in answer.status}
    _, few, many = costs
    assert many <= TOLERANCE * TIMES * few, f"{few} instructions for {FEW} topics, {many} for {MANY}"


@pytest.mark.parametrize(("key", "path"), GROUP_APIS, ids=by_name)
async def test_a_request_costs_what_its_groups_cost(kafka: KafkaServer, client: KafkaStream, key: ApiKey, path: str) -> None:
    names = [f"group-{number}" for number in range(MANY)]
    for name in names:
        await kafka.broker.offsets.commit(name, [(TopicPartition(TOPIC, 0), 7, None)])
    await check_growth(client, key, lambda count: of_others(key, path, names[:count]))


@pytest.mark.parametrize("key", CONFIG_APIS, ids=by_name)
async def test_a_request_costs_what_its_configurations_cost(kafka: KafkaServer, client: KafkaStream, key: ApiKey) -> None:
    names = await topics_made(kafka, MANY)
    await check_growth(client, key, lambda count: of_others(key, "resources", names[:count]))


async def check_turns(client: KafkaStream, key: ApiKey, request: Callable[[int], Any]) -> None:
    """That a request of thousands of elements is not looked into in one turn: what is read and written in one go costs some
    for each element, what is looked up for it would cost hundreds."""
    await client.call(request(2), APIS[key].highest)  # everything is loaded and compiled
    with counting() as counted:
        longest = Longest(counted)
        trio.lowlevel.add_instrument(longest)
        await client.call(request(COUNT), APIS[key].highest)
        trio.lowlevel.remove_instrument(longest)
    assert longest.most > COUNT, "nothing was counted"
    assert longest.most < PER_ELEMENT * COUNT, f"{key.name}: {longest.most} instructions in one turn for {COUNT} elements"


@pytest.mark.parametrize(("key", "place"), [each for each in PARTITION_APIS if each[0] not in ELSEWHERE], ids=by_name)
async def test_missing_partitions_take_turns(kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Place) -> None:
    def request(count: int) -> Any:
        return of_partitions(kafka, key, place, TOPIC, range(1000, 1000 + count))

    await check_turns(client, key, request)


async def test_a_produce_to_missing_partitions_looks_for_them_in_turns(kafka: KafkaServer, client: KafkaStream) -> None:
    """What has a batch gets as far as the logs."""
    [place] = [place for key, place in PARTITION_APIS if key is ApiKey.PRODUCE]

    def request(count: int) -> Any:
        return of_partitions(kafka, ApiKey.PRODUCE, place, TOPIC, range(1000, 1000 + count), records=batch("x"))

    await check_turns(client, ApiKey.PRODUCE, request)


@pytest.mark.parametrize(("key", "place"), TOPIC_APIS, ids=by_name)
async def test_missing_topics_are_looked_for_in_turns(client: KafkaStream, key: ApiKey, place: Place) -> None:
    names = [f"missing {number}" for number in range(COUNT)]  # nobody makes them
    await check_turns(client, key, lambda count: of_topics(key, place, names[:count]))


async def test_the_topics_of_a_topology_are_looked_for_in_turns(client: KafkaStream) -> None:
    def request(count: int) -> streams_groups.StreamsGroupHeartbeatRequest:
        return streams_heartbeat([f"missing-{number}" for number in range(max(1, count // LISTS))])

    await check_turns(client, ApiKey.STREAMS_GROUP_HEARTBEAT, request)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        *GROUP_APIS,
        *((key, "resources") for key in CONFIG_APIS),
        (ApiKey.DESCRIBE_TRANSACTIONS, "transactional_ids"),
        (ApiKey.DELETE_ACLS, "filters"),
    ],
    ids=by_name,
)
async def test_what_else_is_named_is_looked_for_in_turns(client: KafkaStream, key: ApiKey, path: str) -> None:
    names = [f"missing-{number}" for number in range(COUNT)]
    await check_turns(client, key, lambda count: of_others(key, path, names[:count]))
