"""The REST API over HTTP: what each call returns, and the error code of each refusal. Which earlier versions a schema is
compared with, and how much of them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from triolog.server.registry.compatibility import MAX_COMPARED_CHARS, MAX_REFERENCES, Source, incompatibilities
from triolog.server.registry.formats.parsed import MAX_ELEMENTS, MAX_NESTING
from triolog.server.registry.formats.parsing import parse
from triolog.server.registry.rest import MAX_BODY_BYTES, ROUTES

from tests.support.registry_client import RegistryClient, record, submission

PAGE: Final = Path(__file__).parents[3] / "docs" / "schema-registry.md"
ORDER: Final = record("Order", "table: int")
"""The first version."""
WITH_DRINK: Final = record("Order", "table: int", {"name": "drink", "type": "string", "default": "espresso"})
"""Compatible in both directions."""
WITH_PRICE: Final = record("Order", "table: int", "price: double")
"""Cannot read ORDER; ORDER can read it."""
TEXT: Final = '{"type":"record","name":"Order","fields":[{"name":"table","type":"int"}]}'
"""ORDER as it is stored."""


# ---- registration and lookup ---------------------------------------------------------------------------------------------


def test_a_schema_has_one_id_in_all_subjects_and_a_version_in_each(registry: RegistryClient) -> None:
    assert registry.register("orders-value", ORDER) == 1
    assert registry.register("orders-value", WITH_DRINK) == 2
    assert registry.register("returns-value", WITH_DRINK) == 2
    assert registry.register("orders-value", ORDER) == 1
    assert registry.get("/subjects") == ["orders-value", "returns-value"]
    assert registry.get("/subjects/orders-value/versions") == [1, 2]
    assert registry.get("/schemas/ids/2/subjects") == ["orders-value", "returns-value"]
    assert registry.get("/schemas/ids/2/versions") == [
        {"subject": "orders-value", "version": 2},
        {"subject": "returns-value", "version": 1},
    ]


def test_a_version_is_read_by_number_latest_id_and_guid(registry: RegistryClient) -> None:
    answer = registry.value("POST", "/subjects/s/versions", submission(ORDER))
    guid = answer.pop("guid")
    assert answer == {"id": 1, "version": 1}
    entity = {"subject": "s", "version": 1, "id": 1, "guid": guid, "schema": TEXT}
    assert registry.get("/subjects/s/versions/1") == registry.get("/subjects/s/versions/latest") == entity
    assert registry.get("/subjects/s/versions/-1") == entity
    assert registry.get("/schemas") == [entity]
    assert registry.get("/schemas/ids/1") == registry.get(f"/schemas/guids/{guid}") == {"guid": guid, "schema": TEXT}
    assert registry.get("/schemas/ids/1?subject=s&fetchMaxId=true") == {
        "guid": guid,
        "schema": TEXT,
        "subject": "s",
        "version": 1,
        "maxId": 1,
    }
    assert registry.get(f"/schemas/guids/{guid}/ids") == [{"context": ".", "id": 1}]
    assert registry.get("/schemas/ids/1/schema") == registry.get("/subjects/s/versions/1/schema") == json.loads(TEXT)


def test_a_lookup_finds_the_version_whatever_its_white_space(registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    registry.register("s", WITH_DRINK)
    found = registry.value("POST", "/subjects/s", submission(json.dumps(ORDER, indent=4)))
    assert (found["version"], found["id"]) == (1, 1)
    assert registry.error("POST", "/subjects/s", submission(WITH_PRICE)) == 40403
    assert registry.error("POST", "/subjects/other", submission(ORDER)) == 40401


def test_normalize_finds_a_schema_with_other_properties_order(registry: RegistryClient) -> None:
    first, second = ({"type": "string", **pair} for pair in ({"b": 1, "a": 2}, {"a": 2, "b": 1}))
    registry.value("POST", "/subjects/s/versions?normalize=true", submission(first))
    assert registry.error("POST", "/subjects/s", submission(first)) == 40403
    assert registry.value("POST", "/subjects/s?normalize=true", submission(second))["id"] == 1
    registry.value("PUT", "/config/s", {"normalize": True})
    assert registry.value("POST", "/subjects/s", submission(second))["id"] == 1
    assert registry.get("/config/s") == {"compatibilityLevel": "BACKWARD", "normalize": True}


def test_subjects_may_have_any_printable_name(registry: RegistryClient) -> None:
    for name in ("a/b", "größe", "a b%", "x" * 1000):
        registry.register(name, ORDER)
    assert registry.get("/subjects") == sorted(["a/b", "größe", "a b%", "x" * 1000])
    assert registry.get("/subjects/a%2Fb/versions") == [1]
    assert registry.get("/subjects/:.:a%2Fb/versions") == [1]


def test_lists_have_pages_and_prefixes(registry: RegistryClient) -> None:
    for name in ("a-1", "a-2", "b-1"):
        registry.register(name, ORDER)
        registry.register(name, WITH_DRINK)
    assert registry.get("/subjects?subjectPrefix=a") == ["a-1", "a-2"]
    assert registry.get("/subjects?subjectPrefix=:*:b") == ["b-1"]
    assert registry.get("/subjects?offset=1&limit=1") == ["a-2"]
    places = [(each["subject"], each["version"]) for each in registry.get("/schemas?latestOnly=true&subjectPrefix=a")]
    assert places == [("a-1", 2), ("a-2", 2)]
    assert registry.error("GET", "/subjects?offset=x") == 400


def test_the_registry_describes_itself(registry: RegistryClient) -> None:
    assert registry.get("/") == {}
    assert registry.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert registry.get("/contexts") == ["."]
    assert registry.get("/v1/metadata/version")["version"].startswith("triolog ")
    assert registry.get("/v1/metadata/id")["id"]
    assert registry.error("GET", "/exporters") == 404
    assert registry.error("PUT", "/subjects") == 405


# ---- references ----------------------------------------------------------------------------------------------------------


def test_a_schema_uses_the_types_of_its_references(registry: RegistryClient) -> None:
    registry.register("drink", record("shop.Drink", "name: string"))
    registry.register("price", record("shop.Price", "cents: long", {"name": "of", "type": "shop.Drink"}), references=[DRINK])
    order = record("shop.Order", "price: shop.Price", "drink: shop.Drink")
    price = {"name": "shop.Price", "subject": "price", "version": -1}
    assert registry.error("POST", "/subjects/order/versions", submission(order)) == 42201
    assert registry.register("order", order, references=[price]) == 3
    assert registry.get("/schemas/ids/3")["references"] == [{**price, "version": 1}]
    assert registry.get("/subjects/price/versions/1/referencedby") == [3]
    assert registry.value("POST", "/subjects/order", submission(order, references=[price]))["version"] == 1


DRINK: Final = {"name": "shop.Drink", "subject": "drink", "version": 1}


def test_a_schema_that_others_use_is_not_deleted(registry: RegistryClient) -> None:
    registry.register("drink", record("shop.Drink", "name: string"))
    registry.register("order", record("shop.Order", "drink: shop.Drink"), references=[DRINK])
    assert registry.error("DELETE", "/subjects/drink/versions/1") == 42206
    assert registry.error("DELETE", "/subjects/drink") == 42206
    registry.value("DELETE", "/subjects/order")
    registry.value("DELETE", "/subjects/drink")
    assert registry.error("POST", "/subjects/x/versions", submission(ORDER, references=[DRINK])) == 42201


@pytest.mark.parametrize(
    "references",
    [
        [{"name": "x", "subject": "missing", "version": 1}],
        [{"name": "x", "subject": "missing", "version": -1}],
        [{"name": "x", "subject": "s"}, {"name": "y"}],
        [{"name": "x", "subject": "s", "version": 0}],
        [{"name": "\ud800", "subject": "s", "version": 1}],
        ["x"],
        {"x": 1},
        7,
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(registry: RegistryClient, references: Any) -> None:
    assert registry.error("POST", "/subjects/order/versions", submission(ORDER, references=references)) == 42201


# ---- deletion ------------------------------------------------------------------------------------------------------------


def test_a_version_is_deleted_softly_then_permanently(registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    registry.register("s", WITH_DRINK)
    assert registry.error("DELETE", "/subjects/s/versions/1?permanent=true") == 40407
    assert registry.value("DELETE", "/subjects/s/versions/1") == 1
    assert registry.error("DELETE", "/subjects/s/versions/1") == 40406
    assert registry.error("GET", "/subjects/s/versions/1") == 40402
    assert registry.get("/subjects/s/versions/1?deleted=true")["deleted"] is True
    assert registry.get("/subjects/s/versions") == [2]
    assert registry.get("/subjects/s/versions?deleted=true") == [1, 2]
    assert registry.get("/subjects/s/versions?deletedOnly=true") == [1]
    assert registry.get("/schemas/ids/1")["schema"] == TEXT
    assert registry.get("/schemas/ids/1/subjects") == []
    assert registry.get("/schemas/ids/1/subjects?deleted=true") == ["s"]
    assert registry.value("DELETE", "/subjects/s/versions/1?permanent=true") == 1
    assert registry.error("GET", "/schemas/ids/1") == 40403
    assert registry.error("DELETE", "/subjects/s/versions/1") == 40402
    assert registry.value("DELETE", "/subjects/s/versions/latest") == 2
    assert registry.error("DELETE", "/subjects/s/versions/latest") == 40401


def test_a_subject_is_deleted_softly_then_permanently(registry: RegistryClient) -> None:
    assert registry.error("DELETE", "/subjects/s") == 40401
    registry.register("s", ORDER)
    registry.register("s", WITH_DRINK)
    registry.value("PUT", "/config/s", {"compatibility": "FULL"})
    assert registry.error("DELETE", "/subjects/s?permanent=true") == 40405
    assert registry.value("DELETE", "/subjects/s") == [1, 2]
    assert registry.error("DELETE", "/subjects/s") == 40404
    assert registry.get("/subjects") == []
    assert registry.get("/subjects?deleted=true") == registry.get("/subjects?deletedOnly=true") == ["s"]
    assert registry.error("GET", "/config/s") == 40408
    assert registry.value("POST", "/subjects/s?deleted=true", submission(ORDER))["version"] == 1
    assert registry.value("DELETE", "/subjects/s?permanent=true") == [1, 2]
    assert registry.get("/subjects?deleted=true") == []


def test_a_schema_that_comes_again_has_its_id_and_no_other_schema_gets_it(registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    registry.value("DELETE", "/subjects/s")
    assert registry.value("POST", "/subjects/s/versions", submission(ORDER))["version"] == 2
    assert registry.get("/subjects/s/versions/2")["id"] == 1
    registry.register("s", ORDER)
    registry.value("DELETE", "/subjects/s")
    registry.value("DELETE", "/subjects/s?permanent=true")
    assert registry.register("s", WITH_DRINK) == 2


# ---- compatibility -------------------------------------------------------------------------------------------------------

DROPPED: Final = record("Order", {"name": "drink", "type": "string", "default": "espresso"})
LEVELS: Final = {
    "BACKWARD": [(WITH_DRINK, True), (WITH_PRICE, False), (DROPPED, True)],
    "FORWARD": [(WITH_DRINK, True), (WITH_PRICE, True), (DROPPED, False)],
    "FULL": [(WITH_DRINK, True), (WITH_PRICE, False), (DROPPED, False)],
    "NONE": [(WITH_DRINK, True), (WITH_PRICE, True), ("string", True)],
}
"""By level, schemas that follow ORDER, and whether they may."""


@pytest.mark.parametrize("transitive", ["", "_TRANSITIVE"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_decides_which_schema_may_follow(registry: RegistryClient, level: str, transitive: str) -> None:
    transitive = transitive if level != "NONE" else ""
    registry.value("PUT", "/config", {"compatibility": f"{level}{transitive}".lower()})
    for number, (schema, is_compatible) in enumerate(LEVELS[level]):
        subject = f"s{number}"
        registry.register(subject, ORDER)
        body = submission(schema if isinstance(schema, dict) else json.dumps(schema))
        for path in (f"/compatibility/subjects/{subject}/versions/latest", f"/compatibility/subjects/{subject}/versions"):
            answer = registry.value("POST", f"{path}?verbose=true", body)
            assert answer["is_compatible"] is is_compatible
            assert bool(answer["messages"]) is not is_compatible
        status, answer = registry.call("POST", f"/subjects/{subject}/versions", body)
        assert (status, answer.get("error_code")) == ((200, None) if is_compatible else (409, 409))


def test_a_transitive_level_compares_with_all_versions(registry: RegistryClient) -> None:
    first = record("R", "a: int")
    second = record("R", "a: int", {"name": "b", "type": "int", "default": 1})
    third = record("R", "a: int", "b: int")
    for subject, level in (("last", "BACKWARD"), ("all", "BACKWARD_TRANSITIVE")):
        registry.value("PUT", f"/config/{subject}", {"compatibility": level})
        registry.register(subject, first)
        registry.register(subject, second)
    assert registry.register("last", third) == 3
    assert registry.error("POST", "/subjects/all/versions", submission(third)) == 409
    assert registry.value("POST", "/compatibility/subjects/all/versions/2", submission(third))["is_compatible"]
    assert not registry.value("POST", "/compatibility/subjects/all/versions/1", submission(third))["is_compatible"]
    registry.value("DELETE", "/subjects/all/versions/1")
    assert registry.register("all", third) == 3


def test_a_refusal_says_why_and_with_which_version(registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    _, answer = registry.call("POST", "/subjects/s/versions", submission(WITH_PRICE))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer["message"]
    assert "price" in answer["message"]
    assert "oldSchemaVersion: 1" in answer["message"]


def test_a_first_schema_is_compatible_with_nothing_and_a_missing_version_is_not_found(registry: RegistryClient) -> None:
    assert registry.value("POST", "/compatibility/subjects/s/versions/latest", submission(ORDER)) == {"is_compatible": True}
    assert registry.error("POST", "/compatibility/subjects/s/versions/1", submission(ORDER)) == 40401
    registry.register("s", ORDER)
    assert registry.error("POST", "/compatibility/subjects/s/versions/7", submission(ORDER)) == 40402


def test_compatibility_is_set_for_all_and_for_a_subject(registry: RegistryClient) -> None:
    assert registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert registry.value("PUT", "/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert registry.get("/config/s?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert registry.error("GET", "/config/s") == 40408
    registry.value("PUT", "/config/s", {"compatibility": "NONE"})
    assert registry.get("/config/s") == {"compatibilityLevel": "NONE"}
    assert registry.value("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
    assert registry.error("DELETE", "/config/s") == 40401
    assert registry.value("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert registry.error("PUT", "/config", {"compatibility": "SIDEWARD"}) == 42203
    assert registry.error("PUT", "/config", {"alias": "x"}) == 422


# ---- modes ---------------------------------------------------------------------------------------------------------------


def test_a_read_only_subject_accepts_no_change(registry: RegistryClient) -> None:
    registry.register("s", ORDER)
    assert registry.error("GET", "/mode/s") == 40409
    assert registry.value("PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert registry.register("s", ORDER) == 1
    assert registry.error("POST", "/subjects/s/versions", submission(WITH_DRINK)) == 42205
    assert registry.error("DELETE", "/subjects/s") == 42205
    assert registry.error("DELETE", "/subjects/s/versions/1") == 42205
    assert registry.error("PUT", "/config/s", {"compatibility": "NONE"}) == 42205
    assert registry.register("other", ORDER) == 1
    assert registry.value("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert registry.error("DELETE", "/mode/s") == 40401
    assert registry.register("s", WITH_DRINK) == 2


def test_read_only_for_all_can_override_subjects(registry: RegistryClient) -> None:
    registry.value("PUT", "/mode", {"mode": "READONLY"})
    registry.value("PUT", "/mode/s", {"mode": "READWRITE"})
    assert registry.register("s", ORDER) == 1
    registry.value("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    assert registry.get("/mode") == {"mode": "READONLY_OVERRIDE"}
    assert registry.get("/mode/x?defaultToGlobal=true") == {"mode": "READONLY_OVERRIDE"}
    assert registry.error("POST", "/subjects/s/versions", submission(WITH_DRINK)) == 42205
    assert registry.value("DELETE", "/mode") == {"mode": "READONLY_OVERRIDE"}
    assert registry.error("PUT", "/mode", {"mode": "SIDEWARD"}) == 42204


def test_imported_schemas_keep_their_ids_and_versions(registry: RegistryClient) -> None:
    registry.register("there", ORDER)
    assert registry.error("PUT", "/mode", {"mode": "IMPORT"}) == 42205
    assert registry.error("POST", "/subjects/s/versions", submission(WITH_DRINK, id=70)) == 42205
    registry.value("PUT", "/mode/s", {"mode": "IMPORT"})
    assert registry.register("s", WITH_PRICE, id=70, version=7) == 70
    assert registry.register("s", ORDER, id=1, version=3) == 1
    assert registry.get("/subjects/s/versions") == [3, 7]
    assert registry.error("POST", "/subjects/s/versions", submission(WITH_DRINK)) == 42205
    assert registry.error("POST", "/subjects/s/versions", submission(WITH_DRINK, id=70)) == 42205
    assert registry.error("POST", "/subjects/s/versions", submission(WITH_DRINK, id=71, version=7)) == 42205
    registry.value("PUT", "/mode?force=true", {"mode": "IMPORT"})
    registry.value("DELETE", "/mode")
    assert registry.register("there", WITH_DRINK) == 71


# ---- bad input -----------------------------------------------------------------------------------------------------------


def deep(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 42201),
        ({"schema": ""}, 42201),
        ({"schema": 7}, 42201),
        ({"schema": "{"}, 42201),
        ({"schema": "NaN"}, 42201),
        ({"schema": '"strong"'}, 42201),
        ({"schema": "7"}, 42201),
        ({"schema": "null"}, 42201),
        ({"schema": "[]", "schemaType": "AVRO"}, 200),
        ({"schema": '{"type":"record","name":"R"}'}, 42201),
        ({"schema": '{"type":"record","name":"1R","fields":[]}'}, 42201),
        ({"schema": '{"type":"record","name":"R","fields":{}}'}, 42201),
        ({"schema": '{"type":"enum","name":"E","symbols":["a","a"]}'}, 42201),
        ({"schema": '{"type":"fixed","name":"F","size":"x"}'}, 42201),
        ({"schema": '["int","int"]'}, 42201),
        ({"schema": '{"type":"string","x":"\\ud800"}'}, 42201),
        ({"schema": deep(MAX_NESTING - 2)}, 200),
        ({"schema": deep(MAX_NESTING)}, 42201),
        ({"schema": deep(20_000)}, 42201),
        ({"schema": json.dumps([record(f"R{each}") for each in range(MAX_ELEMENTS // 4)])}, 42201),
        ({"schema": '"int"', "schemaType": "XML"}, 42201),
        ({"schema": '"int"', "id": "x"}, 42201),
        ({"schema": '"int"', "version": 7}, 42201),
        ({"schema": '"int"', "metadata": {"properties": {"a": "b"}}}, 42201),
        ({"schema": '"int"', "ruleSet": {"domainRules": []}}, 42210),
        ({"schema": '"int"', "references": [{"name": "n", "subject": "s", "version": 1}] * 10_000}, 42201),
        ({"schema": "x" * (MAX_BODY_BYTES - 1000)}, 42209),
        ({"schema": json.dumps({"type": "string", "doc": "x" * 1_048_500})}, 42209),
        ([], 400),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_schema_has_its_error_code(registry: RegistryClient, body: Any, code: int) -> None:
    status, answer = registry.call("POST", "/subjects/s/versions", body)
    assert answer.get("error_code", 200) == code, answer
    assert status == int(str(code)[:3])
    assert registry.register("next", ORDER)


def test_a_body_of_ten_megabytes_is_refused_while_it_arrives(registry: RegistryClient) -> None:
    with socket.create_connection(urlsplit(registry.url).netloc.split(":"), timeout=60) as peer:
        head = "POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
        peer.sendall(head.encode() + b"x" * (MAX_BODY_BYTES + 1))
        response = b""
        while b"42209" not in response:
            piece = peer.recv(65536)
            assert piece, response
            response += piece
    assert response.startswith(b"HTTP/1.1 422 ")


def test_a_body_that_is_not_json_is_refused(registry: RegistryClient) -> None:
    assert registry.send("POST", "/subjects/s/versions", b"{")[1]["error_code"] == 400
    assert registry.send("POST", "/subjects/s/versions", b"[" * 100_000)[1]["error_code"] == 400
    assert registry.send("POST", "/subjects/s/versions", b"\xff")[1]["error_code"] == 400


@pytest.mark.parametrize("version", ["0", "x", "-2", "99999999999", "1.5", "²", "2147483648"])
def test_a_version_is_a_positive_number_or_latest(registry: RegistryClient, version: str) -> None:
    registry.register("s", ORDER)
    quoted = version.encode().hex("%")
    for method in ("GET", "DELETE"):
        assert registry.error(method, f"/subjects/s/versions/%{quoted}") == 42202


@pytest.mark.parametrize("schema_id", ["0", "x", "-1", "99999999999"])
def test_an_unknown_id_is_not_found(registry: RegistryClient, schema_id: str) -> None:
    assert registry.error("GET", f"/schemas/ids/{schema_id}") == 40403
    assert registry.error("GET", f"/schemas/guids/{schema_id}") == 40403


@pytest.mark.parametrize("subject", [":.other:s", ":.other:", "__GLOBAL", "%00", "x" * 1001])
def test_a_subject_of_a_context_and_an_unprintable_one_are_refused(registry: RegistryClient, subject: str) -> None:
    for method, path in (
        ("GET", f"/subjects/{subject}/versions"),
        ("POST", f"/subjects/{subject}/versions"),
        ("GET", f"/config/{subject}"),
        ("DELETE", f"/subjects/{subject}"),
    ):
        body = submission(ORDER) if method == "POST" else None
        assert registry.error(method, path, body) == 42208


def test_paths_of_contexts_are_refused_with_the_reason(registry: RegistryClient) -> None:
    status, answer = registry.call("GET", "/contexts/.other/subjects")
    assert (status, answer["error_code"]) == (422, 42208)
    assert "contexts are not supported" in answer["message"]
    assert registry.error("GET", "/subjects?subjectPrefix=:.other:") == 42208


def test_references_have_a_limit_through_other_schemas_too(registry: RegistryClient) -> None:
    registry.register("r0", record("R0"))
    references: list[Any] = []
    for number in range(1, 5):
        reference = {"name": f"R{number - 1}", "subject": f"r{number - 1}", "version": 1}
        registry.register(f"r{number}", record(f"R{number}", f"x: R{number - 1}"), references=[reference])
        references.append(reference)
    many = [{**references[0], "name": f"n{number}"} for number in range(MAX_REFERENCES + 1)]
    assert registry.error("POST", "/subjects/s/versions", submission(ORDER, references=many)) == 42201
    assert registry.register("s", ORDER, references=references) == 6


def test_a_page_of_another_site_changes_nothing(registry: RegistryClient) -> None:
    foreign = RegistryClient(registry.url, headers={"Origin": "http://elsewhere.example"})
    assert foreign.error("POST", "/subjects/s/versions", submission(ORDER)) == 403
    as_form = RegistryClient(registry.url, headers={"Content-Type": "text/plain"})
    assert as_form.error("POST", "/subjects/s/versions", submission(ORDER)) == 415
    rebound = RegistryClient(registry.url, headers={"Host": "elsewhere.example"})
    assert rebound.error("GET", "/subjects") == 403
    as_json = RegistryClient(registry.url, headers={"Content-Type": "application/json; charset=utf-8"})
    assert as_json.register("s", ORDER) == 1


def test_the_page_has_every_call_with_its_right() -> None:
    rows = "\n".join(f"| `{each.method} /{'/'.join(each.pattern)}` | {each.right.name} |" for each in ROUTES)
    assert f"| call | right |\n|---|---|\n{rows}\n\n" in PAGE.read_text(encoding="utf-8")


def test_every_route_that_is_not_a_read_needs_a_right_to_change() -> None:
    for route in ROUTES:
        is_read = route.right.name == "READ"
        reads_by_post = (route.method == "POST" and route.pattern[-1] != "versions") or route.pattern[:1] == ("compatibility",)
        assert is_read == (route.method == "GET" or reads_by_post), route


MEGABYTE = 2**20 - 10


@pytest.mark.parametrize(("level", "is_compatible"), [("BACKWARD_TRANSITIVE", False), ("NONE", True)])
def test_earlier_versions_above_the_limit_count_as_incompatible(level: str, is_compatible: bool) -> None:
    olds = [Source("JSON", "true".ljust(MEGABYTE), (), version) for version in range(1, 10)]
    found = incompatibilities(level, "JSON", parse("JSON", "true", []), olds)
    assert (found == []) is is_compatible
    assert is_compatible or (str(MAX_COMPARED_CHARS) in found[0] and "oldSchemaVersion: 9" in found[1])
    assert incompatibilities(level, "JSON", parse("JSON", "true", []), olds[:8]) == []


def test_a_version_that_is_not_valid_any_more_and_one_of_another_type_count_as_incompatible() -> None:
    new = parse("JSON", "true", [])
    assert "cannot be compared" in incompatibilities("FULL", "JSON", new, [Source("JSON", "{", ())])[0]
    assert "of type JSON" in incompatibilities("FULL", "JSON", new, [Source("PROTOBUF", "", ())])[0]
