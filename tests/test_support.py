"""Tests of what tests stand on: the crashing file system, the history of a server that is killed, the program whose forks stand
for the command, the leak check."""

from __future__ import annotations

import errno
import itertools
import os
import random
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.protocol.types import Record, TopicPartition
from triolog.server.storage.disk.filesystem import CREATE, READ, replace_file

from tests.support import leaks
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.descriptor_limits import TELLS_IMPORTS, imports_of
from tests.support.forked_servers import PROGRAM, ServerForker
from tests.support.kill_history import KillHistory, Numbered, StoredLog
from tests.support.server_process import DEADLINE_S, ServerFolder, environment, python_command

SEEDS: Final = range(300)
Step = tuple[int, bytes] | int | str
"""A write, a cut to a size, or what its name says."""


def _file(fs: CrashFileSystem, path: str, data: bytes, *, synced: bool = True) -> int:
    fd = fs.open(path, CREATE)
    fs.write(fd, [data], 0)
    if synced:
        fs.sync(fd)
        fs.sync_directory("/")
    return fd


def _fails_to_sync(fs: CrashFileSystem, fd: int) -> None:
    fs.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(fd)


def _left(fs: CrashFileSystem, seed: int, path: str = "/f") -> bytes | None:
    after = fs.crash(random.Random(seed))
    return after.content(path) if after.file_size(path) is not None else None


def _play(*steps: Step) -> CrashFileSystem:
    """Steps on one file, in pages of eight bytes."""
    fs = CrashFileSystem(page_bytes=8)
    fd = fs.open("/f", CREATE)
    for step in steps:
        match step:
            case (position, data):
                fs.write(fd, [data], position)
            case int(size):
                fs.truncate(fd, size)
            case "sync":
                fs.sync(fd)
            case "sync names":
                fs.sync_directory("/")
            case "fail to sync":
                _fails_to_sync(fs, fd)
            case "forget":
                fs.forget(fd, 0, 8)
            case "unlink":
                fs.unlink("/f")
            case "replace unsynced":
                replace_file(fs, "/f", b"12345678", durable=False)
    return fs


OLD: Final[list[Step]] = [(0, b"old"), "sync", "sync names"]
EMPTY: Final[list[Step]] = ["sync", "sync names"]


@pytest.mark.parametrize(
    ("steps", "always", "only"),
    [
        ([(0, b"synced"), "sync", "sync names"], {b"synced"}, True),
        ([(0, b"synced"), "sync"], {b"synced", None}, True),
        ([*OLD, (3, b"n"), (4, b"ew")], {b"old", b"oldn", b"oldne", b"oldnew", b"old\0\0\0"}, False),
        # later pages where earlier ones are not
        ([*EMPTY, (0, b"a" * 8), (8, b"b" * 8), (16, b"c" * 8)], {bytes(16) + b"c" * 8}, False),
        # torn between sectors
        ([(0, b"o" * 8), "sync", "sync names", (0, b"n" * 8)], {b"nnnooooo", b"o" * 8, b"n" * 8}, False),
        ([(0, b"12345678"), "sync", "sync names", 4], {b"1234", b"12345678"}, False),
        ([*OLD, "unlink"], {b"old", None}, True),
        (["replace unsynced"], {None, b"", bytes(8), b"12345678"}, False),
        # a failed sync is not healed by the next one, nor by a write elsewhere
        ([*OLD, (3, b"new"), "fail to sync", "sync"], {b"old", b"oldnew"}, False),
        ([*EMPTY, (0, b"a" * 8), "fail to sync", (8, b"b" * 8), "sync"], {bytes(8) + b"b" * 8, b"a" * 8 + b"b" * 8}, True),
        # written again it may be in an extent of ext4 that is still marked unwritten, unless it was forgotten before
        ([*EMPTY, (0, b"abcdefgh"), "fail to sync", (0, b"abcdefgh"), "sync"], {bytes(8), b"abcdefgh"}, True),
        ([*EMPTY, (0, b"abcdefgh"), "fail to sync", "forget", (0, b"abcdefgh"), "sync"], {b"abcdefgh"}, True),
        # what was cut off is a new page, and the cut is on the device with the next sync
        ([*EMPTY, (0, b"lost"), "fail to sync", 0, (0, b"new"), "sync"], {b"new"}, True),
        ([*OLD, (3, b"new"), "fail to sync", 3, "sync"], {b"old"}, True),
    ],
)
def test_a_power_cut_leaves_what_a_disk_could_have(steps: list[Step], always: set[bytes | None], only: bool) -> None:
    found = {_left(_play(*steps), seed) for seed in SEEDS}
    assert found == always if only else found >= always
    if steps[:3] == OLD and "unlink" not in steps:
        assert all(content is not None and content.startswith(b"old") for content in found)


