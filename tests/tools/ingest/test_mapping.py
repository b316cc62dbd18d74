from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import SCHEMAS_TOPIC
from triolog.server.storage.disk.paths import INTERNAL_TOPICS
from triolog.tools.forward.errors import SettingsError
from triolog.tools.ingest.mapping import ERROR_HEADER, Message, dead_letter, entry_of, pointed, timestamp_of
from triolog.tools.ingest.packet_ids import admit, after, from_text, to_text
from triolog.tools.ingest.settings import INGEST, MAX_UNACKNOWLEDGED, IngestLink, IngestSettings, Map

LEAST: dict[str, Any] = {"name": "a", "broker": "there:1883", "map": [{"filter": "#", "topic": "t"}]}


def link(**changes: Any) -> IngestLink:
    made: IngestLink = INGEST.read_link("the test", {**LEAST, **changes})
    return made


@pytest.mark.parametrize(
    ("wanted", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("+/b", "/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_filters_match_as_the_standard_says(wanted: str, topic: str, matches: bool) -> None:
    assert Map(filter=wanted, topic="t").matches(topic) is matches


@pytest.mark.parametrize(
    ("pointer", "found"),
    [("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/m~0n", 8), ("/foo", ["bar", "baz"]), ("/k", {"x": None}), ("/k/x", None)],
)
def test_pointers_are_those_of_rfc_6901(pointer: str, found: object) -> None:
    document = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, "k": {"x": None}}
    assert pointed(document, pointer) == found


@pytest.mark.parametrize("pointer", ["/foo/2", "/foo/-1", "/foo/-", "/foo/x", "/none", "/text/0", "/k/x/y"])
def test_a_pointer_to_nothing_is_an_error(pointer: str) -> None:
    with pytest.raises(ValueError, match="has nothing at"):
        pointed({"foo": ["bar", "baz"], "text": "abc", "k": {"x": None}}, pointer)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1_700_000_000, 1_700_000_000_000),
        (1_700_000_000.25, 1_700_000_000_250),
        (1_700_000_000_250, 1_700_000_000_250),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20.25+01:00", 1_700_000_000_250),
        ("9999-12-31", 253_402_214_400_000),
    ],
)
def test_times_are_seconds_milliseconds_or_iso_8601(value: object, found: int) -> None:
    assert timestamp_of(value) == found


