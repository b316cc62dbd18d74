from __future__ import annotations

import base64
import csv
import io
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import Record, TopicPartition
from triolog.tools.cli.terminal import rows
from triolog.tools.cli.terminal.record_formats import record_as_json
from triolog.tools.cli.terminal.rows import BadRow, CsvReader, Row, RowOptions, UnusableInputError, row_reader
from triolog.tools.cli.terminal.times import parse_zone

PLAIN = RowOptions()


def read(format_name: str, data: bytes, options: RowOptions = PLAIN, cuts: Iterable[int] = ()) -> list[Row | BadRow]:
    reader = row_reader(format_name, options)
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    found = [row for start, stop in pairwise(places) for row in reader.feed(data[start:stop])]
    return found + list(reader.finish())


def reason(row: Row | BadRow) -> str:
    assert isinstance(row, BadRow)
    return row.reason


def test_each_line_is_a_value() -> None:
    expected = [Row(1, None, b"a"), Row(2, None, b""), Row(3, None, b"\xff b"), Row(4, None, b"last")]
    assert read("lines", b"a\n\n\xff b\r\nlast") == expected


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r"))), st.lists(st.integers(0, 500)))
def test_lines_do_not_depend_on_the_pieces_they_come_in(lines: list[bytes], cuts: list[int]) -> None:
    found = read("lines", b"".join(line + b"\n" for line in lines), cuts=cuts)
    assert found == [Row(number, None, line) for number, line in enumerate(lines, 1)]


def test_a_row_of_many_lines_is_looked_through_once_however_it_comes() -> None:
    pieces = [b"x\n" * 50] * 200
    data = b'a,b\n1,"' + b"".join(pieces) + b'"\n'
    reader = row_reader("csv", PLAIN)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "c_call"

    found = list(reader.feed(b'a,b\n1,"'))
    sys.setprofile(count)
    try:
        for piece in pieces:
            found += reader.feed(piece)
    finally:
        sys.setprofile(None)
    found += [*reader.feed(b'"\n'), *reader.finish()]
    assert found == read("csv", data)
    assert calls < 5 * data.count(b"\n"), "a few for each line, whatever was there before it"


@pytest.mark.parametrize(("format_name", "words"), [("lines", "without a line end"), ("csv", "Is a quote left open")])
def test_an_endless_row_is_refused_before_memory_is_full(monkeypatch: pytest.MonkeyPatch, format_name: str, words: str) -> None:
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 100)
    reader = row_reader(format_name, PLAIN)
    with pytest.raises(UnusableInputError, match=f"line 2: .*{words}"):
        list(reader.feed(b"a\n" + b'"' + b"x" * 100))


def test_a_json_record_has_the_fields_of_a_record() -> None:
    line = b'{"key":"k","value":{"a":[1,2.5]},"timestamp":"2013-07-04T00:00","headers":{"h":"v","n":null},"partition":2}'
    options = RowOptions(zone=parse_zone("America/New_York"))
    expected = Row(1, b"k", b'{"a":[1,2.5]}', 1_372_910_400_000, (("h", b"v"), ("n", None)), 2)
    assert read("json", line, options) == [expected]
    assert read("json", b"{}") == [Row(1, None, None)]
    encoded = base64.b64encode(b"\xff").decode()
    assert rows.read_content({"base64": encoded}) == b"\xff"
    more = {"base64": encoded, "x": 1}
    assert rows.read_content(more) == json.dumps(more, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "is [1], not a JSON object"),
        ('{"carrier":"UA"}', "has the field 'carrier'. A record has key"),
        ('{"partition":-1}', "partition -1 is not a number"),
        ('{"partition":true}', "partition true is not a number"),
        ('{"timestamp":"noon"}', "invalid time 'noon'"),
        ('{"timestamp":-5}', "is before 1970"),
        ('{"timestamp":[]}', "timestamp [] is neither"),
        ('{"timestamp":NaN}', "is not a timestamp"),
        ('{"headers":"h"}', "neither an object nor a list"),
        ('{"headers":[["h"]]}', 'header ["h"] is not [name, value]'),
        ('{"headers":[[1,"v"]]}', "is not [name, value]"),
        ('{"value":{"base64":"*"}}', "is not base64"),
        ('{"key":"\\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_bad_json_record_says_what_is_wrong(line: str, words: str) -> None:
    good, bad, after = read("json", b"{}\n" + line.encode() + b"\n{}\n")
    assert isinstance(good, Row)
    assert (bad.line, after) == (2, Row(3, None, None))
    assert words in reason(bad)


def test_a_whole_object_is_the_value_byte_for_byte_or_one_field_of_it() -> None:
    line = b'{ "tail": "N1",  "at": 1372910400, "x": 1.0 }'
    options = RowOptions(key="tail", timestamp="at", timestamp_unit_ms=1000)
    assert read("json", line, options) == [Row(1, b"N1", line, 1_372_910_400_000)]
    assert read("json", b'{"a":{"b":1},"k":7}', RowOptions(key="k", value="a")) == [Row(1, b"7", b'{"b":1}')]
    assert "has no field 'tail', which --key names" in reason(read("json", b'{"a":1}', RowOptions(key="tail"))[0])


contents = st.none() | st.binary(max_size=30) | st.text(st.characters(codec="utf-8"), max_size=30).map(str.encode)
names = st.text(st.characters(codec="utf-8"), max_size=10)


@given(st.integers(-1, 2**63 - 1), contents, contents, st.lists(st.tuples(names, contents), max_size=3), st.integers(0, 99))
def test_what_consume_prints_produce_reads(
    timestamp: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], partition: int
) -> None:
    record = Record(5, timestamp, key, value, tuple(headers))
    line = json.dumps(record_as_json(TopicPartition("t", partition), record)).encode()
    sent = None if timestamp == -1 else timestamp
    assert read("json", line) == [Row(1, key, value, sent, tuple(headers), partition)]


