from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.native.messages import PlainRecord
from triolog.protocol.records.partitioners import partition_for_key
from triolog.server.embedded import EmbeddedBroker
from triolog.tools.console.records.contents import KINDS, MAX_PARSED, content, indented, msgpack_text
from triolog.tools.console.views.records import MAX_TOGETHER

from tests.support.browser_wire import Browser
from tests.tools.console.conftest import Shown, shown_broker, told

KEPT: dict[str, Any] = {"config": {"retention.ms": "-1"}}
RECORDS = "/api/topics/flights/records"


def values(told: dict[str, Any]) -> list[str]:
    return [each["value"]["text"] for each in told["records"]]


def places(told: dict[str, Any]) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in told["records"]]


async def fill(broker: EmbeddedBroker, topic: str, times: list[int], partition: int = 0) -> None:
    """One batch for each; values are the times."""
    for time in times:
        await broker.append(topic, [PlainRecord(time, None, str(time).encode())], partition=partition)


async def listed(browser: Browser, query: str, topic: str = "flights") -> dict[str, Any]:
    return dict(await told(browser, f"/topics/{topic}/records?{query}"))


async def test_the_newest_records_come_first_and_older_ones_page_by_page() -> None:
    async with shown_broker(**KEPT, topics={"t": 1}) as shown:
        await shown.broker.append("t", [str(i).encode() for i in range(10)])
        first = await listed(shown.browser, "limit=4", "t")
        assert (values(first), first["newer"], first["older"]) == (["9", "8", "7", "6"], None, "0:6")
        second = await listed(shown.browser, f"limit=4&until={first['older']}", "t")
        assert (values(second), second["newer"], second["older"]) == (["5", "4", "3", "2"], "0:6", "0:2")
        last = await listed(shown.browser, f"limit=4&until={second['older']}", "t")
        assert (values(last), last["older"]) == (["1", "0"], None)
        back = await listed(shown.browser, f"limit=4&from={second['newer']}", "t")
        assert (values(back), back["older"], back["newer"]) == (["6", "7", "8", "9"], "0:6", None)


async def test_records_of_several_partitions_are_merged_by_time_and_none_is_left_out() -> None:
    async with shown_broker(**KEPT, topics={"flights": 3}) as shown:
        await fill(shown.broker, "flights", [1000, 4000, 2500, 7000], 0)
        await fill(shown.broker, "flights", [2000, 3000, 8000], 1)
        await fill(shown.broker, "flights", [5000], 2)
        merged = ["1000", "2000", "3000", "4000", "2500", "5000", "7000", "8000"]
        for limit in range(1, 9):
            got, query = [], "from=0:0"
            while query:
                page = await listed(shown.browser, f"limit={limit}&{query}")
                got += values(page)
                query = page["newer"] and f"from={page['newer']}"
            assert got == merged
            got, query = [], ""
            while query is not None:
                page = await listed(shown.browser, f"limit={limit}&{query}")
                got += values(page)
                query = page["older"] and f"until={page['older']}"
            assert sorted(got) == sorted(merged)
            assert got[0] == "8000"
        assert places(await listed(shown.browser, "partition=1")) == [(1, 2), (1, 1), (1, 0)]


async def test_a_time_or_an_offset_of_a_partition_leads_to_records_and_of_many_partitions_one_is_shown() -> None:
    async with shown_broker(**KEPT, topics={"flights": 2, "one": 1, "wide": MAX_TOGETHER + 1}) as shown:
        await fill(shown.broker, "flights", [1000, 2000, 3000], 0)
        await fill(shown.broker, "flights", [1500, 2500], 1)
        assert values(await listed(shown.browser, "at=1500")) == ["1500", "2000", "2500", "3000"]
        assert values(await listed(shown.browser, "at=2001&partition=0")) == ["3000"]
        beyond = await listed(shown.browser, "at=9000")
        assert (beyond["records"], beyond["newer"], beyond["older"]) == ([], None, "0:3,1:2")
        assert places(await listed(shown.browser, "partition=0&offset=1")) == [(0, 1), (0, 2)]
        refused = await shown.browser.get(f"{RECORDS}?offset=1")
        assert (refused.status, refused.json["error"]["message"].split(":")[0]) == (400, "partition")
        await fill(shown.broker, "one", [1, 2])
        assert places(await listed(shown.browser, "offset=1", "one")) == [(0, 1)]
        assert places(await listed(shown.browser, "offset=9223372036854775807", "one")) == []
        await fill(shown.broker, "wide", [1], 0)
        await fill(shown.broker, "wide", [2], 1)
        page = await listed(shown.browser, "", "wide")
        assert (page["partition"], values(page), len(page["partitions"])) == (0, ["1"], MAX_TOGETHER + 1)
        assert values(await listed(shown.browser, "partition=1", "wide")) == ["2"]