@pytest.mark.parametrize("value", [None, True, "soon", [], -1, float("nan"), float("inf"), 10**400, "1969-12-31"])
def test_other_values_are_no_time(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        timestamp_of(value)


def test_the_first_map_decides_and_levels_fill_topic_and_key() -> None:
    maps = [
        {"filter": "site/+/alarms", "topic": "alarms", "key": "/id"},
        {"filter": "site/#", "topic": "{1}.{2}", "key": "{topic}"},
    ]
    both = link(map=maps)
    first = entry_of(both, Message("site/a/alarms", b'{"id": 7}', 5))
    second = entry_of(both, Message("site/b/x", b"", 5))
    assert (first.topic, first.key, second.topic, second.key, second.value) == ("alarms", b"7", "site.b", b"site.b.x", b"")
    assert entry_of(both, Message("site", b"", 5)).is_dead_letter


@pytest.mark.parametrize("name", [*sorted(INTERNAL_TOPICS), SCHEMAS_TOPIC])
def test_a_device_that_chooses_the_topic_reaches_no_state_of_the_server(name: str) -> None:
    entry = entry_of(link(map=[{"filter": "#", "topic": "{topic}"}]), Message(name, b"{}", 5))
    assert entry.is_dead_letter
    assert (ERROR_HEADER, f"{name} is a topic of the server itself".encode()) in entry.headers


@given(st.text(max_size=30), st.binary(max_size=30) | st.from_type(dict[str, int]).map(lambda each: json.dumps(each).encode()))
def test_any_message_is_a_record_or_a_dead_letter(topic: str, payload: bytes) -> None:
    topic = topic.encode(errors="replace").decode()
    entry = entry_of(link(map=[{"filter": "+/#", "topic": "{2}", "key": "/a", "timestamp": "/b"}]), Message(topic, payload, 5))
    assert entry.is_dead_letter or entry.value == payload


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qos": 3}, "qos: 3 is not in 0..2"),
        ({"quality": 1}, "unknown key 'quality'"),
        ({"map": []}, "maps are tables"),
        ({"map": [{"filter": "a"}]}, "map 1: it needs the keys filter and topic"),
        ({"map": [{"filter": "a", "topic": "t", "x": 1}]}, "map 1: unknown key 'x'"),
        ({"map": [{"filter": "a/+b", "topic": "t"}]}, "is not a topic filter"),
        ({"map": [{"filter": "a", "topic": "a b"}]}, "a b"),
        ({"map": [{"filter": "a", "topic": "t", "key": "{0}"}]}, "for the first level"),
        ({"receive_maximum": MAX_UNACKNOWLEDGED + 1}, "receive_maximum"),
        ({"password": "secret"}, "a secret is"),
        ({"broker": "nowhere"}, "is not HOST:PORT"),
        ({"protocol": "4"}, "is not one of 5, 3.1.1"),
        ({"name": None}, "the key 'name' is missing"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    table = {key: value for key, value in {**LEAST, **changes}.items() if value is not None}
    with pytest.raises(SettingsError) as caught:
        INGEST.read_link("the test", table)
    assert message in str(caught.value)


def test_links_do_not_share_a_session() -> None:
    with pytest.raises(SettingsError, match="have the same client_id"):
        IngestSettings(links=(link(client_id="c"), link(name="b", client_id="c")))
    with pytest.raises(SettingsError, match="have the same client_id"):
        IngestSettings(links=(link(client_id="triolog-b"), link(name="b")))
    IngestSettings(links=(link(client_id="b"), link(name="b")))


def test_no_device_writes_to_the_positions_of_files() -> None:
    topics = link(map=[{"filter": "#", "topic": "{topic}"}])
    found = [entry_of(topics, Message(each, b"", 0)) for each in ("triolog-ingest/web/positions", "triolog-ingest/web")]
    assert [(each.is_dead_letter, each.topic) for each in found] == [(True, "mqtt-dead-letters"), (False, "triolog-ingest.web")]


def test_a_reason_is_cut_between_characters() -> None:
    [reason] = [
        value
        for name, value in dead_letter(link(), Message("t", b"", 0), "x" + "\u00e4" * 2000).headers
        if name == ERROR_HEADER
    ]
    assert reason.decode() == "x" + "\u00e4" * 499


@given(st.dictionaries(st.integers(1, 65535), st.binary(min_size=4, max_size=4), max_size=MAX_UNACKNOWLEDGED))
def test_packet_ids_fit_the_metadata_of_an_offset(unreleased: dict[int, bytes]) -> None:
    text = to_text(unreleased)
    assert len(text) <= 4096
    assert from_text(text) == unreleased


def test_metadata_of_others_is_refused() -> None:
    for text in ("x", "eA==", "ä"):
        with pytest.raises(ValueError, match=r"."):
            from_text(text)
    assert from_text(None) == {}


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([b"a", b"b"]), st.sampled_from(["new", "again", "release"]))))
def test_a_broker_that_keeps_its_session_has_each_message_stored_once(steps: list[tuple[int, bytes, str]]) -> None:
    """The broker uses an id for another message only when it was released, and marks what it sends again."""
    unreleased: dict[int, bytes] = {}
    at_broker: dict[int, bytes] = {}
    sent: list[bytes] = []
    stored: list[bytes] = []
    for packet_id, payload, step in steps:
        messages: list[Message] = []
        released: list[int] = []
        if step == "new" and packet_id not in at_broker:
            at_broker[packet_id] = payload
            sent.append(payload)
            messages = [Message("t", payload, 0, 2, packet_id=packet_id)]
        elif step == "again" and packet_id in at_broker:
            messages = [Message("t", at_broker[packet_id], 0, 2, dup=True, packet_id=packet_id)]
        elif step == "release" and packet_id in at_broker:
            del at_broker[packet_id]
            released = [packet_id]
        new = admit(messages, unreleased).new
        stored += [message.payload for message in new]
        unreleased = after(from_text(to_text(unreleased)), new, released)
    assert stored == sent