def test_an_unsynced_rename_happens_or_does_not_and_loses_nothing() -> None:
    outcomes = set()
    for seed in SEEDS:
        fs = CrashFileSystem()
        _file(fs, "/a", b"a")
        _file(fs, "/b", b"b")
        fs.rename("/a", "/b")
        after = fs.crash(random.Random(seed))
        outcomes.add(tuple((name, after.content(f"/{name}")) for name in after.list_directory("/")))
    assert outcomes == {(("a", b"a"), ("b", b"b")), (("b", b"a"),)}


def test_an_unsynced_directory_takes_its_files_with_it() -> None:
    found = set()
    for seed in SEEDS:
        fs = CrashFileSystem()
        fs.make_directory("/d/e")
        fd = fs.open("/d/e/f", CREATE)
        fs.write(fd, [b"x"], 0)
        fs.sync(fd)
        for path in ("/d/e", "/d"):
            fs.sync_directory(path)
        found.add(_left(fs, seed, "/d/e/f"))
    assert found == {b"x", None}


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=40), st.integers())
def test_a_replaced_file_is_the_old_or_the_new_one_after_a_cut_at_any_operation(old: bytes, new: bytes, seed: int) -> None:
    for changes in range(8):
        fs = CrashFileSystem(page_bytes=8)
        replace_file(fs, "/f", old)
        fs.cut_after(changes)
        done = True
        try:
            replace_file(fs, "/f", new)
        except PowerCut:
            done = False
        assert _left(fs, seed) in ((new,) if done else (old, new))


def _changed(fs: CrashFileSystem) -> None:
    """Every kind of change, synced here and there."""
    fs.make_directory("/d")
    fd = _file(fs, "/d/a", b"12345678" * 4)
    fs.sync_directory("/d")
    fs.link("/d/a", "/d/b")
    fs.write(fd, [b"x" * 12], 20)
    fs.rename("/d/b", "/d/c")
    fs.truncate(fd, 25)
    fs.allocate(fd, 100)
    replace_file(fs, "/d/e", b"new")
    fs.unlink("/d/a")
    fs.sync(fd)
    fs.close(fd)


def test_a_moment_of_a_recording_crashes_as_the_cut_there_does() -> None:
    recorded = CrashFileSystem(page_bytes=8)
    moments = recorded.moments()
    _changed(recorded)
    left = set()
    for changes, moment in enumerate(moments):
        fs = CrashFileSystem(page_bytes=8)
        fs.cut_after(changes)
        with pytest.raises(PowerCut):
            _changed(fs)
        for seed in range(20):
            after = fs.crash(random.Random(seed)).tree()
            assert moment.crash(random.Random(seed)).tree() == after
            left.add(tuple(after.items()))
    assert len(left) > 50


def test_a_file_that_was_made_long_takes_no_memory_and_reads_as_zeros() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"")
    fs.allocate(fd, 2**50)
    fs.write(fd, [b"x"], 3)
    assert fs.read(fd, 3, 2) == b"\0x\0"
    assert fs.read(fd, 8, 2**50 - 2) == b"\0\0"
    fs.sync(fd)
    fs.truncate(fd, 2)
    fs.truncate(fd, 5)
    assert fs.content("/f") == bytes(5)
    assert {fs.crash(random.Random(seed)).file_size("/f") for seed in SEEDS} == {2, 5, 2**50}


def test_what_a_crash_left_is_durable() -> None:
    for seed in range(20):
        fs = CrashFileSystem()
        _file(fs, "/f", b"unsynced", synced=False)
        after = fs.crash(random.Random(seed))
        left = after.tree()
        assert after.crash(random.Random(seed + 1)).tree() == left


def test_every_open_descriptor_is_told_of_a_failure_once() -> None:
    fs = CrashFileSystem()
    failing, other = _file(fs, "/f", b"old"), fs.open("/f", READ)
    fs.write(failing, [b"new"], 0)
    _fails_to_sync(fs, failing)
    later = fs.open("/f", READ)
    fs.sync(failing)
    fs.sync(later)
    with pytest.raises(OSError, match="Input/output"):
        fs.sync(other)
    fs.sync(other)


