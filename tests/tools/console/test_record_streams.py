from __future__ import annotations

from typing import Any

import pytest
import trio
from triolog.protocol.native.messages import PlainRecord
from triolog.protocol.types import CompressionType
from triolog.server.embedded import EmbeddedBroker
from triolog.tools.console.records import search, tail
from triolog.tools.console.watching import watcher

from tests.support.browser_wire import Browser

from .conftest import Shown


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


async def test_a_search_from_the_newest_on_finds_the_same_in_any_stretches(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_a_search_reports_its_progress_and_is_over_when_nobody_listens(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
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
