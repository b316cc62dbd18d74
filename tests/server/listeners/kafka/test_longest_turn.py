"""What a request of thousands of elements costs is spread over turns of the event loop. Counted in the interpreter's
instructions of the longest turn of any of the server's tasks: what is read and written in one go costs some for each element,
what is looked up for it would cost hundreds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import attrs
import pytest
import trio
from triolog.protocol.kafka.apis import APIS, ApiKey
from triolog.protocol.kafka.messages.admin.acls import DeleteAclsFilter
from triolog.protocol.kafka.messages.offsets import OffsetFetchRequestGroup
from triolog.protocol.kafka.messages.produce import ProduceRequest
from triolog.protocol.kafka.messages.share_group_offsets import DescribeShareGroupOffsetsRequestGroup
from triolog.protocol.kafka.messages.streams_groups import StreamsGroupHeartbeatRequest
from triolog.server.listeners.kafka.error_answers import element_of

from tests.server.listeners.kafka.test_cost import made, request_of, streams_heartbeat, topic_class
from tests.support.kafka_server import KafkaServer, batch, produce_request
from tests.support.kafka_stream import KafkaStream

from .test_cost import PARTITION_APIS, TOPIC_APIS

COUNT: Final = 300
LISTS: Final = 4
"""Of topics, in a topology."""
PER_ELEMENT: Final = 340
"""Of the longest turn, which reads all elements or writes their answers; error codes are gathered in the same one. All of the
work for an element is 500 to 9,000."""
pytestmark = pytest.mark.full

ELSEWHERE: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,  # one batch of the group's log, whose records are written in one go
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_RECORDS,  # what a directory knows of its logs is written once for all of them
    }
)


class Longest(trio.abc.Instrument):
    """The most instructions that a task of the server has carried out between two turns of others."""

    def __init__(self, client: trio.lowlevel.Task) -> None:
        self.client = client
        self.count = self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self.client:
            self.most = max(self.most, self.count)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self.trace


@contextmanager
def longest_turn() -> Iterator[Callable[[], int]]:
    longest, before = Longest(trio.lowlevel.current_task()), sys.gettrace()
    trio.lowlevel.add_instrument(longest)
    sys.settrace(longest.trace)
    try:
        yield lambda: longest.most
    finally:
        sys.settrace(before)
        trio.lowlevel.remove_instrument(longest)


async def check(client: KafkaStream, key: ApiKey, request: Callable[[int], Any]) -> None:
    version = APIS[key].highest
    await client.call(request(2), version)  # everything is loaded and compiled
    with longest_turn() as longest:
        await client.call(request(COUNT), version)
        most = longest()
    assert most > COUNT, "nothing was counted"
    assert most < PER_ELEMENT * COUNT, f"{key.name}: {most} instructions in one turn for {COUNT} elements"


@pytest.mark.parametrize(
    ("key", "place"),
    [each for each in PARTITION_APIS if each[0] not in ELSEWHERE],
    ids=lambda value: getattr(value, "name", None),
)
async def test_missing_partitions_are_looked_for_in_turns(
    kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Any
) -> None:
    api = APIS[key]
    cls = topic_class(api, place)

    def request(count: int) -> Any:
        partitions: list[Any] = list(range(1000, 1000 + count))
        if place.number:
            inner = element_of(cls, place.partitions)
            partitions = [made(inner, **{place.number: number}) for number in partitions]
        fields = {place.name: "topic", "topic_id": kafka.topic_id(), place.partitions: partitions}
        return request_of(api, place, [made(cls, **fields)])

    await check(client, key, request)


async def test_a_produce_to_missing_partitions_looks_for_them_in_turns(kafka: KafkaServer, client: KafkaStream) -> None:
    """What has a batch gets as far as the logs."""
    records = batch("x")

    def request(count: int) -> ProduceRequest:
        asked = produce_request(records, topic_id=kafka.topic_id())
        [only] = asked.topic_data[0].partition_data
        asked.topic_data[0].partition_data = [attrs.evolve(only, index=1000 + number) for number in range(count)]
        return asked

    await check(client, ApiKey.PRODUCE, request)


@pytest.mark.parametrize(("key", "place"), TOPIC_APIS, ids=lambda value: getattr(value, "name", None))
async def test_missing_topics_are_looked_for_in_turns(kafka: KafkaServer, client: KafkaStream, key: ApiKey, place: Any) -> None:
    api = APIS[key]

    def request(count: int) -> Any:
        names = [f"missing {number}" for number in range(count)]  # nobody makes them
        if not place.name:
            return request_of(api, place, names)
        cls = topic_class(api, place)
        return request_of(api, place, [made(cls, **{place.name: name, "count": 2}) for name in names])

    await check(client, key, request)


async def test_the_topics_of_a_topology_are_looked_for_in_turns(kafka: KafkaServer, client: KafkaStream) -> None:
    def request(count: int) -> StreamsGroupHeartbeatRequest:
        return streams_heartbeat([f"missing-{number}" for number in range(max(1, count // LISTS))])

    await check(client, ApiKey.STREAMS_GROUP_HEARTBEAT, request)


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
        (ApiKey.DESCRIBE_TRANSACTIONS, "transactional_ids"),
        (ApiKey.DESCRIBE_CONFIGS, "resources"),
        (ApiKey.ALTER_CONFIGS, "resources"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources"),
        (ApiKey.DELETE_ACLS, "filters"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_what_else_is_named_is_looked_for_in_turns(client: KafkaStream, key: ApiKey, path: str) -> None:
    api = APIS[key]

    def element(number: int) -> Any:
        if key is ApiKey.OFFSET_FETCH:
            return OffsetFetchRequestGroup(group_id=f"group-{number}", topics=None)
        if key is ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
            return DescribeShareGroupOffsetsRequestGroup(group_id=f"group-{number}", topics=None)
        if key is ApiKey.DELETE_ACLS:
            return DeleteAclsFilter(resource_name_filter=f"name-{number}", principal_filter=None, host_filter=None)
        if path == "resources":
            return made(element_of(api.request, path), resource_name=f"missing-{number}")
        return f"name-{number}"

    await check(client, key, lambda count: made(api.request, **{path: [element(number) for number in range(count)]}))
