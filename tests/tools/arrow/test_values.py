"""Values decoded: every cell is what decoding one value alone gives, and what does not parse is told."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import fastavro
import msgpack
import pyarrow as pa
import pytest
import triolog
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools import arrow
from triolog.tools.arrow.values.json_values import JsonParser, infer_json
from triolog.tools.arrow.values.object_values import AvroParser, MsgpackParser, TextParser
from triolog.tools.arrow.values.parsers import Parser, decode_values

FLIGHT: Final = pa.schema([("carrier", pa.string()), ("delay", pa.int64()), ("offset", pa.float64())])
AVRO: Final = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "kinds", "type": {"type": "array", "items": "Kind"}},
    ],
}


def decoded(parser: Parser, values: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
    found, bad = decode_values(parser, pa.array(values, pa.binary()))
    assert found.type == parser.type
    found.validate(full=True)
    return found.to_pylist(), [each.row for each in bad]


json_texts = st.sampled_from(
    (
        b'{"carrier":"UA","delay":-3}',
        b' {"delay": 7, "other": [{"x": "}"}], "offset": 1e3}\r\n',
        '{"carrier":"\u00e9\\n\\"\\u0041"}'.encode(),
        b"{}",
        b'{"delay":null}',
        *(b'{"carrier":"}', b'{"}', b'{"carrier":{"b":1}', b'{"c":1}}', b'{"carrier":"a"}{"carrier":"b"}', b"", b" ", b"null"),
        *(b"[]", b'{"delay":1.5}', b'{"delay":"1"}', b'{"carrier":"\xff"}', b'{"delay":1}\0}', b'{"carrier":"a\nb"}', b"{},{}"),
        *(b"[[[", b"\xef\xbb\xbf{}", b"{}\n{}", b'{"delay":1}//}'),
    )
)


@given(st.lists(json_texts | st.none(), max_size=12))
def test_a_json_value_is_judged_alone_whatever_stands_beside_it(values: list[bytes | None]) -> None:
    parser = JsonParser(pa.struct(list(FLIGHT)))
    found, bad = decoded(parser, values)
    for row, value in enumerate(values):
        alone, is_bad = decoded(parser, [value])
        assert found[row] == alone[0]
        assert (row in bad) is bool(is_bad)
        if value is not None and not is_bad:
            plain = json.loads(value)
            assert found[row] == {field.name: plain.get(field.name) for field in FLIGHT}


def test_any_depth_of_what_is_not_asked_for_is_passed_over() -> None:
    deep = b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b',"delay":1}'
    assert decoded(JsonParser(pa.struct(list(FLIGHT))), [deep])[0] == [{"carrier": None, "delay": 1, "offset": None}]


objects = st.dictionaries(
    st.sampled_from(["carrier", "delay", "offset", "more"]), st.none() | st.integers(-(2**40), 2**40) | st.text(max_size=5)
)


@given(st.lists(objects, max_size=8))
def test_msgpack_maps_are_read_as_maps(values: list[dict[str, Any]]) -> None:
    found, bad = decoded(MsgpackParser(pa.struct(list(FLIGHT))), [msgpack.packb(value) for value in values])
    for row, value in enumerate(values):
        fits = isinstance(value.get("carrier", ""), str | None) and all(
            not isinstance(value.get(name), str) for name in ("delay", "offset")
        )
        assert (row not in bad) is fits
        assert found[row] == ({field.name: value.get(field.name) for field in FLIGHT} if fits else None)


def test_msgpack_that_is_cut_has_more_or_is_no_map_is_bad() -> None:
    whole = msgpack.packb({"delay": 1})
    found, bad = decoded(MsgpackParser(pa.struct(list(FLIGHT))), [whole, whole[:-1], whole + b"\0", b"\x01", b"", None])
    assert bad == [1, 2, 3, 4]
    assert found == [{"carrier": None, "delay": 1, "offset": None}, None, None, None, None, None]


@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode), max_size=10))
def test_text_is_utf_8(values: list[bytes | None]) -> None:
    found, bad = decoded(TextParser(), values)
    for row, value in enumerate(values):
        try:
            assert found[row] == (None if value is None else value.decode())
            assert row not in bad
        except UnicodeDecodeError:
            assert found[row] is None
            assert row in bad


def avro(record: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(dict(AVRO)), record)
    return file.getvalue()


def test_avro_records_become_structs_of_the_same_types() -> None:
    record = {
        "carrier": "UA",
        "delay": None,
        "at": datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC),
        "price": decimal.Decimal("12.50"),
        "id": "00000000-0000-0000-0000-000000000001",
        "tags": {"a": 1},
        "kind": "B",
        "kinds": ["A"],
    }
    parser = AvroParser(json.dumps(AVRO))
    assert parser.type == pa.struct(
        [
            ("carrier", pa.string()),
            ("delay", pa.int32()),
            ("at", pa.timestamp("ms", "UTC")),
            ("price", pa.decimal128(6, 2)),
            ("id", pa.string()),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("kind", pa.string()),
            ("kinds", pa.list_(pa.string())),
        ]
    )
    whole = avro(record)
    found, bad = decoded(parser, [whole, whole[:-1], whole + b"\0", b"", None])
    assert found == [{**record, "tags": [("a", 1)]}, None, None, None, None]
    assert bad == [1, 2, 3]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}, "a union of 2 types at u"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "the Avro type R holds itself"),
        ("{", "schema is not an Avro schema"),
        ({"type": "nothing"}, "schema is not an Avro schema"),
        ("int", "schema is not an Avro schema"),
        ({"type": "array", "items": "int"}, "expected a record"),
    ],
)
def test_an_avro_schema_that_arrow_cannot_hold_is_refused(schema: Any, complaint: str) -> None:
    with pytest.raises(arrow.ArrowError, match=complaint):
        AvroParser(schema)


def test_a_sample_tells_the_type_and_what_is_no_object_is_left_out() -> None:
    sample = pa.array([b'{"a":1,"n":null}', b"noise", b'{"b":{"c":[null]}}'], pa.binary())
    assert infer_json(sample) == pa.struct(
        [("a", pa.int64()), ("n", pa.string()), ("b", pa.struct([("c", pa.list_(pa.string()))]))]
    )


VALUES: Final = [b'{"carrier":"UA","delay":1,"offset":0.5}', b'{"carrier":"B6"}', None, b"noise", b'{"delay":"late"}']


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(topics=["t"], native="127.0.0.1:0") as broker:
        broker.append("t", VALUES)
        yield broker


def test_values_become_a_struct_and_what_does_not_parse_null(broker: BlockingBroker, caplog: pytest.LogCaptureFixture) -> None:
    report = arrow.Report()
    reader = arrow.read(broker, "t", values="json", schema=FLIGHT, errors="null", columns=["value"], report=report)
    assert reader.read_all()["value"].to_pylist() == [
        {"carrier": "UA", "delay": 1, "offset": 0.5},
        {"carrier": "B6", "delay": None, "offset": None},
        None,
        None,
        None,
    ]
    bad = report.bad_values[TopicPartition("t", 0)]
    assert (bad.count, bad.first_offset) == (2, 3)
    assert (
        "t-0: 2 values are null because they are not JSON objects of this schema, the first at offset 3: this is not a JSON"
        in caplog.text
    )


def test_flattened_fields_are_columns_and_a_field_of_a_columns_name_has_another_one(broker: BlockingBroker) -> None:
    reader = arrow.read(broker, "t", end=3, values="json", schema=FLIGHT, flatten=True)
    names = [
        *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers"),
        *("carrier", "delay", "value.offset"),
    ]
    assert reader.schema.names == names
    table = reader.read_all()
    assert table["carrier"].to_pylist() == ["UA", "B6", None]
    assert table["value.offset"].to_pylist() == [0.5, None, None]
    some = arrow.read(broker, "t", end=3, values="json", schema=FLIGHT, flatten=True, columns=["delay", "offset"])
    assert some.read_all().to_pydict() == {"delay": [1, None, None], "offset": [0, 1, 2]}


def test_only_columns_that_are_asked_for_are_decoded_and_the_first_values_tell_the_schema(broker: BlockingBroker) -> None:
    reader = arrow.read(broker, "t", end=3, values="json", flatten=True, columns=["carrier", "delay"])
    assert reader.schema == pa.schema([("carrier", pa.string()), ("delay", pa.int64())])
    with pytest.raises(arrow.ArrowError, match=r"unknown column carier\. Did you mean carrier\?"):
        arrow.read(broker, "t", end=3, values="json", flatten=True, columns=["carier"])
    table = arrow.read(broker, "t", values="json", schema=FLIGHT, columns=["offset"]).read_all()
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4]


def test_values_that_do_not_parse_are_an_error_with_count_and_first_offset(broker: BlockingBroker) -> None:
    reader = arrow.read(broker, "t", values="json", schema=FLIGHT)
    with pytest.raises(
        arrow.ValuesError, match=r"^t-0 offset 3: this is not a JSON object; 2 of 2 values from there on"
    ) as caught:
        reader.read_all()
    assert (caught.value.topic, caught.value.partition, caught.value.offset, caught.value.count) == ("t", 0, 3, 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"values": "xml"}, "values is 'xml', expected utf8, json, msgpack, avro"),
        ({"values": "utf8", "schema": FLIGHT}, 'values="utf8" takes no schema'),
        ({"values": "utf8", "flatten": True}, 'values="utf8" has no fields to flatten'),
        ({"values": "avro"}, 'values="avro" needs the schema'),
        ({"values": "json", "schema": "text"}, "schema is 'text', expected a pyarrow.Schema or a struct type"),
        ({"values": "json", "errors": "ignore"}, "errors is 'ignore', expected raise or null"),
        ({"flatten": True}, "schema and flatten need"),
        ({"values": "json", "start": 2, "end": 3}, "no value to infer a schema from. Give a schema"),
        ({"values": "json", "start": 3, "end": 4}, "1 sampled values have no common schema as json: this is not a JSON object"),
        ({"values": "msgpack", "start": 3, "end": 4}, "1 sampled values have no common schema as msgpack"),
        ({"values": "json"}, r"sampled values have no common schema as json: .*changed from number to string"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(broker: BlockingBroker, asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(arrow.ArrowError, match=complaint) as caught:
        arrow.read(broker, "t", **asked)
    assert "\n" not in str(caught.value)
