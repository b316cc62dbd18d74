"""Repairing a log directory: after one flipped bit anywhere it is clean again and has lost one batch at most."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import shutil
import subprocess
import sys
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Record, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.offline.repair import Action, joined
from triolog.server.offline.repair_directory import RepairSummary, repair_directory
from triolog.server.offline.scrub import scrub_file, scrub_for_server
from triolog.server.offline.stored_records import DecidedTransactions, RecordRange, stored_batches
from triolog.server.offline.verify import verify
from triolog.server.storage.child_process import ParentWatch
from triolog.server.storage.directory.inventory import read_directory
from triolog.server.storage.directory.topics_file import CREATIONS_FILE, read_creations
from triolog.server.storage.disk import checkpoints
from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem, replace_file
from triolog.server.storage.log.gaps import read_gaps
from triolog.server.storage.log.log import Log
from triolog.server.storage.recovery.salvage import Damage

from tests.server.offline.test_verify import GOLDEN, damages, finds_every_offset, flip, verified
from tests.support.counts import counts, draws, seeds
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem
from tests.support.inline_log import make_on_device
from tests.support.logs import START_MS, DrivenLog, batch, open_driven
from tests.support.stopped_logs import CONFIGS, TOPIC, Seen, StoppedLogs, write_stopped_logs

FLIPS: Final = 600
MOST_RECORDS_IN_A_BATCH: Final = 4


def repaired(path: Path, *, dry_run: bool = False, fs: FileSystem | None = None) -> RepairSummary:
    fs = fs or OsFileSystem()
    told: list[Action] = []
    summary = repair_directory(fs, read_directory(fs, str(path)), Seen(), dry_run=dry_run, acted=told.append)
    assert tuple(told) == summary.actions
    return summary


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def stored(fs: FileSystem, path: Path, partition: TopicPartition) -> list[Record]:
    (files,) = (each for each in read_directory(fs, str(path)).partitions if each.topic_partition == partition)
    batches = stored_batches(
        fs,
        files,
        RecordRange(),
        DecidedTransactions(),
        damaged=lambda file, damage: pytest.fail(f"{file}: {damage}"),
        advance=lambda done: None,
    )
    return [record for batch in batches for record in batch]


@pytest.mark.merge
def test_a_flipped_bit_anywhere_is_repaired_at_the_price_of_one_batch_at_most(fast_path: Path) -> None:
    rng, logs = draws(3), write_stopped_logs(fast_path / "data")
    partition = TopicPartition(TOPIC, 0)
    before = logs.records[partition]
    names = [path.name for path in sorted(logs.partition().iterdir()) if path.stat().st_size]
    for number in range(counts(FLIPS)):
        path = Path(shutil.copytree(logs.path, fast_path / "damaged"))
        file = path / str(partition) / rng.choice(names)
        position, bit = rng.randrange(file.stat().st_size), rng.randrange(8)
        flip(file, position, bit)
        where = f"{number}: {file.name}: bit {bit} of byte {position}"
        is_harmless = file.suffix == ".index" and finds_every_offset(file)
        summary = repaired(path)
        assert summary.damages or is_harmless, where
        assert summary.left == (), where
        assert damages(path) == [], where
        after = stored(OsFileSystem(), path, partition)
        assert set(map(repr, after)) <= set(map(repr, before)), where
        assert len(before) - len(after) <= (MOST_RECORDS_IN_A_BATCH if file.suffix == ".log" else 0), where
        again = repaired(path)
        assert (again.damages, again.actions) == (0, ()), where
        shutil.rmtree(path)


@pytest.mark.parametrize("name", ["txn-0", "idem-0", "codec-lz4-0"])
def test_a_flipped_bit_in_a_partition_of_kafkas_is_repaired(fast_path: Path, name: str) -> None:
    rng = draws(4)
    for _ in range(counts(FLIPS // 4)):
        directory = Path(shutil.copytree(GOLDEN / "clean", fast_path / "data", copy_function=shutil.copyfile)) / name
        directory.chmod(0o755)
        files = [path for path in sorted(directory.iterdir()) if path.stat().st_size and path.name != "partition.metadata"]
        file = rng.choice(files)
        position, bit = rng.randrange(file.stat().st_size), rng.randrange(8)
        flip(file, position, bit)
        where = f"{file.name}: bit {bit} of byte {position}"
        assert repaired(directory).left == (), where
        assert damages(directory) == [], where
        for folder in (fast_path / "data").iterdir():
            if folder.is_dir():
                folder.chmod(0o755)
        shutil.rmtree(fast_path / "data")


def test_a_dry_run_tells_the_same_and_changes_nothing(logs: StoppedLogs) -> None:
    for number, path in enumerate(sorted(logs.partition().glob("0*"))):
        if path.stat().st_size > 40 and number % 3 == 0:
            flip(path, 33, 2)
    (logs.path / checkpoints.HIGH_WATERMARK_FILE).write_bytes(checkpoints.encode_offsets({TopicPartition(TOPIC, 0): 10**6}))
    before = contents(logs.path)
    planned = repaired(logs.path, dry_run=True)
    assert contents(logs.path) == before
    done = repaired(logs.path)
    assert [(action.kind, action.file) for action in planned.actions] == [(each.kind, each.file) for each in done.actions]
    assert done.left == ()
    assert damages(logs.path) == []


def test_no_byte_of_a_damaged_log_is_lost_and_once_repaired_it_opens_and_goes_on(logs: StoppedLogs) -> None:
    log = sorted(logs.partition().glob("*.log"))[1]
    flip(log, 70, 3)
    before = log.read_bytes()
    (quarantined,) = [action for action in repaired(logs.path).actions if action.kind == "quarantine"]
    (side,) = logs.partition().glob("*.corrupt-*")
    assert side.read_bytes() + log.read_bytes() == before
    (gap,) = read_gaps(OsFileSystem(), str(logs.partition()))
    assert (gap.start_offset, gap.end_offset, gap.file) == (quarantined.first_offset, quarantined.next_offset, side.name)
    driven = open_driven(logs.partition(), topic_partition=TopicPartition(TOPIC, 0), config=LogConfig().overlay(CONFIGS))
    assert driven.log.gaps == (gap,)
    driven.close()
    assert verified(logs.partition()).damages == []


def test_what_the_log_tells_comes_back_as_it_was(logs: StoppedLogs) -> None:
    """Indexes and leader epochs; an index that is replaced is kept."""
    before, directory = contents(logs.path), logs.partition()
    for suffix in ("index", "timeindex", "txnindex"):
        for path in directory.glob(f"*.{suffix}"):
            path.unlink()
    assert {action.kind for action in repaired(logs.path).actions} == {"rebuild"}
    assert contents(logs.path) == before
    epochs = directory / "leader-epoch-checkpoint"
    for damage in (lambda: epochs.write_bytes(b"0\n1\n9 4\n"), epochs.unlink):
        damage()
        repaired(logs.path)
        assert epochs.read_bytes() == before[str(epochs.relative_to(logs.path))]
    index = sorted(directory.glob("*.index"))[0]
    flip(index, 3, 5)
    bad = index.read_bytes()
    repaired(logs.path)
    assert index.read_bytes() == before[str(index.relative_to(logs.path))]
    assert index.with_name(f"{index.name}.corrupt-0").read_bytes() == bad


@pytest.mark.parametrize("slot", [0, -1])
def test_one_batch_with_another_epoch_is_restored(logs: StoppedLogs, slot: int) -> None:
    """Behind the last batch nothing contradicts a higher epoch but the checkpoint."""
    before = contents(logs.path)
    log = sorted(logs.partition().glob("*.log"))[-1]
    *positions, _ = accumulate((header.size_bytes for header, _ in iter_batches(log.read_bytes())), initial=0)
    flip(log, positions[slot] + 15, 1)
    (restored,) = [action for action in repaired(logs.path).actions if action.kind == "restore"]
    assert "epoch 2 for 0" in restored.text
    assert contents(logs.path) == before


def test_a_missing_segment_becomes_a_documented_gap_and_strangers_are_renamed(logs: StoppedLogs) -> None:
    (logs.partition() / "7.log").write_text("hello")
    (logs.partition() / "00000000000000099999.index").write_bytes(bytes(8))
    bases = sorted(int(path.stem) for path in logs.partition().glob("0*.log"))
    for path in logs.partition().glob(f"{bases[1]:020d}.*"):
        path.unlink()
    assert "document" in {action.kind for action in repaired(logs.path).actions}
    assert (logs.partition() / "7.log.corrupt-0").read_text() == "hello"
    assert damages(logs.path) == []
    (gap,) = read_gaps(OsFileSystem(), str(logs.partition()))
    assert (gap.start_offset, gap.end_offset) == (bases[1], bases[2])


def test_a_damaged_topic_id_comes_back_and_another_topics_stays(logs: StoppedLogs) -> None:
    path = logs.partition() / "partition.metadata"
    good = path.read_bytes()
    flip(path, 30, 1)
    repaired(logs.path)
    assert path.read_bytes() == good
    foreign = checkpoints.encode_partition_metadata(checkpoints.random_uuid())
    path.write_bytes(foreign)
    summary = repaired(logs.path)
    assert [finding.check for finding in summary.left] == ["topic id"]
    assert path.read_bytes() == foreign


@pytest.mark.parametrize("name", [checkpoints.CLEANER_OFFSET_FILE, CREATIONS_FILE])
def test_a_list_that_a_start_ignores_when_it_cannot_be_read_is_emptied(logs: StoppedLogs, name: str) -> None:
    path = logs.path / name
    path.write_bytes(b"{")
    assert {action.file for action in repaired(logs.path).actions} == {str(path)}
    assert repaired(logs.path) == RepairSummary(damages=0, actions=(), left=())
    assert checkpoints.read_cleaner_offsets(OsFileSystem(), str(logs.path)) == {}
    assert read_creations(OsFileSystem(), str(logs.path), 0) == []
    assert [kept.read_bytes() for kept in logs.path.glob(f"{name}.corrupt-0*")] == [b"{"]


@pytest.mark.parametrize("name", [checkpoints.RECOVERY_POINT_FILE, checkpoints.HIGH_WATERMARK_FILE, checkpoints.LOG_START_FILE])
def test_an_unreadable_checkpoint_is_made_anew_and_offsets_after_the_log_are_its_end(logs: StoppedLogs, name: str) -> None:
    """A clean directory is left alone."""
    before, path = contents(logs.path), logs.path / name
    assert repaired(logs.path) == RepairSummary(damages=0, actions=(), left=())
    assert contents(logs.path) == before
    if name != checkpoints.LOG_START_FILE:
        path.write_bytes(checkpoints.encode_offsets(dict.fromkeys(checkpoints.decode_offsets(name, before[name]), 10**6)))
        repaired(logs.path)
        assert checkpoints.decode_offsets(name, path.read_bytes()) == checkpoints.decode_offsets(name, before[name])
    path.write_bytes(b"\xff\xff")
    assert repaired(logs.path).left == ()
    assert path.read_bytes() == before[name]
    assert b"\xff\xff" in {kept.read_bytes() for kept in logs.path.glob(f"{name}.corrupt-0*")}


@pytest.mark.parametrize("name", ["topics.json", "meta.properties"])
def test_what_cannot_be_told_is_left(logs: StoppedLogs, name: str) -> None:
    (logs.path / name).write_bytes(b"version=9\n")
    before = contents(logs.path)
    summary = repaired(logs.path)
    assert [Path(finding.file).name for finding in summary.left] == [name]
    assert contents(logs.path) == before


def test_a_swap_that_was_cut_off_is_completed_and_is_no_gap(logs: StoppedLogs) -> None:
    before = contents(logs.path)
    base = sorted(int(path.stem) for path in logs.partition().glob("*.log"))[1]
    for path in logs.partition().glob(f"{base:020d}.*"):
        if path.suffix not in (".snapshot", ".batches"):
            path.rename(f"{path}.swap")
    assert damages(logs.path) == []
    assert [action.kind for action in repaired(logs.path, dry_run=True).actions] == ["complete"]
    assert [action.kind for action in repaired(logs.path).actions] == ["complete"]
    assert contents(logs.path) == before


def test_damages_that_touch_are_one() -> None:
    stamped = Damage(30, 5, "stamp", 7, 8, b"stamp")
    parts = [Damage(0, 10, "first", 0, 2), Damage(10, 20, "second", 2, 7), stamped, Damage(35, 5, "third", 8, 9)]
    assert joined(parts) == [Damage(0, 30, "first", 0, 7), stamped, Damage(35, 5, "third", 8, 9)]


DISK: Final = Path("/data")


def damaged(files: dict[str, bytes]) -> dict[str, bytes]:
    """A batch, an index, a snapshot and the leader epochs are wrong, and a segment's time index is gone."""
    names = sorted(files)
    logs = [name for name in names if name.endswith(".log")]
    changed = dict(files)
    for name, position in (
        (logs[1], 75),
        (logs[3].replace(".log", ".index"), 3),
        (next(name for name in names if name.endswith(".snapshot")), 15),
        (f"{TOPIC}-0/leader-epoch-checkpoint", 0),
    ):
        data = bytearray(changed[name])
        data[position] ^= 2
        changed[name] = bytes(data)
    del changed[logs[2].replace(".log", ".timeindex")]
    return changed