async def test_a_range_of_times_has_all_of_its_records_wherever_they_lie() -> None:
    async with shown_broker(**KEPT, topics={"flights": 2}) as shown:
        await fill(shown.broker, "flights", [1000, 9000, 2000, 8000, 3000], 0)
        await fill(shown.broker, "flights", [7000, 2500, 1999], 1)
        for limit in range(1, 5):
            got, query = [], ""
            while query is not None:
                page = await listed(shown.browser, f"limit={limit}&at=2000&to=3001{query}")
                got += values(page)
                query = page["newer"] and f"&from={page['newer']}"
                assert page["older"] is None
            assert sorted(got) == ["2000", "2500", "3000"]
        assert values(await listed(shown.browser, "at=2000&to=3000&partition=0")) == ["2000"]
        assert values(await listed(shown.browser, "at=2000&to=2000")) == []
        assert values(await listed(shown.browser, "to=2000")) == ["1000", "1999"]
        refused = await shown.browser.get(f"{RECORDS}?at=3000&to=2999")
        assert (refused.status, refused.json["error"]["message"].split(":")[0]) == (400, "to")


async def test_holes_are_passed_over_and_pages_are_full_nevertheless() -> None:
    async with shown_broker(**KEPT, topics={"t": 1}) as shown:
        await fill(shown.broker, "t", [1, 2, 3])
        for i in range(30):  # each leaves a marker, which is no record
            async with shown.broker.transaction("id") as transaction:
                if i == 0:
                    await transaction.append("t", [b"four"])
                else:
                    await transaction.append("t", [b"x"])
                    await transaction.abort()
        page = await listed(shown.browser, "limit=2&isolation=read_committed", "t")
        assert values(page) == ["four", "3"]
        page = await listed(shown.browser, f"limit=2&isolation=read_committed&until={page['older']}", "t")
        assert (values(page), page["older"]) == (["2", "1"], None)


async def test_parameters_that_mean_nothing_are_named(shown: Shown) -> None:
    queries = "partition=7 partition=x from=0:1&at=5 from=0 from=0:x until=-1:5 limit=0 limit=501 as=xml isolation=none at=-5"
    for query in [*queries.split(), "at=99999999999999999999", "q=" + "x" * 5000, "color=red"]:
        name = query.partition("=")[0]
        refused = await shown.browser.get(f"/api/topics/flights/{'search' if name == 'q' else 'records'}?{query}")
        assert refused.status == 400, query
        assert refused.json["error"]["message"].startswith(f"{name}: "), query


async def test_one_record_in_full_and_its_value_as_a_file() -> None:
    async with shown_broker(**KEPT, topics={"t": 1}) as shown:
        value = json.dumps({"a": [1, {"b": "c"}]}).encode()
        large = b"\xff\x00" * 400_000
        await shown.broker.append("t", [PlainRecord(5, b"k", value, (("h", b"1"), ("h", None))), PlainRecord(6, None, large)])
        found = (await shown.browser.get("/api/topics/t/records/0/0")).json["record"]
        assert found["value"]["text"] == '{\n  "a": [\n    1,\n    {\n      "b": "c"\n    }\n  ]\n}'
        assert [(name, each and each["text"]) for name, each in found["headers"]] == [("h", "1"), ("h", None)]
        assert (found["key"]["text"], found["timestamp"], found["header_count"]) == ("k", 5, 2)
        as_hex = (await shown.browser.get("/api/topics/t/records/0/0?as=hex")).json["record"]["value"]
        assert as_hex["text"].startswith('00000000  7b 22 61 22 3a 20 5b 31 2c 20 7b 22 62 22 3a 20  {"a": [1, {"b": ')
        found = (await shown.browser.get("/api/topics/t/records/0/1")).json["record"]["value"]
        assert (found["size"], found["is_cut"], found["kind"]) == (800_000, True, "hex")
        assert len(found["text"]) <= 100_000
        file = await shown.browser.get("/api/topics/t/records/0/1/value")
        assert file.body == large
        assert file.headers["content-type"] == "application/octet-stream"
        assert file.headers["content-disposition"].startswith("attachment")
        assert (await shown.browser.get("/api/topics/t/records/0/1/key")).body == b""
        for path, status in (("0/2", 404), ("0/x", 400), ("7/0", 404), ("0/0/other", 404), ("0/99999999999999999999", 400)):
            assert (await shown.browser.get(f"/api/topics/t/records/{path}")).status == status, path


