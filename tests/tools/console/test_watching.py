from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
import triolog
from triolog.protocol.errors import UnknownTopicOrPartitionError
from triolog.protocol.native.messages import PlainRecord
from triolog.protocol.types import CompressionType
from triolog.server.broker.mirroring import Mirroring, MirrorProgress
from triolog.server.config.values import Address
from triolog.server.embedded import EmbeddedBroker
from triolog.tools.console.events import EventQueue, event_stream
from triolog.tools.console.records import search, tail
from triolog.tools.console.watching import watcher
from triolog.tools.console.watching.history import MAX_SERIES, SAMPLES, SPAN_MS, History, shortened

from tests.support.browser_wire import Browser
from tests.tools.console.conftest import Shown, showing


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
            async with triolog.open(native=Address(host, port), topics=["t"]):
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


async def searched(browser: Browser, query: str, topic: str = "flights") -> tuple[list[str], dict[str, Any]]:
    """The values that match, and the last event."""
    found = []
    with trio.fail_after(60):
        async with browser.events(f"/api/topics/{topic}/search?{query}") as events:
            async for event in events:
                if event.name == "match":
                    found.append(event.value["value"]["text"])
                elif event.name in ("done", "failed"):
                    return found, event.value
    raise AssertionError("the stream has ended")


async def fill(broker: EmbeddedBroker) -> None:
    for i in range(6):
        key, headers = f"key{i % 3}".encode(), (("trace", f"t{i}".encode()),)
        await broker.append("flights", [PlainRecord(1000 * i, key, f"Value {i}".encode(), headers)], partition=i % 3)


ALL = ["Value 0", "Value 1", "Value 2", "Value 3", "Value 4", "Value 5"]


async def test_a_search_finds_what_holds_the_text_either_way_and_says_when_it_is_done(shown: Shown) -> None:
    await fill(shown.broker)
    for query, values in (
        ("q=Value", ALL),
        ("q=value", []),
        ("q=value+4&nocase=1", ["Value 4"]),
        ("q=key1", ["Value 1", "Value 4"]),
        ("q=key&in=whole-key", []),
        ("q=key1&in=whole-key", ["Value 1", "Value 4"]),
        ("q=ey1&in=key", ["Value 1", "Value 4"]),
        ("q=key1&in=value", []),
        ("q=t5", ["Value 5"]),
        ("q=trace&in=headers&partition=1", ["Value 1", "Value 4"]),
        ("q=.&in=any", []),
        ("q=Value&at=2000&to=4000", ["Value 2", "Value 3"]),
        ("q=Value&partition=0&offset=1", ["Value 3"]),
        ("q=Value&from=0:1,1:1,2:2", ["Value 3", "Value 4"]),
    ):
        found, last = await searched(shown.browser, query)
        assert sorted(found) == values, query
        assert (last["reason"], last["found"], last["share"]) == ("end", len(values), 1.0)
        if "from=" not in query:
            found, last = await searched(shown.browser, f"{query}&order=newest")
            assert (found, last["reason"], last["share"]) == (values[::-1], "end", 1.0), query
    for order, values in (("", 2), ("&order=newest", ["Value 5", "Value 4"])):
        found, last = await searched(shown.browser, f"q=Value&limit=2{order}")
        assert (found if order else len(found), last["reason"], last["found"]) == (values, "limit", 2)
    assert (await shown.browser.get("/api/topics/nothing/search?q=x")).status == 404


async def test_a_search_from_the_newest_on_finds_the_same(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 700, 40, 1300, 3):  # records of a batch: stretches begin and end inside of some
        await shown.broker.append("flights", [f"value {i % 10}".encode() for i in range(size)], partition=1)
    await shown.broker.append("flights", [b"value 7"] * 5, partition=2)
    forwards, last = await searched(shown.browser, "q=value+7&limit=1000")
    assert (len(forwards), last["records"]) == (70 + 4 + 130 + 5, 2049)
    for first, longest in ((1, 64), (100, 100), (1_000, 16_000)):
        monkeypatch.setattr(search, "FIRST_STRETCH", first)
        monkeypatch.setattr(search, "LONGEST_STRETCH", longest)
        backwards, last = await searched(shown.browser, "q=value+7&limit=1000&order=newest")
        assert (len(backwards), last["records"], last["share"]) == (len(forwards), 2049, 1.0)
    offsets = []
    async with shown.browser.events("/api/topics/flights/search?q=value+7&partition=1&limit=1000&order=newest") as events:
        async for event in events:
            if event.name == "match":
                offsets.append(event.value["offset"])
    assert offsets == sorted(offsets, reverse=True)
    assert len(set(offsets)) == 204


async def test_a_search_looks_into_compressed_batches(shown: Shown) -> None:
    for compression in CompressionType:
        name = compression.name.lower().replace("none", "uncompressed")
        await shown.broker.create_topic(name, config={"compression.type": name})
        await shown.broker.append(name, [f"value {i}".encode() * 20 for i in range(500)])
        found, last = await searched(shown.browser, "q=value+321value", name)
        assert (len(found), last["records"]) == (1, 500), name


