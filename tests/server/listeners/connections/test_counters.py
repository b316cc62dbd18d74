"""What connections count: requests, errors, bytes, and what the counting itself costs."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter, process_time
from typing import Final

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.connections.counters import ProtocolCounters
from triolog.server.listeners.native.session import UNKNOWN_API, error_codes
from triolog.tools.client.admin import Admin
from triolog.tools.client.connection import connect

from tests.support.attackers import both_listeners
from tests.support.brokers import PARTITION, TOPIC, until

MOST_SECONDS_PER_REQUEST: Final = 10e-6
"""A produce of one record takes about 100 us; on an idle machine the counting takes 0.5."""


async def test_requests_errors_bytes_and_connections_are_counted(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server:
        counters = server.admission.counters("native")
        async with connect(*server.native_address) as client:
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


async def test_names_that_no_call_has_share_one_place(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server, server.native_client() as client:
        counters = server.admission.counters("native")
        for number in range(2, 30):
            await client.send_raw(b"".join(client.connection.send_request(number, f"call-{number}", 1, {})))
        await until(lambda: UNKNOWN_API in counters.apis and counters.apis[UNKNOWN_API].durations.count == 28)
        assert set(counters.apis) == {"hello", UNKNOWN_API}
        assert counters.apis[UNKNOWN_API].errors == {ErrorCode.UNSUPPORTED_VERSION: 28}


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


async def test_the_call_tells_what_was_counted(fast_path: Path) -> None:
    async with both_listeners(fast_path) as server:
        broker = server.kafka.broker
        await broker.writer.append(PARTITION, [(None, None, b"v", ())])
        await broker.offsets.commit("g", [(PARTITION, 0, None)])
        async with connect(*server.native_address) as client:
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
