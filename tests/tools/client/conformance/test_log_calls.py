"""Calls on logs over connections that break, and addresses. `server/embedded/test_conformance.py` has what all faces do."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol import errors
from triolog.protocol.native import messages as m
from triolog.protocol.types import AppendResult, TopicPartition
from triolog.tools.client.config import address_of
from triolog.tools.client.errors import ConnectionLostError

from ..doors import Served, fill


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
