"""Disk operations as values, the driver that runs them on the spot, and writing again what the device may not have."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import crc32c
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Bytes
from triolog.server.storage.disk import diskops, write_again
from triolog.server.storage.disk.filesystem import CREATE, OsFileSystem
from triolog.server.storage.disk.write_again import force_batches, write_batches_again, write_file_again
from triolog.server.storage.errors import LostWriteError, SnapshotExpiredError, SyncFailedError

from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import batch

FS: Final = OsFileSystem()


def test_a_procedure_is_sent_the_answers_and_returns_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = diskops.FileHandle(path=str(path))

    def procedure() -> Generator[Any, Any, list[Any]]:
        return [(yield diskops.Read(file, 2, 3)), (yield diskops.FileSize(str(path))), (yield diskops.Read(file, 8, 10))]

    assert diskops.drive(FS, procedure()) == [b"234", 10, b"89"]


def test_an_operations_error_names_the_file_and_is_thrown_into_the_procedure_which_may_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()

    def procedure() -> Generator[Any, Any, str]:
        try:
            yield diskops.Rename(f"{tmp_path}/a", f"{tmp_path}/b")
        except FileNotFoundError:
            yield diskops.WriteFile(f"{tmp_path}/b", b"made", durable=False)
        yield diskops.Read(diskops.FileHandle(str(tmp_path / "a.log")), 0, 10)
        return "not reached"

    with pytest.raises(IsADirectoryError, match=r"a\.log"):
        diskops.drive(FS, procedure())
    assert (tmp_path / "b").read_bytes() == b"made"


def test_files_that_the_driver_opened_are_closed_again_also_after_an_error_and_others_stay_open(tmp_path: Path) -> None:
    file, other = (diskops.FileHandle(path=str(tmp_path / name), writable=True, create_bytes=0) for name in "ab")
    other.fd = diskops.Open(other).run(FS)

    def procedure() -> Generator[Any, Any, None]:
        yield diskops.Write(file, 0, [b"abc"])
        yield diskops.Write(other, 0, [b"abc"])
        assert file.fd is not None
        yield diskops.Sync(other)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        diskops.drive(FS, procedure())
    assert file.fd is None
    diskops.Close(other.descriptor()).run(FS)


def test_a_file_is_made_with_its_length_where_it_has_one(tmp_path: Path) -> None:
    """One that is gone expires the snapshot of its reader."""
    path = tmp_path / "file"
    with pytest.raises(SnapshotExpiredError, match="file is gone"):
        diskops.Open(diskops.FileHandle(path=str(path))).run(FS)
    with pytest.raises(FileNotFoundError):
        diskops.Open(diskops.FileHandle(path=str(path), writable=True)).run(FS)
    assert not list(tmp_path.iterdir())
    file = diskops.FileHandle(path=str(path), writable=True, create_bytes=800)
    for _ in range(2):
        diskops.Close(diskops.Open(file).run(FS)).run(FS)
        assert path.stat().st_size == 800


def test_a_descriptor_is_not_left_open_when_the_length_cannot_be_given(tmp_path: Path) -> None:
    class Full(OsFileSystem):
        def truncate(self, fd: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "full")

        def allocate(self, fd: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "full")

    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="full"):
        diskops.Open(diskops.FileHandle(path=str(tmp_path / "a"), writable=True, create_bytes=8)).run(Full())
    with pytest.raises(OSError, match="full"):
        diskops.CreateFile(str(tmp_path / "b"), 8).run(Full())
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_created_file_is_empty_or_allocated_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"left over")
    diskops.Close(diskops.CreateFile(str(path)).run(FS)).run(FS)
    assert path.read_bytes() == b""
    diskops.Close(diskops.CreateFile(str(path), 4096).run(FS)).run(FS)
    assert path.read_bytes() == bytes(4096)
    assert path.stat().st_blocks * 512 >= 4096


def test_operations_run_in_order_until_the_first_error(tmp_path: Path) -> None:
    file = diskops.FileHandle(path=str(tmp_path / "file"), writable=True, create_bytes=0)
    file.fd = diskops.Open(file).run(FS)
    try:
        with pytest.raises(FileNotFoundError):
            diskops.execute(
                FS,
                [
                    diskops.Write(file, 0, [b"abc", b"def"]),
                    diskops.Truncate(file, 4),
                    diskops.SyncDirectory(str(tmp_path / "missing")),
                    diskops.Truncate(file, 0),
                ],
            )
    finally:
        diskops.Close(file.descriptor()).run(FS)
    assert (tmp_path / "file").read_bytes() == b"abcd"


def test_many_renames_answer_the_names_that_are_there_now(tmp_path: Path) -> None:
    fs = OsFileSystem()
    names = [str(tmp_path / name) for name in ("a", "missing", "b")]
    for name in (names[0], names[2]):
        Path(name).write_text(name)
    assert diskops.RenameEach(names, ".gone").run(fs) == [names[0] + ".gone", names[2] + ".gone"]
    assert diskops.RenameEach([], ".gone").run(fs) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gone", "b.gone"]
    for _ in range(2):
        diskops.Unlink(names[0] + ".gone").run(fs)
    assert diskops.FileSize(names[0] + ".gone").run(fs) is None


def test_the_time_of_a_file_is_that_of_its_last_change(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    assert diskops.ModifiedMs(str(path)).run(OsFileSystem()) == 1_700_000_000_123
    with pytest.raises(FileNotFoundError):
        diskops.ModifiedMs(str(tmp_path / "missing")).run(OsFileSystem())


@pytest.mark.parametrize("operation", [diskops.Sync, diskops.SyncDirectory])
async def test_only_a_sync_that_began_can_fail(tmp_path: Path, operation: type[diskops.Sync | diskops.SyncDirectory]) -> None:
    """What fails before can be tried again: opening the file, or the directory."""
    (tmp_path / "file").write_bytes(b"data")
    fs = GateFileSystem()
    wanted = (
        diskops.Sync(diskops.FileHandle(str(tmp_path / "file")))
        if operation is diskops.Sync
        else diskops.SyncDirectory(str(tmp_path))
    )
    kind, step = ("sync", "open") if operation is diskops.Sync else ("sync_directory", "sync_directory")

    fs.fail(step, number=errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files") as raised:
        diskops.drive(fs, (each for each in [wanted]))
    assert not isinstance(raised.value, SyncFailedError)
    fs.fail(kind, number=errno.EIO)
    with pytest.raises(SyncFailedError, match="Input/output error") as failed:
        diskops.drive(fs, (each for each in [wanted]))
    assert failed.value.errno == errno.EIO
    assert str(tmp_path) in str(failed.value)
    if operation is diskops.SyncDirectory:
        diskops.drive(fs, (each for each in [wanted]))


def test_after_a_failed_sync_of_a_file_none_counts_before_its_bytes_are_written_again(tmp_path: Path) -> None:
    """The kernel would let the next one succeed, whatever descriptor the file has by then."""
    (tmp_path / "file").write_bytes(batch(1) + batch(2))
    fs = GateFileSystem()
    file = diskops.FileHandle(str(tmp_path / "file"), writable=True)

    def run(*operations: diskops.DiskOp) -> None:
        diskops.drive(fs, (operation for operation in operations))

    fs.fail("sync", number=errno.ENOSPC)
    with pytest.raises(SyncFailedError, match="No space left"):
        run(diskops.Sync(file))
    with pytest.raises(SyncFailedError, match=r"No space left.*earlier sync") as again:
        run(diskops.Sync(file))
    assert again.value.is_passing
    assert fs.count("sync") == 1
    run(diskops.WriteBatchesAgain(file, 0, 2 * len(batch(1)), 0), diskops.Sync(file))
    run(diskops.Sync(file))
    assert fs.count("sync") == 3


PATH: Final = "/log"
PAGE_BYTES: Final = 64


@attrs.define(eq=False)
class Writes:
    """A log of batches with the offsets 0, 1, 2 ..., and what was written to it."""

    fs: CrashFileSystem = attrs.field(factory=lambda: CrashFileSystem(page_bytes=PAGE_BYTES))
    fd: int = attrs.field(init=False)
    positions: list[int] = attrs.field(factory=lambda: [0])

    def __attrs_post_init__(self) -> None:
        self.fd = self.fs.open(PATH, CREATE)
        self.fs.sync_directory("/")

    @property
    def size(self) -> int:
        return self.positions[-1]

    def add(self, value_bytes: int) -> None:
        data = batch_at(len(self.positions) - 1, value_bytes)
        self.fs.write(self.fd, [data], self.size)
        self.positions.append(self.size + len(data))

    def sync(self, *, fails: bool) -> None:
        if not fails:
            self.fs.sync(self.fd)
            return
        self.fs.fail_next("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            self.fs.sync(self.fd)


def batch_at(offset: int, value_bytes: int) -> bytes:
    data = bytearray(build_batch([(0, None, random.Random(offset).randbytes(value_bytes), ())]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=20),
    st.integers(0, 20),
    st.sampled_from([1, 100, 1000]),
    st.integers(PAGE_BYTES, 3 * PAGE_BYTES),
)
def test_bytes_written_and_synced_again_are_on_disk(
    sizes: list[int], durable: int, window_bytes: int, folio_bytes: int
) -> None:
    """However the windows lie: what the kernel forgets of one must not be what the next one was going to read."""
    log = Writes()
    durable = durable if durable <= len(sizes) else 0
    for number, size in enumerate(sizes):
        log.add(size)
        if number + 1 == durable:
            log.sync(fails=False)
    content = log.fs.content(PATH)
    log.sync(fails=True)
    write_batches_again(log.fs, log.fd, PATH, 0, log.size, durable, window_bytes=window_bytes, folio_bytes=folio_bytes)
    assert log.fs.content(PATH) == content
    log.fs.sync(log.fd)
    assert log.fs.durable_content(PATH) == content


def test_nothing_before_the_offset_is_written_again() -> None:
    written: list[int] = []

    class Noting(CrashFileSystem):
        def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
            written.append(position)
            super().write(fd, buffers, position)

    log = Writes(Noting())
    for size in (10, 200, 30, 40):
        log.add(size)
    written.clear()
    for from_offset in range(5):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, from_offset)
    assert written == log.positions[:4]


@pytest.mark.parametrize("position", [16, 17, 30, 61, 90])
def test_bytes_that_read_differently_are_lost_and_nothing_is_written(position: int) -> None:
    log = Writes()
    log.add(100)
    log.add(100)
    at = log.positions[1] + position
    log.fs.write(log.fd, [b"\xff"], at)
    changed = log.fs.content(PATH)
    with pytest.raises(LostWriteError, match=f"are lost.*{PATH}"):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 0)
    assert log.fs.content(PATH) == changed


class LosesWhatIsForgotten(CrashFileSystem):
    """The device has zeros where [start, stop) was, which shows when the kernel has forgotten its pages."""

    lost = (0, 0)

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        super().forget(fd, start, stop)
        first, behind = self.lost
        if first < behind:
            super().write(fd, [bytes(behind - first)], first)


@pytest.mark.parametrize("new", [0, 40])
def test_synced_bytes_that_the_device_lost_with_their_neighbours_are_written_after_all(new: int) -> None:
    """Also where nothing behind them is to be written: the append was taken back when its sync had failed."""
    log = Writes(fs := LosesWhatIsForgotten())
    log.add(30)
    log.sync(fails=False)
    if new:
        log.add(new)
    content = log.fs.content(PATH)
    log.sync(fails=True)
    fs.lost = (70, 80)
    write_batches_again(log.fs, log.fd, PATH, 0, log.size, 1)
    assert log.fs.content(PATH) == content
    log.fs.sync(log.fd)
    assert log.fs.durable_content(PATH) == content


def test_synced_bytes_that_share_pages_with_refused_ones_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Writes()
    for size in (30, 40, 50):
        log.add(size)
    log.fs.write(log.fd, [b"\xff"], log.positions[1] + 70)
    with pytest.raises(LostWriteError, match="are lost"):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 3)
    monkeypatch.setattr(write_again, "SHARED_BYTES", log.size - log.positions[2])
    write_batches_again(log.fs, log.fd, PATH, 0, log.size, 3)


def test_pages_that_the_kernel_dropped_are_lost() -> None:
    log = Writes()
    log.add(20)
    log.sync(fails=False)
    log.add(500)
    log.sync(fails=True)
    log.fs.forget(log.fd, 0)
    with pytest.raises(LostWriteError, match=r"from position \d+ on") as lost:
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 1)
    assert not lost.value.is_passing


@pytest.mark.parametrize("cut", [0, 1, 60, 100])
def test_a_file_that_ends_too_early_is_lost(cut: int) -> None:
    log = Writes()
    log.add(100)
    log.fs.truncate(log.fd, cut)
    with pytest.raises(LostWriteError):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 0)


def test_an_error_of_before_the_start_is_told_once_and_does_not_count_and_one_that_stays_is_reported() -> None:
    for failures in (0, 2):
        log = Writes()
        log.add(500)
        content = log.fs.content(PATH)
        log.fs.fail_write_back(PATH)
        log.fs.end_process()
        for _ in range(failures):
            log.fs.fail_next("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output") if failures else contextlib.nullcontext():
            force_batches(log.fs, PATH, 0, log.size, 0)
        assert failures or log.fs.durable_content(PATH) == content


def test_a_log_is_as_old_as_it_was_and_a_batch_that_is_larger_than_a_window_is_written_whole(tmp_path: Path) -> None:
    path, fs = tmp_path / "log", GateFileSystem()
    data = batch_at(0, 10) + batch_at(1, 3 * 2**20) + batch_at(2, 10)
    path.write_bytes(data)
    fs.set_modified_ms(str(path), 1_600_000_000_000)
    force_batches(fs, str(path), 0, len(data), 0)
    assert fs.modified_ms(str(path)) == 1_600_000_000_000
    assert path.read_bytes() == data
    assert fs.count("write") == 1


def test_a_small_file_is_written_again_as_a_new_one() -> None:
    log = Writes()
    log.add(500)
    content = log.fs.content(PATH)
    log.sync(fails=True)
    assert write_file_again(log.fs, PATH) == (len(content), crc32c(content))
    log.fs.sync(log.fs.open(PATH, CREATE))
    assert log.fs.durable_content(PATH) is not None
    log.fs.sync_directory("/")
    assert log.fs.durable_content(PATH) == content
