from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from triolog.protocol.errors import InvalidRecordError, InvalidRequestError
from triolog.protocol.native.messages import ProduceRequest
from triolog.protocol.types import CompressionType
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.appender import Appended, Appender, ExpectedOffsetError
from triolog.tools.client.blocking import PlainRecord
from triolog.tools.client.connection import connect
from triolog.tools.client.errors import ConnectionLostError

from tests.support.native_server import NativeServer

from .doors import RETRIES, Served


@asynccontextmanager
async def appending(served: Served, **options: Any) -> AsyncIterator[Any]:
    async with served.client() as client:
        yield served.door.appender(client, **RETRIES | options)


async def test_an_append_goes_where_it_is_expected_or_nowhere(served: Served) -> None:
    async with appending(served, compression_type=CompressionType.GZIP) as appender:
        assert await appender.append("t", [b"a", b"b"], expected_offset=0) == Appended(0, 2)
        with pytest.raises(ExpectedOffsetError) as caught:
            await appender.append("t", [b"c"], expected_offset=1)
        assert caught.value.log_end_offset == 2
        assert await appender.append("t", [PlainRecord(5, b"k", b"c")], expected_offset=2) == Appended(2, 3)
        assert await appender.append("t", [b"d"], partition=1) == Appended(0, 1)
        with pytest.raises(InvalidRequestError, match="there are no records"):
            await appender.append("t", [])
    records = served.server.logs["t"][0].records()
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert (records[2].timestamp, records[2].key) == (5, b"k")
    assert len(served.server.logs["t"][0].producers) == 1


@pytest.mark.parametrize("outcome", ["drop", "drop after"])
async def test_a_lost_answer_is_no_refusal(served: Served, outcome: str) -> None:
    served.faults_on(ProduceRequest, outcome, outcome, None)
    async with appending(served) as appender:
        assert await appender.append("t", [b"a"], expected_offset=0) == Appended(0, 1)
        assert await appender.append("t", [b"b"], expected_offset=1) == Appended(1, 2)
    assert served.values() == [b"a", b"b"]


async def test_who_gave_up_begins_as_another_producer(served: Served) -> None:
    served.faults_on(ProduceRequest, "drop after", InvalidRecordError("no"), None)
    async with appending(served, delivery_timeout_ms=0) as appender:
        with pytest.raises(ConnectionLostError):
            await appender.append("t", [b"a"], expected_offset=0)
        with pytest.raises(InvalidRecordError):
            await appender.append("t", [b"b"], expected_offset=1)
        assert await appender.append("t", [b"c"], expected_offset=1) == Appended(1, 2)
    assert served.values() == [b"a", b"c"]


async def test_a_cancelled_append_leaves_no_hole_in_the_sequence(server: NativeServer, clock: MockClock) -> None:
    held = [trio.Event()]
    server.faults.append(lambda request: held.pop() if isinstance(request, ProduceRequest) and held else None)
    async with connect(open_stream=server.open_stream) as client:
        appender = Appender(client)
        with trio.move_on_after(1) as waiting:
            await appender.append("t", [b"a"], expected_offset=0)
        assert waiting.cancelled_caught
        assert await appender.append("t", [b"b"], expected_offset=1) == Appended(1, 2)


async def test_many_who_count_lose_nothing(broker: BlockingBroker) -> None:
    """Each adds 1 to the last number that it has seen; whoever was too late reads again."""
    host, port = broker.native
    losses = 0

    async def count(times: int) -> None:
        nonlocal losses
        async with connect(host, port) as client:
            appender = Appender(client)
            end = 0
            while times:
                try:
                    await appender.append("t", [b"%d" % (end + 1)], expected_offset=end)
                    times, end = times - 1, end + 1
                except ExpectedOffsetError as exc:
                    losses += 1
                    end = exc.log_end_offset

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(count, 15)
    assert [int(record.value or b"") for record in broker.fetch("t")] == list(range(1, 61))
    assert losses > 0
