"""`groups.json`: what is written comes back, and what is damaged is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.storage.directory.groups_file import (
    GROUPS_FILE,
    GroupsState,
    decode_groups,
    encode_groups,
    read_groups,
    write_groups,
)
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
overrides = st.dictionaries(texts, st.dictionaries(texts, texts, min_size=1, max_size=3), max_size=4)
STATE = GroupsState(3, {"group": {"share.delivery.count.limit": "3"}})


@given(st.integers(0, 2**62), overrides)
def test_what_is_written_comes_back(generation: int, found: dict[str, dict[str, str]]) -> None:
    state = GroupsState(generation, found)
    assert decode_groups(GROUPS_FILE, encode_groups(state)) == state


def test_no_file_is_no_configuration(tmp_path: Path) -> None:
    fs = OsFileSystem()
    assert read_groups(fs, str(tmp_path)) == GroupsState()
    write_groups(fs, str(tmp_path), STATE, durable=True)
    assert read_groups(fs, str(tmp_path)) == STATE


@given(st.integers(0, len(encode_groups(STATE)) - 1), st.integers(1, 255))
def test_a_damaged_byte_is_found_unless_it_changes_nothing(place: int, change: int) -> None:
    written = bytearray(encode_groups(STATE))
    written[place] ^= change
    try:
        found = decode_groups(GROUPS_FILE, bytes(written))
    except CheckpointError:
        return
    assert found == STATE


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"format_version": 1, "crc32c": ' + b"[" * 100_000])
def test_what_nests_too_deeply_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=f"{GROUPS_FILE} cannot be read .*; copy the one of another"):
        decode_groups(GROUPS_FILE, data)


def test_a_file_of_a_newer_program_is_refused() -> None:
    with pytest.raises(CheckpointError, match="newer"):
        decode_groups(GROUPS_FILE, b'{"format_version": 2}')
