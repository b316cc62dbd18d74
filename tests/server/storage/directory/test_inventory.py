"""Names in a stopped directory, sorted without opening anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.storage.directory.inventory import read_directory, read_partition
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import LogDirectoryError

BASE = "00000000000000000042"


def made(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(name.encode())
    return directory


def test_every_name_of_a_partition_has_its_kind(tmp_path: Path) -> None:
    kinds = {
        "small": ("leader-epoch-checkpoint", "partition.metadata", "quarantine-checkpoint"),
        "set_aside": (
            f"{BASE}.index.corrupt-0",
            f"{BASE}.log.corrupt-70",
            f"{BASE}.log.corrupt-70.2",
            "partition.metadata.corrupt-0",
            "quarantine-checkpoint.corrupt",
        ),
        "leftovers": (f"{BASE}.index.tmp", f"{BASE}.log.cleaned", f"{BASE}.log.deleted", f"{BASE}.log.swap"),
        "orphans": ("00000000000000000099.index", "00000000000000000099.timeindex"),
        "foreign": ("7.log", "notes.txt"),
    }
    own = (f"{BASE}.log", f"{BASE}.index", f"{BASE}.txnindex", f"{BASE}.snapshot", "00000000000000000050.snapshot")
    path = made(tmp_path / "t-0", *own, *(name for names in kinds.values() for name in names))
    files = read_partition(OsFileSystem(), str(path))
    for kind, names in kinds.items():
        assert set(getattr(files, kind)) == set(names), kind
    (segment,) = files.segments
    assert (segment.base_offset, set(segment.sizes)) == (42, {".log", ".index", ".txnindex"})
    assert segment.log_bytes == files.log_bytes == len(f"{BASE}.log")
    assert files.snapshots == (42, 50)
    assert files.topic_partition == TopicPartition("t", 0)


def test_a_log_directory_has_partitions_marked_and_foreign_directories(tmp_path: Path) -> None:
    for name in ("b-1", "b-0", "a-10", f"c-0.{'0' * 32}-delete", "pictures", "lost+found", "__cluster_metadata-0"):
        made(tmp_path / name, f"{BASE}.log")
    made(tmp_path, "meta.properties")
    found = read_directory(OsFileSystem(), f"{tmp_path}/")
    assert [str(files.topic_partition) for files in found.partitions] == ["a-10", "b-0", "b-1"]
    assert found.marked == (f"c-0.{'0' * 32}-delete",)
    assert found.foreign == ("pictures",)
    assert found.is_whole


def test_topics_and_the_directory_of_a_partition_choose_partitions(tmp_path: Path) -> None:
    for name in ("b-1", "b-0", "a-0", "backup"):
        made(tmp_path / name, f"{BASE}.log")
    fs = OsFileSystem()
    found = read_directory(fs, str(tmp_path), topics=frozenset({"b"}))
    assert [str(files.topic_partition) for files in found.partitions] == ["b-0", "b-1"]
    assert not found.is_whole
    with pytest.raises(LogDirectoryError, match="has no partition of topic 'x'"):
        read_directory(fs, str(tmp_path), topics=frozenset({"x"}))
    found = read_directory(fs, str(tmp_path / "b-0"))
    assert (found.path, [files.path for files in found.partitions]) == (str(tmp_path), [str(tmp_path / "b-0")])
    assert not found.is_whole
    with pytest.raises(LogDirectoryError, match="not of the form topic-partition"):
        read_directory(fs, str(tmp_path / "backup"))
