"""Small files that are JSON, and those that hold a state as a whole: what is written comes back, what is damaged is refused by
name, the copy before the last change stays, and what a creation left over is told from what is served."""

from __future__ import annotations

import errno
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
from triolog.protocol.types import TopicPartition
from triolog.server.access.acls import Acl
from triolog.server.access.quotas import checked_entity
from triolog.server.offline.findings import Observer
from triolog.server.offline.repair_directory import STATES, repair_directory
from triolog.server.storage.directory import state_files, topics_file
from triolog.server.storage.directory.clock_file import ClockState, Episode, decode_clock, encode_clock
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.directory.state_files import BROKERS, GROUPS, Overrides, read_previous, read_state, write_state
from triolog.server.storage.directory.topics_file import (
    TOPICS_FILE,
    Creation,
    Topic,
    decode_creations,
    decode_deleted_topic_ids,
    decode_topics,
    encode_creations,
    encode_topics,
)
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata, encode_uuid
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError, FileTooLargeError
from triolog.server.storage.log.derived_files import Facts, IndexFacts, decode_facts, encode_facts
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from triolog.server.storage.segments.undated import UndatedRange

from tests.server.offline.test_verify import verified
from tests.support.counts import by_tier
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.flipped_files import flipped
from tests.support.logs import batch
from tests.support.stopped_logs import Seen, write_stopped_logs

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
        state_files.encode_security(
            state_files.SecurityState(3, quotas={checked_entity([("user", "a")]): {"producer_byte_rate": 1024.0}})
        ),
        state_files.decode_security,
    ),
    "clock": JsonFile(
        encode_clock(
            ClockState(
                generation=3,
                suspended=(5, 6),
                episodes=(Episode(1, 2),),
                ranges={("c2acf7d7591e4689a804fb", 0): (UndatedRange(0, 5, 9), UndatedRange(7))},
            )
        ),
        decode_clock,
    ),
    "derived": JsonFile(encode_facts(Facts(8, {0: IndexFacts(100, 34, 5)})), decode_facts),
}
EACH: Final = pytest.mark.parametrize("file", FILES.values(), ids=FILES)


def read(file: JsonFile, data: bytes) -> object:
    """None where it is refused by its name; an error that does not name it is none of the answers."""
    try:
        return file.decode(NAME, data)
    except CheckpointError as exc:
        return None if NAME in str(exc) else exc


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
    with pytest.raises(CheckpointError, match=r"newer|has format version 2"):
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
    message = r"some/topics.json(: .*\. Copy the file| has format version 2, known is 1: a newer triolog .*\. Copy)"
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
    with pytest.raises(CheckpointError, match=r"cannot read .*topics\.json"):
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
    lambda generation, users, rules, drawn_quotas: state_files.SecurityState(
        generation, {(name, each.mechanism): each for name, each in users}, rules, drawn_quotas
    ),
    st.integers(0, 2**40),
    st.lists(st.tuples(security_names, credentials), max_size=4),
    st.frozensets(drawn_acls, max_size=4),
    drawn_quotas,
)
ONE = state_files.SecurityState(
    3,
    {("alice", ScramMechanism.SCRAM_SHA_256): ScramCredential(ScramMechanism.SCRAM_SHA_256, 4096, b"s", b"k" * 32, b"v" * 32)},
    quotas={checked_entity([("user", "alice"), ("client-id", None)]): {"producer_byte_rate": 1024.0}},
)


@given(security_states)
def test_security_comes_back(state: state_files.SecurityState) -> None:
    assert state_files.decode_security("security.json", state_files.encode_security(state)) == state


def test_what_is_wrong_is_said_without_a_key() -> None:
    document = json.loads(state_files.encode_security(ONE))
    document["scram_credentials"][0]["credential"] = "salt=secret"
    with pytest.raises(CheckpointError) as caught:
        state_files.decode_security("security.json", json.dumps(document).encode())
    assert "secret" not in str(caught.value)


def test_nobody_but_its_owner_reads_it(tmp_path: Path) -> None:
    for durable in (True, False):
        state_files.write_security(OsFileSystem(), str(tmp_path), ONE, durable=durable)
        assert (tmp_path / state_files.SECURITY_FILE).stat().st_mode & 0o777 == 0o600
    assert state_files.read_security(OsFileSystem(), str(tmp_path)) == ONE


def test_a_power_cut_leaves_the_old_or_the_new() -> None:
    for changes in range(12):
        fs = CrashFileSystem()
        state_files.write_security(fs, "", state_files.SecurityState(1), durable=True)
        fs.cut_after(changes)
        try:
            state_files.write_security(fs, "", ONE, durable=True)
            is_written = True
        except PowerCut:
            is_written = False
        found = state_files.read_security(fs.crash(random.Random(changes)), "")
        assert found == ONE if is_written else found in (state_files.SecurityState(1), ONE)
    assert is_written


