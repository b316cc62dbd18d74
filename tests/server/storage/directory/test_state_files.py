"""Files that hold a state as a whole: nothing is written that cannot be read, and the copy before the last change stays."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from triolog.server.offline.findings import Observer
from triolog.server.offline.repair_directory import STATES, repair_directory
from triolog.server.storage.directory import state_files, topics_file
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.directory.state_files import BROKERS, Overrides, read_previous, read_state, write_state
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import CheckpointError, FileTooLargeError

FS = OsFileSystem()


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
def test_a_file_is_written_up_to_the_size_that_is_read_and_not_beyond(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = str(tmp_path / name), ENCODED[name](1)
    monkeypatch.setitem(checkpoints.LIMITS, name, len(data))
    write_state(FS, path, data, durable=True)
    read_state(FS, path, STATES[name])
    with pytest.raises(FileTooLargeError, match=f"{name} would have .* bytes, at most {len(data)} can be read again"):
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
