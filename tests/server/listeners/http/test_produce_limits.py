"""Memory and quotas of appends over HTTP: what a request holds is charged to its client, and given back."""

from __future__ import annotations

from pathlib import Path

import trio
from triolog.server.config.broker_config import Address
from triolog.server.listeners.addresses import Addresses
from triolog.server.listeners.opening import Listeners

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, until, values_from
from tests.support.http_producer import JSON_V2, NDJSON

LOCALHOST = Address("127.0.0.1", 0)
PIECE = b"x" * 60_000


async def test_streams_hold_memory_that_their_client_is_charged_for(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        budget = listeners.admission.budget
        head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: "
        for content_type, held in ((NDJSON, 3), (JSON_V2, 6)):
            async with await trio.open_tcp_stream(*addresses.http) as stream:
                await stream.send_all(f"{head}{content_type}\r\n\r\n".encode())
                for number in range(1, 6):
                    await stream.send_all(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))
                    await until(lambda: budget.held == held * number * len(PIECE))  # noqa: B023 - it is awaited here
                assert budget.used > 0
            await until(lambda: budget.held == 0 and not budget.shares)
        nursery.cancel_scope.cancel()


async def test_appended_lines_hold_nothing(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        async with await trio.open_tcp_stream(*addresses.http) as stream:
            head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: {NDJSON}"
            await stream.send_all(f"{head}\r\n\r\n".encode())
            for number in range(1, 4):
                await stream.send_all(b"%x\r\n%b\r\n" % (len(PIECE) + 3, b'"%b"\n' % PIECE))
                await until(lambda: actor_of(broker).log.high_watermark == number)  # noqa: B023 - it is awaited here
            await until(lambda: listeners.admission.budget.held == 0)
        assert len(await values_from(broker, PARTITION)) == number
        nursery.cancel_scope.cancel()


async def test_a_client_above_its_quota_waits_before_its_records_are_appended(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        await broker.security.alter_client_quotas({(("client-id", "http"),): {"producer_byte_rate": 1.0}})
        throttled = broker.security.quotas.statistics.throttled
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(http=LOCALHOST))
        assert addresses.http is not None
        body = b'{"records": [{"value": "%b"}]}' % PIECE
        async with await trio.open_tcp_stream(*addresses.http) as stream:
            head = f"POST /topics/{TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nContent-Type: {JSON_V2}"
            await stream.send_all(f"{head}\r\n\r\n".encode() + body)
            await until(lambda: throttled.get("producer_byte_rate") == 1)
            assert await values_from(broker, PARTITION) == []
            listeners.stop(60)
            reply = b"".join([piece async for piece in stream])
        assert reply.startswith(b"HTTP/1.1 200 ")
        assert await values_from(broker, PARTITION) == [b'"%b"' % PIECE]
