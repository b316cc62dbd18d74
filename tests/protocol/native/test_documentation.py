"""docs/native-protocol.md says what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from triolog.protocol import errors, limits
from triolog.protocol.native import connection, messages
from triolog.protocol.native.kinds import MISSING, Kind
from triolog.protocol.native.structs import Field, Message, fields_of

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "native-protocol.md").read_text()


def hex_examples() -> list[bytes]:
    blocks = re.findall(r"```hex\n(.*?)```", TEXT, re.DOTALL)
    return [bytes.fromhex(re.sub(r"#.*", "", block)) for block in blocks]


def test_worked_example_is_what_client_and_server_say() -> None:
    hello, produce, produced = hex_examples()
    server, client = connection.NativeConnection(connection.Role.SERVER), connection.NativeConnection(connection.Role.CLIENT)

    server.receive_data(hello)
    request = server.next_event()
    assert isinstance(request, connection.NativeRequest)
    assert messages.decode_request(*request[1:4]) == messages.HelloRequest("doc")
    client.send_request(1, "hello", 1, {"client_id": "doc"})
    answer = messages.HelloResponse("triolog", "1", 0, "cluster", messages.API_VERSIONS)
    client.receive_data(b"".join(server.send_response(1, None, answer.to_body())))
    client.next_event()

    server.receive_data(produce)
    request = server.next_event()
    assert isinstance(request, connection.NativeRequest)
    expected = messages.ProduceRequest((messages.ProducePartition("t", 0, (messages.PlainRecord(None, b"k", b"hi"),)),))
    assert messages.decode_request(*request[1:4]) == expected

    outcome = messages.ProduceResponse((messages.ProducePartitionResponse("t", 0, None, 0, -1, 0),))
    assert b"".join(server.send_response(2, None, outcome.to_body())) == produced
    client.send_request(2, "produce", 1, expected.to_body())
    client.receive_data(produced)
    response = client.next_event()
    assert isinstance(response, connection.Response)
    assert messages.decode_response("produce", 1, response.body or {}) == outcome


def test_every_call_has_its_section_and_no_other() -> None:
    calls = TEXT.split("## Calls")[1].split("## An example")[0]
    assert re.findall(r"^### (\w+)$", calls, re.MULTILINE) == list(messages.REQUESTS)


class KeyRow(NamedTuple):
    """One key of a message or of a struct inside it."""

    path: str
    """As in `partitions[].topic`."""
    expected: str
    may_be_absent: bool


def key_rows(message: type[Message]) -> list[KeyRow]:
    """Every key in the order of the wire, those of a struct behind the key that it stands under."""
    return list(_rows(message, "", message.is_request))


def _rows(cls: type, prefix: str, in_request: bool) -> Iterator[KeyRow]:
    for field in sorted(fields_of(cls), key=lambda field: field.last):
        path = f"{prefix}{field.name}"
        if not field.flat:
            yield KeyRow(path, _expected(field), field.may_be_absent(in_request=in_request))
        if (inner := _inner(field)) is not None:
            struct, suffix = inner
            yield from _rows(struct, prefix if field.flat else f"{path}{suffix}.", in_request)


def _inner(field: Field) -> tuple[type, str] | None:
    """The struct that stands under a key, and what the path has behind it; None when it is no struct."""
    shape = field.shape
    if isinstance(shape, Kind):
        return None
    if isinstance(shape, list):
        return shape[0], "[]"
    return (shape[str], "[name]") if isinstance(shape, dict) else (shape, "")


def _expected(field: Field) -> str:
    if isinstance(field.shape, Kind):
        expected = field.shape.expected
    elif isinstance(field.shape, list):
        expected = "array of " + ("maps" if field.max_count == limits.INT32_MAX else f"at most {field.max_count:,} maps")
    else:
        expected = "map"
    return expected if field.nil is MISSING or expected.startswith("nil") else f"nil or {expected}"


def section(api: str) -> tuple[str, str]:
    """What stands about a call's request, and about its answer."""
    request, _, answer = TEXT.split(f"### {api}\n")[1].split("\n#")[0].partition("Answer")
    return request, answer


def last_names(rows: Iterable[KeyRow]) -> set[str]:
    return {row.path.rpartition(".")[2] for row in rows}


def test_every_key_is_named_in_its_section_with_a_question_mark_where_it_may_be_absent() -> None:
    for api in messages.REQUESTS:
        for message, text in zip((messages.REQUESTS[api], messages.RESPONSES[api]), section(api), strict=True):
            assert last_names(key_rows(message)) <= set(re.findall(r"\w+", text)), message
        absent = last_names(row for row in key_rows(messages.REQUESTS[api]) if row.may_be_absent)
        alternatives = {"offset", "timestamp", "start_timestamp"} if api == "explain" else set()
        assert set(re.findall(r"(\w+)\?", section(api)[0])) == absent - alternatives, api


def test_error_table_says_what_the_codes_are() -> None:
    rows = re.findall(r"^\| (-?\d+) \| `(\w+)` \| (yes|no) \|$", TEXT, re.MULTILINE)
    codes = sorted(errors.ErrorCode[name] for _, name, _ in rows)
    assert [(int(code), name, retriable == "yes") for code, name, retriable in rows] == [
        (code.value, code.name, code in errors.RETRIABLE_CODES) for code in codes
    ]


def test_error_table_has_every_code_that_is_answered_outside_of_kafkas_protocol() -> None:
    sources = [path for folder in ("protocol", "server") for path in (ROOT / folder).rglob("*.py")]
    elsewhere = [
        path
        for path in sources
        if not {"kafka", "groups", "sharing", "telemetry", "fake"} & set(path.parts)
        and path.name not in {"errors.py", "mirrored.py"}
    ]
    texts = [path.read_text(encoding="utf-8") for path in elsewhere]
    defaults = re.findall(r"code=ErrorCode\.(\w+)", (ROOT / "protocol" / "errors.py").read_text(encoding="utf-8"))
    answered = {name for text in texts for name in re.findall(r"\bErrorCode\.([A-Z][A-Z_]+)", text)} | set(defaults)
    assert answered - set(re.findall(r"^\| -?\d+ \| `(\w+)` \|", TEXT, re.MULTILINE)) <= {"NONE"}