async def test_the_page_of_hostile_records_has_no_markup_of_theirs() -> None:
    hostile = b"</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    async with shown_broker(**KEPT, topics={"t": 1}) as shown:
        await shown.broker.append("t", [PlainRecord(None, hostile, hostile, ((hostile.decode(), hostile),))])
        page = await shown.browser.open("/topics/t/records")
        assert page.status == 200
        assert "alert(1)</script>" not in page.text
        assert page.first["view"]["records"][0]["value"]["text"] == hostile.decode()


async def test_a_record_is_written_where_its_key_belongs() -> None:
    async with shown_broker(**KEPT, topics={"t": 3}, console={"allow_changes": True}) as shown:
        await shown.browser.open("/topics/t/records")
        body = {"key": "k", "value": '{"a": 1}', "value_as": "msgpack", "headers": [["h", "ü"], ["n", None]], "timestamp": 77}
        told = (await shown.browser.post("/api/topics/t/records", body)).json
        assert told == {"topic": "t", "partition": partition_for_key(b"k", 3), "offset": 0}
        [record] = await shown.broker.fetch("t", partition=told["partition"])
        assert (record.key, record.value, record.timestamp) == (b"k", msgpack.packb({"a": 1}), 77)
        assert record.headers == (("h", "ü".encode()), ("n", None))
        told = (await shown.browser.post("/api/topics/t/records", {"partition": 2, "value": "00ff", "value_as": "hex"})).json
        assert (await shown.broker.fetch("t", told["offset"], partition=2))[0].value == b"\x00\xff"
        assert (await shown.browser.post("/api/topics/t/records", {"partition": 1})).status == 200  # a tombstone without a key


async def test_what_cannot_be_written_is_refused_by_its_name() -> None:
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"value": "{", "value_as": "json"}, "value"),
        ({"value": "[" * 100_000, "value_as": "json"}, "value"),
        ({"value": "1" * 30, "value_as": "msgpack"}, "value"),
        ({"value": "\ud800"}, "value"),
        ({"value": "xyz", "value_as": "hex"}, "value"),
        ({"value": 5}, "value"),
        ({"value": "x", "value_as": "xml"}, "value_as"),
        ({"partition": 3}, "partition"),
        ({"partition": "0"}, "partition"),
        ({"headers": [["a"]]}, "headers"),
        ({"headers": [["\ud800", "x"]]}, "headers"),
        ({"headers": [["a", "x"]] * 101}, "headers"),
        ({"timestamp": -1}, "timestamp"),
    ]
    async with shown_broker(**KEPT, topics={"t": 3}, console={"allow_changes": True}) as shown:
        await shown.browser.open("/")
        for body, name in bodies:
            refused = await shown.browser.post("/api/topics/t/records", body)
            assert refused.status == 400, refused.text
            assert refused.json["error"]["message"].startswith(f"{name}: "), body
        assert (await listed(shown.browser, "", "t"))["records"] == []