def loaded(files: dict[str, bytes]) -> CrashFileSystem:
    """All of it on the device."""
    fs = CrashFileSystem()
    make_on_device(fs, f"{DISK}/{TOPIC}-0")
    for name, data in files.items():
        replace_file(fs, f"{DISK}/{name}", data)
    return fs


@pytest.mark.merge
def test_a_power_cut_at_any_change_of_a_repair_loses_nothing(tmp_path: Path) -> None:
    """A disk that several cuts leave is looked at once: a repair does the same with the same files."""
    logs, partition = write_stopped_logs(tmp_path / "data"), TopicPartition(TOPIC, 0)
    broken = damaged(contents(logs.path))
    whole = loaded(broken)
    assert repaired(DISK, fs=whole).left == ()
    expected = stored(whole, DISK, partition)
    assert 0 < len(logs.records[partition]) - len(expected) <= MOST_RECORDS_IN_A_BATCH
    fs = loaded(broken)
    moments = fs.moments()
    repaired(DISK, fs=fs)
    assert len(moments) > 10
    done = set()
    for seed in seeds(10):
        for changes, moment in enumerate(moments):
            survivor = moment.crash(random.Random(1000 * seed + changes))
            disk = tuple(survivor.tree().items())
            if disk in done:
                continue
            done.add(disk)
            where, seen = f"seed {seed}, after {changes} changes", Seen()
            assert repaired(DISK, fs=survivor).left == (), where
            verify(survivor, read_directory(survivor, str(DISK)), seen)
            assert seen.damages == [], where
            assert stored(survivor, DISK, partition) == expected, where


