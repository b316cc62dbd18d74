"""Small files that are JSON: what is written comes back, what is damaged is refused by name, whatever the damage."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.security.quota_entities import checked_entity
from triolog.server.storage.directory.creations_file import Creation, decode_creations, encode_creations
from triolog.server.storage.directory.groups_file import GroupsState, decode_groups, encode_groups, read_groups, write_groups
from triolog.server.storage.directory.security_file import SecurityState, decode_security, encode_security
from triolog.server.storage.directory.topics_file import Topic, decode_topics, encode_topics
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError
from triolog.server.storage.log.derived_files import Facts, IndexFacts, decode_facts, encode_facts

from tests.support.counts import FULL, mode
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
    "groups": JsonFile(encode_groups(GroupsState(3, {"group": {"share.delivery.count.limit": "3"}})), decode_groups),
    "security": JsonFile(
        encode_security(SecurityState(3, quotas={checked_entity([("user", "a")]): {"producer_byte_rate": 1024.0}})),
        decode_security,
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
    for bit in range(8 * len(file.data)):
        is_in_name = 0 <= bit // 8 - checksum < len(b"crc32c")
        if is_in_name or bit % 5 == 0 or mode() == FULL:
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
    state = GroupsState(generation, found)
    assert decode_groups(NAME, encode_groups(state)) == state


def test_no_groups_file_is_no_configuration(tmp_path: Path) -> None:
    fs, state = OsFileSystem(), GroupsState(3, {"group": {"share.delivery.count.limit": "3"}})
    assert read_groups(fs, str(tmp_path)) == GroupsState()
    write_groups(fs, str(tmp_path), state, durable=True)
    assert read_groups(fs, str(tmp_path)) == state
