"""The power fails while a directory is repaired: repairing it again loses nothing that was whole."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.types import Record, TopicPartition
from triolog.server.storage.check.stored_records import DecidedTransactions, RecordRange, stored_batches
from triolog.server.storage.check.verify import verify
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.disk.filesystem import CREATE
from triolog.server.storage.offline.repair_directory import RepairSummary, repair_directory

from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem
from tests.support.stopped_logs import TOPIC, Seen, write_stopped_logs

ROOT: Final = "/data"
PARTITION: Final = TopicPartition(TOPIC, 0)
SEEDS: Final = 10


def damaged(files: dict[str, bytes]) -> dict[str, bytes]:
    """A batch, an index, a snapshot and the leader epochs are wrong, and a segment's time index is gone."""
    names = sorted(files)
    logs = [name for name in names if name.endswith(".log")]
    changed = dict(files)
    for name, position in (
        (logs[1], 75),
        (logs[3].replace(".log", ".index"), 3),
        (next(name for name in names if name.endswith(".snapshot")), 15),
        (f"{PARTITION}/leader-epoch-checkpoint", 0),
    ):
        data = bytearray(changed[name])
        data[position] ^= 2
        changed[name] = bytes(data)
    del changed[logs[2].replace(".log", ".timeindex")]
    return changed


def loaded(files: dict[str, bytes]) -> CrashFileSystem:
    """All of it on the device."""
    fs = CrashFileSystem()
    for name, data in files.items():
        path = f"{ROOT}/{name}"
        fs.make_directory(os.path.dirname(path))
        fd = fs.open(path, CREATE)
        fs.write(fd, [data], 0)
        fs.sync(fd)
        fs.close(fd)
    for folder in ("/", ROOT, f"{ROOT}/{PARTITION}"):
        fs.sync_directory(folder)
    return fs


def repaired(fs: CrashFileSystem) -> RepairSummary:
    return repair_directory(fs, read_directory(fs, ROOT), Seen(), dry_run=False, acted=lambda action: None)


def stored(fs: CrashFileSystem) -> list[Record]:
    (files,) = read_directory(fs, ROOT).partitions

    def batches() -> Iterator[list[Record]]:
        yield from stored_batches(
            fs,
            files,
            RecordRange(),
            DecidedTransactions(),
            damaged=lambda path, damage: pytest.fail(f"{path}: {damage}"),
            advance=lambda done: None,
        )

    return [record for batch in batches() for record in batch]


def test_a_power_cut_at_any_change_of_a_repair_loses_nothing(tmp_path: Path) -> None:
    """A disk that several cuts leave is looked at once: a repair does the same with the same files."""
    logs = write_stopped_logs(tmp_path / "data")
    files = {str(path.relative_to(logs.path)): path.read_bytes() for path in logs.path.rglob("*") if path.is_file()}
    broken = damaged(files)
    whole = loaded(broken)
    assert repaired(whole).left == ()
    expected = stored(whole)
    assert 0 < len(logs.records[PARTITION]) - len(expected) <= 4
    fs = loaded(broken)
    moments = fs.moments()
    repaired(fs)
    assert len(moments) > 10
    seen = set()
    for seed in range(counts(SEEDS)):
        for changes, moment in enumerate(moments):
            survivor = moment.crash(random.Random(1000 * seed + changes))
            disk = tuple(survivor.tree().items())
            if disk not in seen:
                seen.add(disk)
                check_repaired(survivor, expected, f"seed {seed}, after {changes} changes")


def check_repaired(fs: CrashFileSystem, expected: list[Record], where: str) -> None:
    """Repairing leaves nothing to do and the records that are expected."""
    assert repaired(fs).left == (), where
    seen = Seen()
    verify(fs, read_directory(fs, ROOT), seen)
    assert seen.damages == [], where
    assert stored(fs) == expected, where