OURS, THEIRS = uuid.UUID(int=1000), uuid.UUID(int=2000)
LOG: Final = "00000000000000000000.log"
MADE: Final = topics_file.Creation(name="topic", topic_id=OURS, first_partition=2, partitions=5)
CREATIONS = st.builds(
    topics_file.Creation,
    name=st.text("abcZ019._-", min_size=3, max_size=20),
    topic_id=st.uuids(),
    first_partition=st.integers(0, 9),
    partitions=st.integers(10, 99),
)


def make(path: Path, topic_id: uuid.UUID | None = OURS, **files: bytes) -> str:
    """A partition's directory as a creation leaves it, with more files."""
    path.mkdir(parents=True)
    if topic_id is not None:
        (path / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(topic_id))
    (path / LEADER_EPOCH_FILE).write_bytes(b"0\n0\n")
    (path / LOG).write_bytes(b"")
    for name, data in files.items():
        (path / name).write_bytes(data)
    return str(path)


def is_left(path: str, number: int = 3, topics: dict[str, Topic] | None = None) -> bool:
    return topics_file.is_left_over(FS, [MADE], topics or {}, TopicPartition("topic", number), path)


def named(topic_id: uuid.UUID, partitions: int) -> dict[str, Topic]:
    return {"topic": Topic(name="topic", topic_id=topic_id, partitions=partitions)}


@given(st.integers(0, 2**53), st.lists(CREATIONS, max_size=3))
def test_what_is_being_made_reads_back(generation: int, creations: list[topics_file.Creation]) -> None:
    data = topics_file.encode_creations(generation, creations)
    assert topics_file.decode_creations("file", data) == (generation, creations)
    assert list(json.loads(data))[-1] == "crc32c"


@pytest.mark.parametrize("change", [{"first_partition": -1}, {"first_partition": 5}, {"partitions": 10**9}, {"name": "../x"}])
def test_a_creation_that_cannot_be_is_an_error_that_names_the_file(change: dict[str, Any]) -> None:
    content = topics_file.encode_creations(3, [attrs.evolve(MADE, **change)])
    with pytest.raises(CheckpointError, match=r"some/file: .*\. Delete it"):
        topics_file.decode_creations("some/file", content)


def test_beside_an_older_list_of_topics_it_says_nothing(tmp_path: Path) -> None:
    (tmp_path / topics_file.CREATIONS_FILE).write_bytes(topics_file.encode_creations(7, [MADE]))
    assert topics_file.read_creations(FS, str(tmp_path), 7) == topics_file.read_creations(FS, str(tmp_path), 8) == [MADE]
    assert topics_file.read_creations(FS, str(tmp_path), 6) == []


@pytest.mark.parametrize(
    ("number", "topic_id", "topics", "left"),
    [
        *[(3, topic_id, topics, True) for topic_id in (OURS, None) for topics in ({}, named(OURS, 2), named(OURS, 3))],
        pytest.param(3, OURS, named(THEIRS, 9), True, id="the topic was made again"),
        *[(number, OURS, {}, False) for number in (0, 1, 5, 100)],
        *[(3, topic_id, named(OURS, 4), False) for topic_id in (OURS, None)],
        pytest.param(3, THEIRS, {}, False, id="somebody put it there"),
    ],
)
def test_what_was_being_made_and_no_list_of_topics_names_is_left_over(
    tmp_path: Path, number: int, topic_id: uuid.UUID | None, topics: dict[str, Topic], left: bool
) -> None:
    assert is_left(make(tmp_path / "topic", topic_id), number, topics) is left


def test_a_directory_whose_files_were_torn_by_a_power_cut_is_left_over(tmp_path: Path) -> None:
    (tmp_path / "topic-3").mkdir()
    assert is_left(str(tmp_path / "topic-3"))
    torn = {f"{PARTITION_METADATA_FILE}.tmp": b"ver", PARTITION_METADATA_FILE: bytes(40), LOG: bytes(10_000)}
    assert is_left(make(tmp_path / "torn", **torn))


@pytest.mark.parametrize("topic_id", [OURS, None])
@pytest.mark.parametrize(
    "files",
    [
        {LOG: batch()},
        {LOG: bytes(5000) + batch()},
        {"00000000000000000007.log": b""},
        {"00000000000000000007.snapshot": b""},
        {f"{LOG}.deleted": b""},
        {f"{LOG}.corrupt-0": b""},
    ],
    ids=["a record", "behind zeros", "a later start", "producers", "deleted", "set aside"],
)
def test_a_directory_with_a_record_is_not_left_over(
    tmp_path: Path, topic_id: uuid.UUID | None, files: dict[str, bytes]
) -> None:
    assert not is_left(make(tmp_path / "topic-3", topic_id, **files))
    path = make(tmp_path / "foreign")
    (tmp_path / "foreign" / "mine").mkdir()
    assert not is_left(path), "nor one with something foreign in it"


