from __future__ import annotations

import socket
from functools import partial

import pytest
import trio
from triolog.protocol import errors
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.exchange import JOINED_BYTES
from triolog.tools.client.procedures.groups import CommittedOffset
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime

from ..doors import Door, Served
from ..test_connection import BATCH, produce_request

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


async def test_calls_give_messages_and_errors_of_partitions_stand_in_their_entries(served: Served) -> None:
    async with served.client() as client:
        assert (await client.hello()).server == "fake"
        assert (await client.produce(produce_request())).partitions[0].base_offset == 0
        assert await client.produce(produce_request(acks=0)) is None
        refused = await client.produce(produce_request("missing"))
        assert isinstance(refused.partitions[0].error, errors.UnknownTopicOrPartitionError)
        fetched = await client.call_fetch(m.FetchRequest((m.FetchPartition("t", 0, 0),)))
        assert len(fetched.partitions[0].records) == 2 * len(BATCH)
        lookup = m.OffsetsForTimesRequest((m.OffsetsForTimesPartition("t", 0, 5),))
        assert (await client.call(lookup)).partitions[0].offset == 0
        explained = await client.call(m.ExplainRequest((m.ExplainPartition("t", 0, offset=0),)))
        assert explained.partitions[0].walk is not None
        assert (await client.call(m.CreateTopicsRequest((m.NewTopic("u", 1),)))).topics[0].error is None
        assert [topic.name for topic in (await client.metadata(m.MetadataRequest())).topics] == ["t", "u"]
        assert "retention.ms" in (await client.describe_configs(m.DescribeConfigsRequest(("t",)))).topics[0].config
        assert (await client.call(m.DeleteTopicsRequest(("u",)))).topics[0].error is None


async def test_topics_are_administered(served: Served) -> None:
    served.server.logs["t"][0].append(build_batch([(10, None, b"a", ()), (20, None, b"b", ())]))
    async with served.client() as client:
        admin = served.door.admin(client)
        assert (await admin.create_topic("new", 3)).topic_id == "id"
        assert [topic.name for topic in await admin.list_topics()] == ["new", "t"]
        assert len((await admin.describe_topic("new")).partitions) == 3
        assert (await admin.describe_config("new"))["retention.ms"].source == "default"
        with pytest.raises(errors.TopicAlreadyExistsError, match="t exists"):
            await admin.create_topics([m.NewTopic("t", 1), m.NewTopic("u", 1)])
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await admin.delete_topics("missing", "u", "new")
        assert [topic.name for topic in await admin.list_topics()] == ["t"], "the others were tried"
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await admin.describe_topic("missing")
        await admin.create_partitions("t", 4)
        assert len((await admin.describe_topic("t")).partitions) == 4
        await admin.alter_config("t", {"retention.ms": "1"}, ["segment.bytes"])
        change = m.ConfigChange("t", {"retention.ms": "1"}, ("segment.bytes",))
        assert served.server.requests[-1] == m.AlterConfigsRequest((change,))
        assert await admin.delete_records({T0: 1, T1: -1}) == {T0: 1, T1: 0}


async def test_offsets_of_places_are_found_and_explained(served: Served) -> None:
    served.server.logs["t"][0].append(build_batch([(10, None, b"a", ()), (20, None, b"b", ())]))
    async with served.client() as client:
        admin = served.door.admin(client)
        assert await admin.offsets("t", EARLIEST) == {T0: 0, T1: 0}
        assert await admin.offsets("t", LATEST) == {T0: 2, T1: 0}
        assert await admin.offsets(T0, AtTime(11)) == {T0: 1}
        assert await admin.offsets(T0, AtTime(21)) == {T0: 2}, "its end, where there is no such record"
        assert await admin.offsets(T0, AtOffset(7)) == {T0: 7}
        found = await admin.offsets_for_times({T0: 11, T1: 11})
        assert [(found[part].offset, found[part].timestamp) for part in (T0, T1)] == [(1, 20), (-1, -1)]
        assert (await admin.explain(T0, AtTime(5)))["asked"]["timestamp"] == 5
        assert (await admin.explain(T0, AtOffset(6)))["asked"]["offset"] == 6


async def test_groups_are_administered(served: Served) -> None:
    async with served.client() as client:
        admin = served.door.admin(client)
        await admin.commit_group_offsets("g", {T0: 2})
        await admin.commit_group_offsets("nothing", {})
        assert await admin.list_groups() == ["g"]
        assert await admin.group_offsets("g") == {T0: CommittedOffset(2, None)}
        assert await admin.group_offsets("g", [T1]) == {}
        await admin.delete_groups("g")
        assert await admin.list_groups() == []
        with pytest.raises(errors.RequestError, match="no group g"):
            await admin.delete_groups("g")


async def test_a_connection_outlives_an_error_and_is_reopened_when_it_is_lost(
    served: Served,
) -> None:
    async with served.client() as client:
        served.faults_on(m.MetadataRequest, errors.InvalidRequestError("no"), "drop")
        with pytest.raises(errors.InvalidRequestError, match="no"):
            await client.metadata(m.MetadataRequest())
        assert served.server.connections == 1
        with pytest.raises(ConnectionLostError) as lost:
            await client.metadata(m.MetadataRequest())
        assert lost.value.retriable
        await served.move()
        await client.metadata(m.MetadataRequest())
        await client.metadata(m.MetadataRequest())
    assert served.server.connections == 2
    with pytest.raises(ClosedError):
        await client.metadata(m.MetadataRequest())


async def test_server_that_does_not_answer_is_given_up(served: Served) -> None:
    served.faults_on(m.MetadataRequest, trio.Event())
    async with served.client(ClientConfig(request_timeout_ms=50, reconnect_backoff_ms=1)) as client:
        with pytest.raises(errors.RequestTimedOutError, match="no response to "):
            await client.metadata(m.MetadataRequest())
        await client.metadata(m.MetadataRequest())


async def test_who_did_not_greet_is_named(door: Door) -> None:
    async def check(words: str) -> None:
        with pytest.raises(ConnectionLostError, match=f"could not connect to 127.0.0.1:{address[1]}: {words}"):
            async with door.client(lambda: address, ClientConfig(connect_timeout_ms=50)) as client:
                await client.hello()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        await check("no response ")
    await check("")
    async with trio.open_nursery() as nursery:
        (closing,) = await nursery.start(partial(trio.serve_tcp, trio.SocketStream.aclose, 0, host="127.0.0.1"))
        address = closing.socket.getsockname()
        await check("")
        nursery.cancel_scope.cancel()


async def test_a_request_of_more_buffers_than_the_kernel_takes_at_once_is_sent(served: Served) -> None:
    records = bytes(JOINED_BYTES // 2 + 1)  # two neighbours are too much to be joined
    request = m.ProduceRequest(tuple(m.ProducePartition("missing", number, records) for number in range(1100)))
    async with served.client() as client:
        assert len((await client.produce(request)).partitions) == 1100
