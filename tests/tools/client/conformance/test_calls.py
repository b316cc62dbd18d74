"""Calls of a client and of its admin. `server/embedded/test_conformance.py` has what all faces do."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest
import trio
from triolog.protocol import errors
from triolog.protocol.native import messages as m
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import AppendResult, TopicPartition
from triolog.tools.client.config import ClientConfig, address_of
from triolog.tools.client.errors import ClosedError, ConnectionLostError
from triolog.tools.client.exchange import JOINED_BYTES
from triolog.tools.client.procedures.groups import CommittedOffset
from triolog.tools.client.procedures.topics import EARLIEST, LATEST, AtOffset, AtTime

from tests.tools.client.doors import Door, Served, fill
from tests.tools.client.test_connection import BATCH, produce_request

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


@pytest.mark.parametrize("outcome", ["drop", "drop after"])
async def test_an_append_without_an_answer_is_stored_once(served: Served, outcome: str) -> None:
    async with served.client() as client:
        await client.append("t", [b"0"])
        served.faults_on(m.ProduceRequest, outcome)
        assert await client.append("t", [b"1", b"2"]) == AppendResult(1, 2, -1, 0)
        assert await client.append("t", [b"3"], expected_offset=3) == AppendResult(3, 3, -1, 0)
    assert served.values() == [b"0", b"1", b"2", b"3"]


async def test_whole_batches_and_other_acks_are_sent_once(served: Served) -> None:
    async with served.client() as client:
        served.faults_on(m.ProduceRequest, "drop", None, "drop")
        for acks in (0, 1):
            with pytest.raises(ConnectionLostError):
                await client.append("t", [b"a"], acks=1)
            assert (await client.append("t", [(5, None, b"b", (("h", b"x"),))], acks=acks)).base_offset in (-1, 1)
        assert [record.headers for record in await client.fetch("t")] == [(("h", b"x"),)] * 2


async def test_what_is_no_record_is_named_and_not_sent(served: Served) -> None:
    async with served.client() as client:
        for wrong in ([b"a", "text"], "text"):
            with pytest.raises(TypeError, match=r"^t(, record 1)?: .*str 'text'"):
                await client.append("t", wrong)
        with pytest.raises(errors.InvalidRequestError, match="no records"):
            await client.append("t", [])
    assert served.requests(m.ProduceRequest) == []


async def test_reads_are_repeated_and_a_follow_continues(served: Served) -> None:
    fill(served.server, 4)
    async with served.client() as client:
        follow = client.follow("t", max_wait_s=0)
        served.faults_on(m.FetchRequest, "drop", None, "drop")
        assert [record.offset for record in await client.fetch("t", 1)] == [1, 2, 3]
        assert [record.offset async for record in follow] == [0, 1, 2, 3]
        served.faults_on(m.OffsetsForTimesRequest, "drop")
        assert (await client.offset_for_time("t", 11)).offset == 2
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await client.offset_for_time("t", 0, partition=7)


async def test_a_transaction_whose_append_was_lost_is_repeated_whole(served: Served) -> None:
    async with served.client() as client:
        async with client.transaction("x") as transaction:
            served.faults_on(m.ProduceRequest, "drop after")
            await transaction.append("t", [b"a"])
            await transaction.commit_offsets("g", {TopicPartition("t", 0): 1})
        async with client.transaction("x") as transaction:
            await transaction.append("t", [b"b"])
        assert [record.value for record in await client.fetch("t")] == [b"a", b"b"]
    assert await served.committed() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("localhost", ("localhost", 9095)),
        ("10.0.0.7:1", ("10.0.0.7", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::1]", ("::1", 9095)),
        (("a", 2), ("a", 2)),
    ],
)
def test_a_server_is_named_by_its_host_and_port(server: Any, address: tuple[str, int]) -> None:
    assert address_of(server) == address
    assert address_of("localhost", 3) == ("localhost", 3)
    assert address_of("::1", 3) == ("::1", 3)


@pytest.mark.parametrize("server", ["", "a:", "a:0", "a:65536", "a b", "[::1", "a:x"])
def test_what_is_no_server_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid server .*: use host, host:port"):
        address_of(server)
