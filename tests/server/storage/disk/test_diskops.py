"""Disk operations as values, and the driver that runs them on the spot."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.server.storage.disk import diskops
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.errors import SnapshotExpiredError, SyncFailedError

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
async def test_only_a_sync_that_was_begun_can_have_failed(
    tmp_path: Path, operation: type[diskops.Sync | diskops.SyncDirectory]
) -> None:
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
    with pytest.raises(SyncFailedError, match=r"No space left.*when it was synced before") as again:
        run(diskops.Sync(file))
    assert again.value.is_passing
    assert fs.count("sync") == 1
    run(diskops.WriteBatchesAgain(file, 0, 2 * len(batch(1)), 0), diskops.Sync(file))
    run(diskops.Sync(file))
    assert fs.count("sync") == 3