async def test_a_search_reports_its_progress_and_ends_with_its_reader(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triolog.tools.console.records.search.PROGRESS_S", 0.0)
    for _ in range(3):
        await shown.broker.append("flights", [b"x" * 100] * 2000)
    with trio.fail_after(60):
        async with shown.browser.events("/api/topics/flights/search?q=nowhere") as events:
            first = await anext(events)
            assert (first.name, first.value["found"]) == ("progress", 0)
        for _ in range(watcher.MAX_STREAMS + 1):  # those that were left are no longer counted
            async with shown.browser.events("/api/topics/flights/search?q=nowhere") as events:
                assert (await anext(events)).name == "progress"


async def test_there_are_only_so_many_streams(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_STREAMS", 1)
    with trio.fail_after(60):
        async with shown.browser.events("/api/topics/flights/tail") as events:
            await anext(events)
            refused = await shown.browser.get("/api/topics/flights/tail")
            assert (refused.status, refused.json["error"]["name"]) == (429, "TOO_MANY_STREAMS")


async def tailed(events: Any, wanted: int) -> tuple[list[str], int]:
    """Values and how many were passed over, until there are so many of both."""
    values, passed = [], 0
    with trio.fail_after(60):
        async for event in events:
            assert event.name == "records", event
            values += [each["value"]["text"] for each in event.value["records"]]
            passed += event.value["passed"]
            if len(values) + passed >= wanted:
                return values, passed
    raise AssertionError("the stream has ended")


async def test_the_tail_shows_what_comes_and_goes_on_where_it_was_paused(shown: Shown) -> None:
    await shown.broker.append("flights", [b"before"])
    async with shown.browser.events("/api/topics/flights/tail") as events:
        first = await anext(events)
        assert (first.value["records"], first.value["passed"]) == ([], 0)
        assert sum(first.value["places"].values()) == 1
        await shown.broker.append("flights", [b"one"], partition=1)
        assert await tailed(events, 1) == (["one"], 0)
    await shown.broker.append("flights", [b"two"], partition=1)
    async with shown.browser.events("/api/topics/flights/tail?from=0:1,1:1,2:0") as events:
        values, _ = await tailed(events, 1)
        assert values[-1] == "two"


async def test_of_what_comes_too_fast_the_newest_is_shown_and_the_rest_counted(shown: Shown) -> None:
    async with shown.browser.events("/api/topics/flights/tail?partition=0") as events:
        await anext(events)
        for start in range(0, 5000, 500):
            await shown.broker.append("flights", [str(i).encode() for i in range(start, start + 500)], partition=0)
        values, passed = await tailed(events, 5000)
        assert len(values) + passed == 5000
        assert len(values) <= 10 * tail.MAX_SHOWN
        assert values[-1] == "4999"
    for _ in range(2):
        await shown.broker.append("flights", [b"x"] * 100, partition=1)
    with trio.fail_after(60):
        async with shown.browser.events("/api/topics/flights/tail?partition=1&from=1:90") as events:
            assert (await anext(events)).value["passed"] == 0
            told = (await anext(events)).value
    assert len(told["records"]) + told["passed"] == 110, "what lies before the beginning in its batch is not counted"
    assert told["places"] == {"1": 200}
    async with shown.browser.events("/api/topics/flights/tail?partition=2&q=7777") as events:
        await anext(events)
        await shown.broker.append("flights", [str(i).encode() for i in range(10_000)], partition=2)
        assert await tailed(events, 1) == (["7777"], 0), "a filtered tail shows all that match"


async def test_a_tail_of_a_topic_that_goes_says_so(shown: Shown) -> None:
    with trio.fail_after(60):
        async with shown.browser.events("/api/topics/compacted/tail") as events:
            await anext(events)
            await shown.broker.delete_topic("compacted")
            last = await anext(events)
            assert (last.name, last.value["error"]["name"]) == ("failed", "UNKNOWN_TOPIC_OR_PARTITION")


async def test_the_overview_has_mirrors_with_the_first_of_their_troubles(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    lag = {"lag_records": 3, "lag_bytes": 2048, "lag_ms": 12.0}
    mirror = MirrorProgress(
        link="source",
        source="board:9092",
        state="stopped",
        error="not a triolog",
        topics=1,
        partitions=2,
        copied_bytes=9,
        troubles=tuple(map(str, range(20))),
        **lag,  # type: ignore[arg-type]
    )
    monkeypatch.setattr(Mirroring, "progress", lambda _: (mirror,))
    [told] = (await sample(shown.browser))["mirrors"]
    assert (told["link"], told["source"], told["state"], told["partitions"]) == ("source", "board:9092", "stopped", 2)
    assert {name: told[name] for name in lag} == lag
    assert (told["troubles"][:2], len(told["troubles"])) == (["not a triolog", "0"], 8)
    assert told["text"] == "source from board:9092: stopped, lag 12 ms, 3 records. not a triolog"