async def test_a_value_of_10_mb_is_cut_and_its_size_is_told() -> None:
    async with shown_broker(topics={"t": 1}, config={"max.message.bytes": "20000000"}) as shown:
        large = b'{"a": "' + b"\xe2\x80\xae<b>" * 1_700_000 + b'"}'
        await shown.broker.append("t", [b"before", large, b"after"])
        reply = await shown.browser.get("/api/topics/t/records")
        assert len(reply.body) < 10_000
        assert [each["value"]["size"] for each in reply.json["records"]] == [5, len(large), 6]
        found = (await shown.browser.get("/api/topics/t/records/0/1?as=json")).json["record"]["value"]
        assert (found["size"], found["is_cut"], found["note"]) == (len(large), True, "too large to be read as JSON")
        assert (await shown.browser.get("/api/topics/t/records/0/1/value")).body == large


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        ("grüße".encode(), "text", "grüße"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b" [1, 2]", "json", " [1, 2]"),
        (b"{not json", "text", "{not json"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
        (b"a long line with \x1b[31mred in it", "text", "a long line with \x1b[31mred in it"),
        (b"\x00\x00\x00\x07", "hex", "00 00 00 07"),
        (b"\xff\xfe", "hex", "ff fe"),
        (msgpack.packb({"a": [1, None, b"\x01"]}), "msgpack", '{"a": [1, null, bin(01)]}'),
        (msgpack.packb({1: 2.5}) + b"\xc1", "hex", "81 01 cb 40 04 00 00 00 00 00 00 c1"),
    ],
)
def test_what_bytes_are_is_guessed(data: bytes, kind: str, text: str) -> None:
    told = content(data)
    assert (told["kind"], told["text"], told["size"], told["is_cut"]) == (kind, text, len(data), False)


@pytest.mark.parametrize(
    ("kind", "is_now", "note"), [("json", "text", "not JSON"), ("msgpack", "hex", "not MessagePack"), ("text", "text", None)]
)
def test_what_is_not_as_it_was_said_to_be_is_shown_otherwise(kind: str, is_now: str, note: str | None) -> None:
    told = content(b"plain text", kind)
    assert (told["kind"], told.get("note")) == (is_now, note)
    assert "not UTF-8" in content(b"a\xffb", "text")["note"]
    assert content(None) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_detail", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        b"x" * 10_000_000,
        b"\xff" * 10_000_000,
        b"[" * 200_000,
        b"\x91" * 200_000,
        b"\x80" * (MAX_PARSED - 5),
        b'{"a":' * 50_000,
        b"[" + b"1" * 100_000 + b"]",
        ("ü" * 300_000).encode(),
        b"\x91" * 900 + b"\xc0",
    ],
)
def test_hostile_values_are_cut_and_their_size_is_told(data: bytes, kind: str, is_detail: bool) -> None:
    most = 1000
    told = content(data, kind, most=most, is_detail=is_detail)
    assert told["size"] == len(data)
    assert len(told["text"]) <= most
    assert told["is_cut"] or len(data) < 1000
    assert json.loads(json.dumps(told)) == told


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.booleans(), st.integers(1, 400))
def test_any_bytes_are_shown_in_bounds(data: bytes, kind: str, is_detail: bool, most: int) -> None:
    told = content(data, kind, most=most, is_detail=is_detail)
    assert told["size"] == len(data)
    assert len(told["text"]) <= most
    assert json.loads(json.dumps(told)) == told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4),
)


@given(JSON)
def test_lines_of_json_mean_the_same(value: Any) -> None:
    assert json.loads(indented(json.dumps(value))) == value
    assert json.loads(indented(json.dumps(value, ensure_ascii=False))) == value


def test_what_was_written_stays_and_what_json_does_not_have_is_told() -> None:
    assert indented('{"a":1.10,"a":1E400,"b":[],"c":{}}') == '{\n  "a": 1.10,\n  "a": 1E400,\n  "b": [],\n  "c": {}\n}'
    value = {(1, 2): msgpack.ExtType(5, b"\x00"), "t": msgpack.Timestamp(1, 2)}
    assert msgpack_text(msgpack.packb(value), 1000) == '{[1, 2]: ext(5, 00), "t": timestamp(1.000000002)}'


@given(JSON.filter(lambda each: not isinstance(each, float)))
def test_messagepack_of_json_looks_like_json(value: Any) -> None:
    try:
        packed = msgpack.packb(value)
    except (OverflowError, UnicodeEncodeError):
        return
    assert json.loads(msgpack_text(packed, 10**6)) == value
    assert json.loads(msgpack_text(packed, 10**6, is_indented=True)) == value
