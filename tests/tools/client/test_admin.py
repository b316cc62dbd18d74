from __future__ import annotations

import pytest
from trio.testing import MockClock
from triolog.protocol.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from triolog.protocol.native.messages import NewTopic
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime

from tests.support.native_server import NativeServer

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


async def test_topics_are_created_listed_described_and_deleted(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client:
        admin = Admin(client)
        assert (await admin.create_topic("new", 3)).topic_id == "id"
        assert [topic.name for topic in await admin.list_topics()] == ["new", "t"]
        assert len((await admin.describe_topic("new")).partitions) == 3
        assert (await admin.describe_config("new"))["retention.ms"].source == "default"
        await admin.delete_topics("new")
        assert [topic.name for topic in await admin.list_topics()] == ["t"]


async def test_first_error_is_raised_after_the_others_were_tried(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client:
        admin = Admin(client)
        with pytest.raises(TopicAlreadyExistsError, match="t exists"):
            await admin.create_topics([NewTopic("t", 1), NewTopic("u", 1)])
        assert "u" in server.logs
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topics("missing", "u")
        assert "u" not in server.logs
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.describe_topic("missing")


async def test_offsets_of_places(server: NativeServer, clock: MockClock) -> None:
    server.logs["t"][0].append(build_batch([(10, None, b"a", ()), (20, None, b"b", ())]))
    async with connect(open_stream=server.open_stream) as client:
        admin = Admin(client)
        assert await admin.offsets("t", EARLIEST) == {T0: 0, T1: 0}
        assert await admin.offsets("t", LATEST) == {T0: 2, T1: 0}
        assert await admin.offsets(T0, AtTime(11)) == {T0: 1}
        assert await admin.offsets(T0, AtTime(21)) == {T0: 2}, "its end, where there is no such record"
        assert await admin.offsets(T0, AtOffset(7)) == {T0: 7}
        found = await admin.offsets_for_times({T0: 11, T1: 11})
        assert (found[T0].offset, found[T0].timestamp) == (1, 20)
        assert (found[T1].offset, found[T1].timestamp) == (-1, -1)


async def test_explain_tells_the_walk(server: NativeServer, clock: MockClock) -> None:
    async with connect(open_stream=server.open_stream) as client:
        admin = Admin(client)
        assert (await admin.explain(T0, AtTime(5)))["asked"]["timestamp"] == 5
        assert (await admin.explain(T0, AtOffset(6)))["asked"]["offset"] == 6