def test_a_descriptor_that_is_opened_later_is_told_only_what_nobody_was_told() -> None:
    fs = CrashFileSystem()
    fs.close(_file(fs, "/f", b"old", synced=False))
    fs.fail_write_back("/f", errno.ENOSPC)
    fd = fs.open("/f", READ)
    with pytest.raises(OSError, match="No space left"):
        fs.sync(fd)
    fs.sync(fs.open("/f", READ))


def test_a_process_that_ends_leaves_what_it_wrote_and_what_was_lost() -> None:
    fs = CrashFileSystem()
    fd = _file(fs, "/f", b"old")
    fs.write(fd, [b"new"], 0)
    _fails_to_sync(fs, fd)
    fs.fail_next("open", errno.EIO)
    fs.end_process()
    assert fs.open_descriptors == 0
    fs.sync(fs.open("/f", READ))
    assert fs.content("/f") == b"new"
    assert fs.durable_content("/f") == b"old"


def test_dropped_caches_show_what_the_device_has() -> None:
    found = set()
    for seed in range(20):
        fs = CrashFileSystem(page_bytes=8)
        fd = _file(fs, "/f", b"old")
        view = fs.map(fd, 3)
        fs.write(fd, [b"new"], 0)
        _fails_to_sync(fs, fd)
        fs.write(fd, [b"dirty"], 8)
        fs.drop_caches(random.Random(seed))
        content = fs.content("/f")
        assert content[3:] == bytes(5) + b"dirty"
        assert bytes(view) == content[:3]
        fs.sync(fd)
        assert fs.durable_content("/f") == content
        found.add(content[:3])
    assert found == {b"old", b"new"}


@example([(0, b"0", "f"), (0, b"0", "g"), (8, b"0", "f"), (0, b"01", "w"), (0, b"0", "s")])
@given(st.lists(st.tuples(st.integers(0, 30), st.binary(min_size=1, max_size=20), st.sampled_from("wsfg")), max_size=12))
def test_synced_data_that_never_failed_since_it_was_forgotten_is_durable(
    steps: list[tuple[int, bytes, str]],
) -> None:
    fs = CrashFileSystem(page_bytes=8)
    fd = _file(fs, "/f", b"")
    sound: dict[int, bytes] = {}
    written: set[int] = set()
    failed: set[int] = set()
    for position, data, then in steps:
        fs.write(fd, [data], position)
        pages = set(range(position // 8, -(-(position + len(data)) // 8)))
        written |= pages
        if then == "f":
            _fails_to_sync(fs, fd)
            failed |= written
            written.clear()
        elif then == "s":
            fs.sync(fd)
            content = fs.content("/f")
            sound |= {page: content[page * 8 : page * 8 + 8] for page in written - failed}
            written.clear()
        elif then == "g":
            fs.forget(fd, 0)
            failed.clear()  # a page written since stays dirty, and may fail again
        for page in written | failed:
            sound.pop(page, None)
    after = fs.crash(random.Random(len(steps))).content("/f")
    for page, expected in sound.items():
        assert after[page * 8 : page * 8 + len(expected)] == expected


WHERE = TopicPartition("t", 0)
SENT = [Numbered("producer", number, 1000 + number, None, b"value") for number in range(3)]


def stored(*records: Numbered, start: int = 0) -> StoredLog:
    found = (
        Record(offset, sent.timestamp, sent.key, sent.value, (("id", sent.id.encode()),))
        for offset, sent in enumerate(records, start)
    )
    return StoredLog(
        records=tuple(found),
        control_offsets=(),
        batch_bytes=100,
        log_start_offset=start,
        high_watermark=start + len(records),
        last_stable_offset=start + len(records),
    )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (SENT, SENT[:2], "lost"),
        (SENT[:2], SENT[:1], "lost"),
        (SENT, [*SENT, SENT[0]], "duplicate"),
        (SENT, [SENT[1], SENT[0], SENT[2]], "reordered"),
        (SENT, [*SENT[:2], SENT[2]._replace(value=b"other")], "unsent"),
        (SENT, [*SENT[:2], SENT[2]._replace(timestamp=1)], "unsent"),
        (SENT, [*SENT[:2], SENT[2]._replace(number=9)], "unsent"),
    ],
)
def test_what_a_kill_has_taken_or_changed_is_seen(before: list[Numbered], after: list[Numbered], said: str) -> None:
    history = KillHistory()
    history.send(WHERE, SENT)
    history.acknowledge(WHERE, 0, SENT[: len(before)])
    history.read(WHERE, stored(*before))
    history.check()
    history.read(WHERE, stored(*after))
    with pytest.raises(AssertionError, match=said):
        history.check()


