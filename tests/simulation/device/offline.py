"""The commands for stopped directories, as an administrator runs them between two lives of the server, on the world's disk.

`backup` asks the real system for inodes and times. So it runs on a real copy of the directory, and its result replaces the
directory on the world's disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from triolog.server.offline.backup import make_backup, plan_backup
from triolog.server.offline.compact_directory import CompactionOptions, compact_directory
from triolog.server.offline.findings import Collector, Finding, Observer
from triolog.server.offline.repair import reindex as reindex_partition
from triolog.server.offline.repair_directory import RepairSummary, repair_directory, topic_config
from triolog.server.offline.small_files_check import SnapshotCheck
from triolog.server.offline.verify import read_directory_files, verify
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.support.crash_fs import CrashFileSystem


def verified(fs: CrashFileSystem, directory: str) -> list[Finding]:
    """Return the damage that `triolog verify` reports."""
    found = Collector(Observer())
    verify(fs, read_directory(fs, directory), found)
    return list(found.damages)


def repair(fs: CrashFileSystem, directory: str, now_ms: Callable[[], int]) -> RepairSummary:
    how: dict[str, Any] = {"dry_run": False, "acted": lambda _: None, "now_ms": now_ms}
    return repair_directory(fs, read_directory(fs, directory), Observer(), **how)


def reindex(fs: CrashFileSystem, directory: str) -> list[str]:
    """Rebuild all indexes; return the failures, one for each segment that was left as it was."""
    found, quiet, failures = read_directory(fs, directory), Observer(), []
    says = read_directory_files(fs, found, quiet)
    for files in found.partitions:
        config = topic_config(says, files.topic_partition.topic)
        first_offset = files.segments[0].base_offset if files.segments else 0
        producers, _ = SnapshotCheck(fs, files.path, files.snapshots, quiet).starting_state(first_offset)
        outcomes = reindex_partition(fs, files, config, producers, lambda _: None)
        failures += [f"{files.topic_partition}: {outcome.failure}" for outcome in outcomes if outcome.failure is not None]
    return failures


def compact(fs: CrashFileSystem, directory: str, topic: str, now_ms: Callable[[], int], *, include_active: bool) -> int:
    """Compact a topic; return the number of its partitions here."""
    found = read_directory(fs, directory)
    partitions = tuple(each for each in found.partitions if each.topic_partition.topic == topic)
    found = attrs.evolve(found, partitions=partitions, is_whole=False)
    says = read_directory_files(fs, found, Observer())
    config = attrs.evolve(topic_config(says, topic), min_compaction_lag_ms=0, cleanup_policy=("compact",))
    how = CompactionOptions(config=config, now_ms=now_ms, include_active=include_active)
    return len(list(compact_directory(fs, found, says.of, how, lambda _: None)))


def restore_backup(fs: CrashFileSystem, directories: Sequence[str]) -> None:
    """Back up each directory and put the copy in its place. Everything is on the device afterwards."""
    for directory in directories:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "source"), Path(folder, "target")
            _write_out(fs, directory, source)
            plan = plan_backup(OsFileSystem(), str(source), _wait)
            make_backup(OsFileSystem(), plan, str(target), _wait)
            _empty(fs, directory)
            _read_in(fs, directory, target)
    fs.sync_all()


def _wait() -> None:
    raise AssertionError("a stopped directory does not change")


def _write_out(fs: CrashFileSystem, directory: str, target: Path) -> None:
    target.mkdir()
    for name in fs.list_directory(directory):
        path = f"{directory}/{name}"
        if fs.is_directory(path):
            _write_out(fs, path, target / name)
        else:
            (target / name).write_bytes(fs.content(path))


def _empty(fs: CrashFileSystem, directory: str) -> None:
    for name in fs.list_directory(directory):
        path = f"{directory}/{name}"
        if fs.is_directory(path):
            _empty(fs, path)
            fs.remove_directory(path)
        else:
            fs.unlink(path)


def _read_in(fs: CrashFileSystem, directory: str, source: Path) -> None:
    fs.make_directory(directory)
    for path in sorted(source.iterdir()):
        name = f"{directory}/{path.name}"
        if path.is_dir():
            _read_in(fs, name, path)
            continue
        fd = fs.open(name, os.O_RDWR | os.O_CREAT)
        try:
            fs.write(fd, [path.read_bytes()], 0)
        finally:
            fs.close(fd)
