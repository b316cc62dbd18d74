"""What connections count: requests, errors, bytes, and what the counting itself costs."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.listeners.connections.counters import ProtocolCounters
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.native.calls import native_listener
from triolog.server.listeners.native.session import UNKNOWN_API, error_codes
from triolog.server.settings.broker_config import Address
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect

from tests.support.brokers import PARTITION, TOPIC, one_partition, until

LOCALHOST: Final = Address("127.0.0.1", 0)
MOST_SECONDS_PER_REQUEST: Final = 10e-6
"""A produce of one record takes about 100 us; on an idle machine the counting takes 0.5."""


async def served(broker: Broker, nursery: trio.Nursery) -> tuple[Address, ProtocolCounters]:
    admission = Admission.of(broker.config)
    address = await nursery.start(native_listener(broker, LOCALHOST, admission).run)
    return address, admission.counters("native")


async def test_requests_errors_bytes_and_connections_are_counted(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        address, counters = await served(broker, nursery)
        async with connect(*address) as client:
            admin = Admin(client)
            await admin.list_groups()
            await admin.list_groups()
            with pytest.raises(Exception, match="no topic"):
                await admin.offsets_for_times({TopicPartition("missing", 0): -1, TopicPartition("gone", 0): -1})
            assert counters.connections == 1
            assert counters.apis["hello"].durations.count == 1
            assert counters.apis["list_groups"].durations.count == 2
            assert counters.apis["list_groups"].errors == {}
            assert counters.apis["offsets_for_times"].errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}
            assert 100 < counters.received_bytes < 2000
            assert 100 < counters.sent_bytes < 5000
            assert 0 < counters.apis["hello"].durations.seconds < 30
        await until(lambda: counters.connections == 0)
        assert (counters.accepted, counters.refused) == (1, 0)
        nursery.cancel_scope.cancel()


async def test_names_that_no_call_has_share_one_place(tmp_path: Path) -> None:
    from triolog.protocol.native import messages
    from triolog.protocol.native.connection import NativeConnection
    from triolog.protocol.native.state import Role

    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        address, counters = await served(broker, nursery)
        async with await trio.open_tcp_stream(*address) as stream:
            connection = NativeConnection(Role.CLIENT)
            for piece in connection.send_request(1, "hello", messages.VERSION, messages.HelloRequest("c").to_body()):
                await stream.send_all(piece)
            connection.receive_data(await stream.receive_some(65536))
            connection.next_event()
            for number in range(2, 30):
                for piece in connection.send_request(number, f"call-{number}", 1, {}):
                    await stream.send_all(piece)
            await until(lambda: UNKNOWN_API in counters.apis and counters.apis[UNKNOWN_API].durations.count == 28)
        assert set(counters.apis) == {"hello", UNKNOWN_API}
        assert counters.apis[UNKNOWN_API].errors == {ErrorCode.UNSUPPORTED_VERSION: 28}
        nursery.cancel_scope.cancel()


def test_errors_are_found_in_the_entries_of_an_answer() -> None:
    entries = [{"topic": TOPIC, "error": None}, {"error": [3, "X", ""]}, {"error": [3, "X", ""]}, {"error": [1, "Y", ""]}]
    assert error_codes({"partitions": entries, "apis": {}, "n": 1}) == [3, 1]
    assert error_codes({"groups": ["a", "b"]}) == []
    assert error_codes(None) == []


def test_counting_a_request_costs_next_to_nothing() -> None:
    """What the listeners do for each request and its answer, of one partition: print the cost with -s."""
    counters, count = ProtocolCounters("native"), 20_000
    body = {"partitions": [{"topic": TOPIC, "partition": 0, "error": None, "base_offset": 1}]}
    begin = process_time()
    for _ in range(count):
        counters.received_bytes += 100
        taken = counters.api("produce"), perf_counter()
        taken[0].answered(perf_counter() - taken[1], error_codes(body))
        counters.sent_bytes += 100
    seconds = (process_time() - begin) / count
    print(f"counting costs {seconds * 1e6:.2f} us a request")  # noqa: T201 - with -s
    assert counters.apis["produce"].durations.count == count
    assert seconds < MOST_SECONDS_PER_REQUEST


async def test_the_call_tells_what_was_counted(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker, trio.open_nursery() as nursery:
        address, _ = await served(broker, nursery)
        await broker.writer.append(PARTITION, [(None, None, b"v", ())])
        await broker.offsets.commit("g", [(PARTITION, 0, None)])
        async with connect(*address) as client:
            admin = Admin(client)
            await admin.list_groups()
            told = await admin.statistics()
        native = told["protocols"]["native"]
        assert native["connections"] == 1
        assert native["apis"]["list_groups"]["count"] == 1
        assert sum(native["apis"]["list_groups"]["counts"]) == 1
        assert len(native["apis"]["list_groups"]["counts"]) == len(told["duration_bounds_s"]) + 1
        assert {topic["topic"]: topic["records"] for topic in told["topics"]} == {TOPIC: 1, "__consumer_offsets": 1}
        assert told["groups"]["lags"] == [{"group": "g", "topic": TOPIC, "partition": 0, "offset": 0, "lag": 1}]
        assert told["directories"][0]["free_bytes"] > 0
        nursery.cancel_scope.cancel()