def test_a_log_without_an_offset_is_not_dense() -> None:
    with pytest.raises(AssertionError, match=r"lacks offsets \[3\]"):
        StoredLog(
            records=stored(*SENT).records,
            control_offsets=(),
            batch_bytes=0,
            log_start_offset=0,
            high_watermark=4,
            last_stable_offset=4,
        ).check_dense()


PRELOADS: Final = f"import sys; sys.path.append({str(PROGRAM.parent)!r}); import server_forker; server_forker.preload()"


@pytest.mark.merge
def test_the_program_has_loaded_every_module_of_ours_that_a_server_loads(tmp_path: Path) -> None:
    with ServerFolder(tmp_path, command=python_command(f"{PRELOADS}\n{TELLS_IMPORTS}")) as folder:
        server = folder.start("--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0", "--nodes", "2", "--emulate", "3.4")
        assert server.stop() == 0, server.stderr()
    assert [name for name in imports_of(tmp_path) if name.startswith("triolog.")] == []


@pytest.mark.merge
def test_forks_do_not_outlive_the_program(tmp_path: Path) -> None:
    poll = select.poll()
    with ServerForker.running(environment()) as forker:
        arguments = ("serve", "--data-dir", "data", "--native", "127.0.0.1:0")
        server = forker.fork(arguments, cwd=tmp_path, environment=environment(), output=tmp_path / "output")
        poll.register(server._pidfd, select.POLLIN)
        assert not poll.poll(0), "it serves"
    assert poll.poll(DEADLINE_S * 1000)
    os.close(server._pidfd)


def test_a_descriptor_reopened_on_another_file_is_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.touch()
    fd = os.open(first, os.O_CREAT | os.O_RDWR)
    try:
        before = leaks.snapshot()
        other = os.open(second, os.O_RDWR)
        os.dup2(other, fd)
        os.close(other)
        assert leaks.leaks_since(before, grace_s=0) == [f"fd {fd} -> {second}"]
    finally:
        os.close(fd)


def test_a_descriptor_of_a_file_unlinked_meanwhile_is_the_same_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "unlinked"
    with path.open("wb"):
        before = leaks.snapshot()
        path.unlink()
        assert leaks.leaks_since(before, grace_s=0) == []


async def test_a_trio_worker_is_reported_while_it_works_and_not_when_it_is_idle() -> None:
    started, release = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait()

    before = leaks.snapshot()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        await trio.to_thread.run_sync(started.wait)
        try:
            [found] = leaks.leaks_since(before, grace_s=0)
        finally:
            release.set()
    assert found.startswith("thread ")
    assert leaks.leaks_since(before) == []


@pytest.mark.skipif(
    not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists(), reason="this kernel lists no children"
)
def test_a_child_process_is_reported_until_it_is_waited_for() -> None:
    before = leaks.snapshot()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = [line for line in leaks.leaks_since(before, grace_s=0) if line.startswith("child process")]
    finally:
        child.communicate(b"\n")
    assert [line.partition(":")[0] for line in found] == [f"child process {child.pid}"]
    assert leaks.leaks_since(before) == []


@pytest.mark.merge
def test_a_moment_of_a_disk_has_what_came_before_all_that_it_has() -> None:
    """Another thread adds to the first file and then to the second, and a copy never has more in the second."""
    fs = CrashFileSystem()
    first = fs.open("/a", CREATE)
    for number in range(100):
        fs.close(fs.open(f"/between {number}", CREATE))
    second = fs.open("/b", CREATE)
    is_over = threading.Event()

    def write() -> None:
        for position in itertools.count():
            if is_over.is_set():
                return
            fs.write(first, [b"x"], position)
            fs.write(second, [b"x"], position)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            tree = fs.copy().tree()
            assert len(tree["/b"]) <= len(tree["/a"])
    finally:
        is_over.set()
        writer.join()
        sys.setswitchinterval(interval)
