"""Whatever a client sends, the response is a value or an error with a code, and the registry serves the next request."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triolog.server.registry.rest import ROUTES

from tests.support.registry_client import RegistryClient, record

NAMES: Final = st.sampled_from(["s", "t", "u", "", "latest", "-1", "0", "1", "2", ":.x:s", ":.:s", "é", "%", "a/b", "\ud800"])
NUMBERS: Final = st.sampled_from([None, True, -2, -1, 0, 1, 2, 2**31, 2**70, 1.5, "1", [], {}])
FLAGS: Final = st.sampled_from(["true", "TRUE", "false", "", "x", "-1", "1", "\x00", "serialized", ":*:", ":.:s"])
PARAMETERS: Final = st.dictionaries(
    st.sampled_from(
        [
            *("deleted", "deletedOnly", "permanent", "normalize", "verbose", "force", "format", "subject", "subjectPrefix"),
            *("offset", "limit", "latestOnly", "fetchMaxId", "defaultToGlobal"),
        ]
    ),
    FLAGS,
    max_size=3,
)
SCHEMAS: Final = st.sampled_from(
    [
        '"int"',
        '"long"',
        json.dumps(record("R", "a: int")),
        json.dumps(record("R", "a: long", {"name": "b", "type": "int", "default": "x"})),
        '{"type":"record","name":"R","fields":[{"name":"n","type":"R"}]}',
        '{"type":"object"}',
        '{"$ref":"#"}',
        'syntax = "proto3"; message A { int32 x = 1; }',
        'syntax = "proto3"; import "s"; message B { A a = 1; }',
        "ChR4",
        "",
        "[",
        "\ud800",
    ]
)
REFERENCES: Final = st.lists(
    st.fixed_dictionaries({}, optional={"name": NAMES, "subject": NAMES, "version": NUMBERS}) | NUMBERS, max_size=3
)
BODIES: Final = (
    st.fixed_dictionaries(
        {"schema": SCHEMAS | NUMBERS},
        optional={
            "schemaType": st.sampled_from(["AVRO", "JSON", "PROTOBUF", "avro", 7, None, []]),
            "references": REFERENCES | NUMBERS,
            "id": NUMBERS,
            "version": NUMBERS,
        },
    )
    | st.fixed_dictionaries(
        {"compatibility": st.sampled_from(["NONE", "full", "x", 7, [], {}])}, optional={"normalize": NUMBERS}
    )
    | st.fixed_dictionaries({"mode": st.sampled_from(["READONLY", "readwrite", "IMPORT", "x", 7, [], {}])})
    | NUMBERS
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, Any]:
    route = draw(st.sampled_from(ROUTES))
    path = "/".join(
        quote(draw(NAMES), safe="", errors="surrogatepass") if each.startswith("{") else each for each in route.pattern
    )
    query = "&".join(f"{name}={quote(value)}" for name, value in draw(PARAMETERS).items())
    return route.method, f"/{path}?{query}", draw(BODIES) if route.method in ("POST", "PUT") else None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests(), max_size=12))
def test_every_request_has_a_response_with_a_known_code(registry: RegistryClient, wanted: list[tuple[str, str, Any]]) -> None:
    for method, path, body in wanted:
        status, answer = registry.call(method, path, body)
        if status != 200:
            assert int(str(answer["error_code"])[:3]) == status
            assert status in (400, 404, 405, 409, 422), (method, path, body, answer)
