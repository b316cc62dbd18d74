"""The power fails while a directory is repaired: repairing it again loses nothing that was whole."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.types import Record, TopicPartition
from triolog.server.storage.filesystem import CREATE
from triolog.server.storage.inventory import read_directory
from triolog.server.storage.repair_directory import RepairSummary, repair_directory
from triolog.server.storage.stored_records import RecordRange, Transactions, stored_batches
from triolog.server.storage.verify import verify

from tests.support.counts import counts
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.stopped_logs import TOPIC, Seen, write_stopped_logs

ROOT: Final = "/data"
PARTITION: Final = TopicPartition(TOPIC, 0)
MOST_CHANGES: Final = 400
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
            Transactions(),
            damaged=lambda path, damage: pytest.fail(f"{path}: {damage}"),
            advance=lambda done: None,
        )

    return [record for batch in batches() for record in batch]


def test_a_power_cut_at_any_change_of_a_repair_loses_nothing(tmp_path: Path) -> None:
    logs = write_stopped_logs(tmp_path / "data")
    files = {str(path.relative_to(logs.path)): path.read_bytes() for path in logs.path.rglob("*") if path.is_file()}
    broken = damaged(files)
    whole = loaded(broken)
    assert repaired(whole).left == ()
    expected = stored(whole)
    assert 0 < len(logs.records[PARTITION]) - len(expected) <= 4
    cuts = 0
    for seed in range(counts(SEEDS)):
        for changes in range(MOST_CHANGES):
            fs = loaded(broken)
            fs.cut_after(changes)
            try:
                repaired(fs)
                break
            except PowerCut:
                cuts += 1
            survivor = fs.crash(random.Random(1000 * seed + changes))
            where = f"seed {seed}, after {changes} changes"
            assert repaired(survivor).left == (), where
            seen = Seen()
            verify(survivor, read_directory(survivor, ROOT), seen)
            assert seen.damages == [], where
            assert stored(survivor) == expected, where
        else:
            pytest.fail(f"a repair makes more than {MOST_CHANGES} changes")
    assert cuts > 10