def test_files_that_cannot_be_read_condemn_nothing(tmp_path: Path) -> None:
    partitions = {TopicPartition("topic", 3): make(tmp_path / "topic-3")}
    topics, creations = tmp_path / TOPICS_FILE, tmp_path / topics_file.CREATIONS_FILE
    creations.write_bytes(topics_file.encode_creations(1, [MADE]))
    assert topics_file.left_over(FS, str(tmp_path), partitions) == set()
    topics.write_bytes(encode_topics(1, []))
    assert topics_file.left_over(FS, str(tmp_path), partitions) == set(partitions)
    creations.write_bytes(creations.read_bytes()[:-9])
    assert topics_file.left_over(FS, str(tmp_path), partitions) == set()


def test_tools_pass_over_what_is_left_over_and_verify_names_it(tmp_path: Path) -> None:
    logs = write_stopped_logs(tmp_path)
    make(tmp_path / "topic-3", None, **{PARTITION_METADATA_FILE: bytes(30)})
    assert verified(logs.path).damages
    generation = json.loads((tmp_path / TOPICS_FILE).read_bytes())["generation"]
    (tmp_path / topics_file.CREATIONS_FILE).write_bytes(topics_file.encode_creations(generation, [MADE]))
    seen = verified(logs.path)
    assert not seen.damages
    [remark] = [remark for remark in seen.remarks if remark.check == "creation"]
    assert remark.file == str(tmp_path / "topic-3")
    assert read_directory(FS, str(tmp_path)).left_over == ("topic-3",)
    summary = repair_directory(FS, read_directory(FS, str(tmp_path)), Seen(), dry_run=False, acted=lambda action: None)
    assert (summary.damages, summary.actions) == (0, ())
    (tmp_path / topics_file.CREATIONS_FILE).write_bytes(b"{")
    assert str(tmp_path / topics_file.CREATIONS_FILE) in {damage.file for damage in verified(logs.path).damages}


FS: Final = OsFileSystem()


class WithoutLinks(OsFileSystem):
    """A mount that knows no hard links."""

    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EPERM, "not permitted", target)


ENCODED: dict[str, Callable[[int], bytes]] = {
    topics_file.TOPICS_FILE: lambda generation: topics_file.encode_topics(generation, []),
    state_files.SECURITY_FILE: lambda generation: state_files.encode_security(state_files.SecurityState(generation)),
    state_files.GROUPS.name: lambda generation: state_files.GROUPS.encode(state_files.Overrides(generation)),
    state_files.CLIENT_METRICS.name: lambda generation: state_files.CLIENT_METRICS.encode(state_files.Overrides(generation)),
    BROKERS.name: lambda generation: BROKERS.encode(Overrides(generation)),
}


@pytest.mark.parametrize("name", ENCODED)
def test_a_file_is_written_up_to_the_size_that_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = str(tmp_path / name), ENCODED[name](1)
    monkeypatch.setitem(checkpoints.LIMITS, name, len(data))
    write_state(FS, path, data, durable=True)
    read_state(FS, path, STATES[name])
    with pytest.raises(FileTooLargeError, match=f"{name} would have .* bytes, more than the {len(data)}"):
        write_state(FS, path, ENCODED[name](10**9), durable=True)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == data


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("fs", [FS, WithoutLinks()], ids=["links", "no links"])
def test_the_copy_before_the_last_change_stays(name: str, fs: OsFileSystem, tmp_path: Path) -> None:
    for generation in (1, 2, 3):
        write_state(fs, str(tmp_path / name), ENCODED[name](generation), durable=True, private=True)
    assert (tmp_path / name).read_bytes() == ENCODED[name](3)
    previous = tmp_path / f"{name}.previous"
    assert previous.read_bytes() == read_previous(fs, str(tmp_path / name), STATES[name]) == ENCODED[name](2)
    assert previous.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {name, previous.name}


def test_what_does_not_outlive_its_process_keeps_no_copy(tmp_path: Path) -> None:
    for generation in (1, 2):
        write_state(FS, str(tmp_path / "groups.json"), ENCODED["groups.json"](generation), durable=False)
    assert [each.name for each in tmp_path.iterdir()] == ["groups.json"]


def _is_repaired(directory: Path) -> bool:
    found = read_directory(FS, str(directory))
    return not repair_directory(FS, found, Observer(), dry_run=False, acted=lambda action: None).left


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("damage", ["cut", "too large"])
def test_repair_returns_to_the_copy_and_keeps_the_damaged_file(name: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for generation in (1, 2):
        write_state(FS, str(path), ENCODED[name](generation), durable=True)
    with path.open("r+b") as stream:
        stream.truncate(5 if damage == "cut" else checkpoints.limit_of(name) + 1)
    size = path.stat().st_size
    with pytest.raises(CheckpointError, match=rf"`triolog repair {tmp_path}` returns to {name}\.previous"):
        read_state(FS, str(path), STATES[name])
    assert _is_repaired(tmp_path)
    assert path.read_bytes() == ENCODED[name](1)
    assert path.with_name(f"{name}.corrupt-0").stat().st_size == size
    path.with_name(f"{name}.previous").write_bytes(b"{")
    path.write_bytes(b"{")
    assert not _is_repaired(tmp_path)