FS = OsFileSystem()


@pytest.fixture
def driven(tmp_path: Path) -> DrivenLog:
    opened = open_driven(tmp_path, config=LogConfig(segment_bytes=2000))
    for number in range(60):
        opened.append(batch(value=b"%060d" % number))
    return opened


def orders(log: Log) -> list[dict[str, Any]]:
    return [
        {"path": each.log.path, "size": each.size, "base_offset": each.base_offset, "end_offset": following.base_offset}
        for each, following in pairwise(log.segments)
    ]


def answers(lines: list[dict[str, Any]], fs: OsFileSystem = FS) -> list[dict[str, Any]]:
    source = io.StringIO("".join(json.dumps(line) + "\n" for line in [{"max_bytes_per_second": 0}, *lines]))
    output = io.StringIO()
    scrub_for_server(fs, source, output, ParentWatch(os.getppid()))
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_damaged_batch_is_told_with_its_place_and_offsets(driven: DrivenLog) -> None:
    first, second, *rest = orders(driven.log)
    flip(Path(second["path"]), 200, 2)
    good, damaged, *others = answers([first, second, *rest])
    assert good == {"damages": []}
    assert others == [{"damages": []}] * len(rest)
    ((position, size, first_offset, next_offset, reason),) = damaged["damages"]
    assert position <= 200 < position + size
    assert second["base_offset"] < first_offset == next_offset - 1
    assert "CRC" in reason


