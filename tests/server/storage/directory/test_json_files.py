"""Small files that are JSON: what is written comes back, what is damaged is refused by name, whatever the damage."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.protocol.kafka.scram import ScramCredential, ScramMechanism
from triolog.server.access.acls import Acl
from triolog.server.access.quotas import checked_entity
from triolog.server.storage.directory import security_file
from triolog.server.storage.directory.state_files import BROKERS, GROUPS, Overrides
from triolog.server.storage.directory.topics_file import (
    Creation,
    Topic,
    decode_creations,
    decode_deleted_topic_ids,
    decode_topics,
    encode_creations,
    encode_topics,
)
from triolog.server.storage.disk.checkpoints import encode_uuid
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.derived_files import Facts, IndexFacts, decode_facts, encode_facts

from tests.support.counts import by_tier
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.flipped_files import flipped

ID: Final = uuid.UUID("c2acf7d7-591e-4689-a804-fb2b3703c088")
NAME: Final = "some/file.json"


@attrs.frozen
class JsonFile:
    data: bytes
    decode: Callable[[str, bytes], object]


FILES: Final = {
    "topics": JsonFile(
        encode_topics(3, [Topic(name="a", topic_id=ID, partitions=2, configs={"retention.ms": "604800000"})]), decode_topics
    ),
    "creations": JsonFile(
        encode_creations(3, [Creation(name="a", topic_id=ID, first_partition=2, partitions=5)]), decode_creations
    ),
    "groups": JsonFile(GROUPS.encode(Overrides(3, {"group": {"share.delivery.count.limit": "3"}})), GROUPS.decode),
    "brokers": JsonFile(BROKERS.encode(Overrides(3, {"": {"log.retention.ms": "5"}})), BROKERS.decode),
    "security": JsonFile(
        security_file.encode_security(
            security_file.SecurityState(3, quotas={checked_entity([("user", "a")]): {"producer_byte_rate": 1024.0}})
        ),
        security_file.decode_security,
    ),
    "derived": JsonFile(encode_facts(Facts(8, {0: IndexFacts(100, 34, 5)})), decode_facts),
}
EACH: Final = pytest.mark.parametrize("file", FILES.values(), ids=FILES)


def read(file: JsonFile, data: bytes) -> object:
    """None where it is refused by its name; an error that does not name it is none of the answers."""
    try:
        return file.decode(NAME, data)
    except CheckpointError as exc:
        return None if str(exc).startswith(f"{NAME} ") else exc


@EACH
def test_a_flipped_bit_is_noticed_wherever_it_is(file: JsonFile) -> None:
    """A digit of retention.ms could delete records. None takes the checksum away: the next one would be believed (simulated
    seed 90675)."""
    whole, checksum = file.decode(NAME, file.data), file.data.index(b"crc32c")
    step = by_tier(commit=5, merge=3, long=1)
    for bit in range(8 * len(file.data)):
        is_in_name = 0 <= bit // 8 - checksum < len(b"crc32c")
        if is_in_name or bit % step == 0:
            assert read(file, flipped(file.data, bit)) in ((None,) if is_in_name else (None, whole)), f"bit {bit}"


@EACH
@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b'{"format_version": 1}', b'{"format_version": 1, "crc32c": 1}'),
        *(b"[" * 100_000, b'{"format_version": 1, "crc32c": ' + b"[" * 100_000),
    ],
    ids=["nothing", "half", "a list", "version alone", "checksum alone", "deep", "deep inside"],
)
def test_what_cannot_be_read_is_refused_by_name(file: JsonFile, data: bytes) -> None:
    assert read(file, data) is None
    with pytest.raises(CheckpointError, match=r"newer|has format version 2, 1 is known"):
        file.decode(NAME, b'{"format_version": 2}')


@pytest.mark.parametrize(("name", "old", "new"), [("topics", b'"partitions": 2', b'"partitions": 3'), ("derived", b"8", b"9")])
def test_a_file_that_was_edited_is_read_once_its_checksum_is_taken_out(name: str, old: bytes, new: bytes) -> None:
    file = FILES[name]
    edited = file.data.replace(old, new, 1)
    with pytest.raises(CheckpointError, match="crc32c"):
        file.decode(NAME, edited)
    document: dict[str, Any] = json.loads(edited)
    del document["crc32c"]
    assert file.decode(NAME, json.dumps(document).encode()) != file.decode(NAME, file.data)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
overrides = st.dictionaries(texts, st.dictionaries(texts, texts, min_size=1, max_size=3), max_size=4)


@given(st.integers(0, 2**62), overrides)
def test_configurations_of_groups_come_back(generation: int, found: dict[str, dict[str, str]]) -> None:
    state = Overrides(generation, found)
    assert GROUPS.decode(NAME, GROUPS.encode(state)) == state


def test_no_groups_file_is_no_configuration(tmp_path: Path) -> None:
    fs, state = OsFileSystem(), Overrides(3, {"group": {"share.delivery.count.limit": "3"}})
    assert GROUPS.read(fs, str(tmp_path)) == Overrides()
    GROUPS.write(fs, str(tmp_path), state, durable=True)
    assert GROUPS.read(fs, str(tmp_path)) == state


TOPICS = st.builds(
    Topic,
    name=st.text("abcZ019._-", min_size=3, max_size=30),
    topic_id=st.uuids(),
    partitions=st.integers(1, 100),
    configs=st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3),
)


def document_of(entry: str, times: int = 1) -> bytes:
    """A document with an entry that is made like this one, so many times."""
    entries = ", ".join([entry % encode_uuid(ID)] * times)
    return f'{{"format_version": 1, "generation": 1, "topics": [{entries}]}}'.encode()


@given(st.integers(0, 2**53), st.lists(TOPICS, unique_by=lambda topic: topic.name), st.lists(st.uuids(), max_size=3))
def test_topics_read_back_sorted_by_name(generation: int, topics: list[Topic], deleted: list[uuid.UUID]) -> None:
    """The file is what the json module writes."""
    data = encode_topics(generation, topics, deleted)
    assert decode_topics("file", data) == (generation, sorted(topics, key=lambda topic: topic.name))
    document = json.loads(data)
    assert data == (json.dumps(document, indent=1) + "\n").encode()
    assert list(document)[-1] == "crc32c"
    assert ("deleted_topic_ids" in document) is bool(deleted)


def test_the_file_is_a_document_for_people_too() -> None:
    data = encode_topics(3, [Topic(name="a", topic_id=ID, partitions=2, configs={"segment.bytes": "100"})])
    document = json.loads(data)
    assert document.pop("crc32c") > 0
    assert document == {
        "format_version": 1,
        "generation": 3,
        "topics": [{"name": "a", "topic_id": encode_uuid(ID), "partitions": 2, "configs": {"segment.bytes": "100"}}],
    }
    assert data.endswith(b"}\n")
    assert len(data.splitlines()) > 5


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b'{"format_version": 1, "generation": "x", "topics": []}',
        b'{"format_version": 1, "generation": 1, "topics": [{}]}',
        b'{"format_version": 1, "generation": 1, "topics": [5]}',
        b'{"format_version": 1, "generation": 1, "topics": 5}',
        b'{"format_version": 1, "generation": 1, "topics": [{"name": "a", "topic_id": "x", "partitions": 1, "configs": {}}]}',
        b'{"format_version": 1, "generation": 1, "topics": [{"name": "a", "topic_id": 7, "partitions": 1, "configs": {}}]}',
        b'{"format_version": 1, "generation": Infinity, "topics": []}',
        b'{"format_version": 1, "generation": 1, "topics": ' + b"[" * 100_000,
        document_of('{"name": "../a", "topic_id": "%s", "partitions": 1, "configs": {}}'),
        document_of('{"name": "a", "topic_id": "%s", "partitions": 0, "configs": {}}'),
        document_of('{"name": "a", "topic_id": "%s", "partitions": 2000000000, "configs": {}}'),
        document_of('{"name": "a", "topic_id": "%s", "partitions": 1, "configs": {}}', times=2),
    ],
)
def test_topics_that_cannot_be_read_name_the_file_and_the_way_out(data: bytes) -> None:
    message = r"some/topics.json (cannot be read: .*; copy the one|has format version 2, 1 is known: a newer triolog .*; copy)"
    with pytest.raises(CheckpointError, match=message):
        decode_topics("some/topics.json", data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["format_version", "generation", "topics", "name", "topic_id", "partitions", "configs"]), inner
            )
        ),
    )
)
def test_any_other_document_is_a_checkpoint_error(document: object) -> None:
    try:
        generation, _ = decode_topics("file", json.dumps(document).encode())
    except CheckpointError:
        return
    assert isinstance(document, dict)
    assert document["format_version"] == 1
    assert isinstance(generation, int)


def test_topics_deleted_while_a_directory_was_away_are_read_back_and_not_there_otherwise() -> None:
    gone = {uuid.uuid4(), uuid.uuid4()}
    data = encode_topics(3, [], gone)
    assert decode_topics("topics.json", data) == (3, [])
    assert decode_deleted_topic_ids("topics.json", data) == gone
    assert b"deleted" not in encode_topics(3, [])
    assert decode_deleted_topic_ids("topics.json", encode_topics(3, [])) == set()
    with pytest.raises(CheckpointError, match=r"topics\.json cannot be read"):
        decode_deleted_topic_ids("topics.json", b'{"deleted_topic_ids": ["x"]}')


security_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
credentials = st.builds(
    lambda mechanism, salt, keys: ScramCredential(
        mechanism, 4096, salt, keys[: mechanism.key_bytes], keys[-mechanism.key_bytes :]
    ),
    st.sampled_from(ScramMechanism),
    st.binary(min_size=1, max_size=20),
    st.binary(min_size=64, max_size=64),
)
drawn_acls = st.builds(
    Acl,
    st.sampled_from(ResourceType),
    security_names,
    st.sampled_from(PatternType),
    security_names,
    security_names,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermission),
)
quota_entities = st.one_of(
    st.dictionaries(st.sampled_from(["user", "client-id"]), st.none() | security_names, min_size=1),
    st.just({"ip": None}),
    st.ip_addresses().map(lambda address: {"ip": str(address)}),
).map(lambda parts: checked_entity(parts.items()))
drawn_quotas = st.dictionaries(
    quota_entities,
    st.dictionaries(security_names, st.floats(min_value=0, exclude_min=True), min_size=1, max_size=3),
    max_size=4,
)
security_states = st.builds(
    lambda generation, users, rules, drawn_quotas: security_file.SecurityState(
        generation, {(name, each.mechanism): each for name, each in users}, rules, drawn_quotas
    ),
    st.integers(0, 2**40),
    st.lists(st.tuples(security_names, credentials), max_size=4),
    st.frozensets(drawn_acls, max_size=4),
    drawn_quotas,
)
ONE = security_file.SecurityState(
    3,
    {("alice", ScramMechanism.SCRAM_SHA_256): ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096, b"s", b"k" * 32, b"v" * 32)},
    quotas={checked_entity([("user", "alice"), ("client-id", None)]): {"producer_byte_rate": 1024.0}},
)


@given(security_states)
def test_security_comes_back(state: security_file.SecurityState) -> None:
    assert security_file.decode_security("security.json", security_file.encode_security(state)) == state


def test_what_is_wrong_is_said_without_a_key() -> None:
    document = json.loads(security_file.encode_security(ONE))
    document["scram_credentials"][0]["credential"] = "salt=secret"
    with pytest.raises(CheckpointError) as caught:
        security_file.decode_security("security.json", json.dumps(document).encode())
    assert "secret" not in str(caught.value)


def test_nobody_but_its_owner_reads_it(tmp_path: Path) -> None:
    for durable in (True, False):
        security_file.write_security(OsFileSystem(), str(tmp_path), ONE, durable=durable)
        assert (tmp_path / security_file.SECURITY_FILE).stat().st_mode & 0o777 == 0o600
    assert security_file.read_security(OsFileSystem(), str(tmp_path)) == ONE


def test_a_power_cut_leaves_the_old_or_the_new() -> None:
    for changes in range(12):
        fs = CrashFileSystem()
        security_file.write_security(fs, "", security_file.SecurityState(1), durable=True)
        fs.cut_after(changes)
        try:
            security_file.write_security(fs, "", ONE, durable=True)
            is_written = True
        except PowerCut:
            is_written = False
        found = security_file.read_security(fs.crash(random.Random(changes)), "")
        assert found == ONE if is_written else found in (security_file.SecurityState(1), ONE)
    assert is_written
