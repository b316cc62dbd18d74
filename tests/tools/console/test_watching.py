from __future__ import annotations

import socket
from typing import Any

import trio
from triolog.protocol.errors import UnknownTopicOrPartitionError
from triolog.server.config.values import Address
from triolog.server.embedded import open_broker
from triolog.tools.console.events import EventQueue, event_stream
from triolog.tools.console.watching.history import MAX_SERIES, SAMPLES, SPAN_MS, History, shortened

from tests.support.browser_wire import Browser

from .conftest import Shown, showing


async def sample(browser: Browser, wanted: str = "") -> dict[str, Any]:
    """The first sample in which the server is connected, or is not (`lost`)."""
    with trio.fail_after(60):
        async with browser.events("/api/events") as events:
            async for event in events:
                is_connected = event.value["status"]["is_connected"]
                if event.name == "sample" and (is_connected is not (wanted == "lost")) and (wanted or "values" in event.value):
                    told: dict[str, Any] = event.value
                    return told
    raise AssertionError("the stream has ended")


async def test_a_sample_comes_each_second_and_says_what_went_in(shown: Shown) -> None:
    with trio.fail_after(60):
        async with shown.browser.events("/api/events") as events:
            rates = []
            async for event in events:
                assert event.name == "sample"
                assert event.value["ready"] == {"is_ready": True, "reasons": []}
                await shown.broker.append("flights", [b"x"] * 50)
                rates.append(event.value.get("values", {}).get("appended_records_per_second"))
                if rates[-1]:
                    break
    told = (await shown.browser.get("/api/")).json
    assert max(value or 0 for value in told["history"]["series"]["appended_records_per_second"]) >= rates[-1]
    assert told["topics"][0]["topic"] == "flights"
    series = (await shown.browser.get("/api/history?series=topic:flights,nothing&points=9")).json["series"]
    assert list(series) == ["topic:flights"]


async def test_a_server_that_is_not_there_is_said_and_comes_back() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        async with showing((host, port)) as browser:
            page = (await browser.open("/")).first["view"]
            assert page["status"]["is_connected"] is False
            assert page["ready"]["is_ready"] is False
            assert f"{host}:{port}" in page["ready"]["reasons"][0]
            topics = await browser.get("/api/topics")
            assert (topics.status, topics.json["error"]["name"]) == (503, "NETWORK_EXCEPTION")
            taken.close()
            async with open_broker(native=Address(host, port), topics=["t"]):
                await sample(browser)
                assert (await browser.get("/api/topics")).json["found"] == 1
                before = (await browser.get("/api/")).json
            lost = await sample(browser, "lost")
            assert lost["status"]["since_ms"] >= before["now_ms"] - 1000
            assert lost["values"]["topic_count"] == 1  # what is known stays


def test_history_gives_the_largest_value_of_each_stretch_and_keeps_15_minutes_of_so_many_series() -> None:
    history = History()
    for second in range(2000):
        history.add(second * 1000, {"a": second % 10, "b": None if second < 1990 else 1.0})
    told = history.read(["a", "b", "c"], 1_999_000, 90)
    assert told["series"]["a"] == [9] * len(told["times"])
    assert len(told["times"]) in (90, 91)
    assert told["times"][0] > 1_999_000 - SPAN_MS
    assert told["times"][-1] == 1_999_000
    assert told["series"]["b"][-2:] == [1, 1] or told["series"]["b"][-1] == 1
    assert told["series"]["b"][0] is None
    assert "c" not in told["series"]
    assert len(history.read(["a"], 1_999_000, 900)["times"]) == SAMPLES
    assert [shortened(each) for each in (0.0, 1.0, 1234.567, 0.0123456, 99999.9)] == [0, 1, 1235, 0.01235, 100000]
    history = History()
    optional = {f"topic:{i}": float(i) for i in range(2 * MAX_SERIES)}
    history.add(1000, {"a": 1.0}, optional)
    assert history.left_out == 2 * MAX_SERIES - 1 - (MAX_SERIES - 1)
    assert len(history._series) == MAX_SERIES
    for second in range(2, 2 + SAMPLES):  # all of them are silent for as long as anything is kept
        history.add(second * 1000, {"a": 1.0}, dict.fromkeys(optional, 0.0))
    history.add(2_000_000, {"a": 1.0}, {"new": 5.0})
    assert history.left_out == 0
    assert history.read(["new"], 2_000_000, 1)["series"]["new"] == [5]


async def test_a_reader_that_takes_nothing_loses_the_oldest_events_and_is_told() -> None:
    queue = EventQueue(max_events=3)
    for number in range(5):
        queue.put("n", number)
    assert await queue.take() == b"event: lost\ndata: 2\n\nevent: n\ndata: 2\n\nevent: n\ndata: 3\n\nevent: n\ndata: 4\n\n"
    queue.finish()
    assert await queue.take() == b""
    patient, taken = EventQueue(max_events=2), b""

    async def produce() -> None:
        for number in range(10):
            await patient.send("n", number)
        patient.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        while piece := await patient.take():
            taken += piece
    assert taken.count(b"event: n") == 10
    assert b"lost" not in taken, "who must lose nothing waits for room"


async def test_what_a_stream_ends_with_is_its_last_event() -> None:
    sent = bytearray()

    async def refused(queue: EventQueue) -> None:
        queue.put("n", 1)
        raise UnknownTopicOrPartitionError("topic 't' is not there")

    async def send(piece: bytes) -> None:
        await trio.lowlevel.checkpoint()
        sent.extend(piece)

    answer = event_stream(refused)
    assert answer.stream is not None
    await answer.stream(send)
    assert sent.startswith(b"event: n\ndata: 1\n\nevent: failed\ndata: {")
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in sent