def test_a_scrub_counts_the_bytes_of_a_file_and_says_what_it_cannot_read(driven: DrivenLog) -> None:
    (order, *_) = orders(driven.log)
    spent: list[int] = []
    scrub_file(FS, order["path"], order["size"], order["base_offset"], order["end_offset"], spend=spent.append)
    assert sum(spent) == order["size"]
    fs = GateFileSystem()
    fs.fail("read", number=errno.EIO, times=None)
    (order, *_) = orders(driven.log)
    assert answers([order], fs) == [{"error": f"{order['path']}: Input/output error"}]
    first, second, *_ = orders(driven.log)
    Path(first["path"]).unlink()
    assert answers([first, second | {"size": second["size"] - 1}]) == [{"gone": first["path"]}, {"gone": second["path"]}]


MEASURED: Final = """
import sys
from triolog.tools.cli.main import main
main(sys.argv[1:], standalone_mode=False)
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(int(peak) // 1024, file=sys.stderr)
"""
"""`ru_maxrss` would count what the process was forked from."""
MOST_MIB: Final = 64


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 640 MiB in one segment (128 in the merge tier): more than the tools may use."""
    path = tmp_path_factory.mktemp("large") / "large-0"
    driven = open_driven(path, topic_partition=TopicPartition("large", 0))
    records = build_batch([(START_MS + number, None, os.urandom(1024), ()) for number in range(64)])
    for _ in range(counts(10)):
        driven.append_group([driven.prepare(records) for _ in range(1000)])
    driven.close()
    return path


@pytest.mark.merge  # each command reads a large log in a process
@pytest.mark.parametrize("command", [("verify",), ("reindex",), ("export",), ("repair", "--dry-run")])
def test_memory_stays_below_64_mib(directory: Path, command: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, *command, str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stderr.split()[-1]) <= MOST_MIB
