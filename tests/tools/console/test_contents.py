from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.console.records.contents import KINDS, MAX_PARSED, content, indented, msgpack_text


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