def test_a_csv_row_is_an_object_of_its_columns() -> None:
    data = b'tail,at,city\r\nN1,2013-07-04T04:00Z,"New\nYork, ""NY"""\r\n\r\nN2,,\xc3\xa9\n'
    options = RowOptions(key="tail", timestamp="at")
    first = json.dumps({"tail": "N1", "at": "2013-07-04T04:00Z", "city": 'New\nYork, "NY"'}, separators=(",", ":"))
    second = '{"tail":"N2","at":"","city":"é"}'
    expected = [Row(2, b"N1", first.encode(), 1_372_910_400_000), Row(5, b"N2", second.encode())]
    assert read("csv", data, options) == expected
    columns = RowOptions(value="b", key="a", delimiter=";")
    assert read("csv", b"\xef\xbb\xbfa;b\n1;2\n", columns) == [Row(2, b"1", b"2")]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"1", "has 1 fields, the first row names 2 columns"),
        (b"1,2,3", "has 3 fields"),
        (b"noon,2", "invalid time 'noon'"),
        (b"1,\xff", "is not UTF-8"),
    ],
)
def test_a_bad_csv_row_says_what_is_wrong(row: bytes, words: str) -> None:
    bad, after = read("csv", b"at,b\n" + row + b"\n7,8\n", RowOptions(timestamp="at"))
    assert bad.line == 2
    assert words in reason(bad)
    assert after == Row(3, None, b'{"at":"7","b":"8"}', 7)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (b"", PLAIN, "line 1: no row with column names"),
        (b"a,a\n", PLAIN, "two columns have the same name"),
        (b"a,b\n", RowOptions(key="c"), "--key 'c' names 0 of the columns a, b"),
        (b"a,b\n", RowOptions(timestamp="c"), "--timestamp 'c' names 0"),
        (b'a,b\n1,2\n"3,4\n', PLAIN, "line 3: a quote that opens in this row never closes"),
        (b"a,b\n1,2\r3\n", PLAIN, "line 2: is not CSV"),
    ],
)
def test_unusable_csv_is_refused_as_a_whole(data: bytes, options: RowOptions, words: str) -> None:
    with pytest.raises(UnusableInputError, match=words):
        read("csv", data, options)
    reader = CsvReader(PLAIN)
    assert len(list(reader.feed(b'a\n1\n2\n"3'))) == 2, "the rows before it are read"
    with pytest.raises(UnusableInputError):
        list(reader.finish())


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(st.lists(st.tuples(cells, cells), max_size=8), st.lists(st.integers(0, 2000)), st.sampled_from(["\n", "\r\n"]))
def test_csv_does_not_depend_on_the_pieces_it_comes_in(table: list[tuple[str, str]], cuts: list[int], end: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *table])
    found = read("csv", text.getvalue().encode(), RowOptions(key="a"), cuts)
    assert [(row.key, json.loads(row.value or b"")) for row in found if isinstance(row, Row)] == [
        (first.encode(), {"a": first, "b": second}) for first, second in table
    ]
    assert len(found) == len(table)


@given(st.sampled_from(["lines", "json", "csv"]), st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_are_rows_or_refused(format_name: str, data: bytes, cuts: list[int]) -> None:
    with suppress(UnusableInputError):
        assert all(row.line >= 1 for row in read(format_name, data, cuts=cuts))
