"""The lock on a directory: one owner in this process and among processes, Kafka included, and it says who."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from triolog.server.storage.directory import log_directory
from triolog.server.storage.directory.log_directory import DirectoryLock
from triolog.server.storage.disk.checkpoints import LOCK_FILE
from triolog.server.storage.errors import LogDirectoryError

HOLD_AS_KAFKA: Final = """
import fcntl, sys
stream = open(sys.argv[1], "a+b")
fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""
TRY_AS_KAFKA: Final = """
import fcntl, sys
with open(sys.argv[1], "r+b") as stream:
    fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def kafka_can_lock(directory: Path) -> bool:
    command = [sys.executable, "-c", TRY_AS_KAFKA, str(directory / LOCK_FILE)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@contextlib.contextmanager
def held(directory: str) -> Iterator[None]:
    lock = DirectoryLock.acquire(directory)
    try:
        yield
    finally:
        lock.release()


def test_a_second_owner_in_this_process_is_refused_with_the_first_ones_name(tmp_path: Path) -> None:
    """Also under another name of the directory; another directory has another lock."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "alias").symlink_to("one")
    with held(str(tmp_path / "one")), held(str(tmp_path / "two")):
        for name in ("one", "alias"):
            why = f"{tmp_path / name} is locked by triolog, process {os.getpid()}; stop it first"
            with pytest.raises(LogDirectoryError, match=why):
                DirectoryLock.acquire(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        DirectoryLock.acquire(str(tmp_path / "none"))


def test_removing_the_file_lets_no_second_owner_in_and_kafkas_file_is_not_made_anew(tmp_path: Path) -> None:
    with held(str(tmp_path)):
        (tmp_path / LOCK_FILE).unlink()
        with pytest.raises(LogDirectoryError, match=f"{tmp_path} is locked by another process"):
            DirectoryLock.acquire(str(tmp_path))
        assert not (tmp_path / LOCK_FILE).exists()
    DirectoryLock.acquire(str(tmp_path)).release()


def test_where_directories_cannot_be_locked_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS: `flock` is a record lock there, and a directory cannot be open for writing."""

    def nfs_flock(fd: int, operation: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", nfs_flock)
    with held(str(tmp_path)):
        with pytest.raises(LogDirectoryError, match="locked by triolog"):
            DirectoryLock.acquire(str(tmp_path))


def test_a_full_device_keeps_nobody_from_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the name of the holder has no room."""

    def no_space(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_space)
        lock = DirectoryLock.acquire(str(tmp_path))
    with pytest.raises(LogDirectoryError, match="is locked by another process"):
        DirectoryLock.acquire(str(tmp_path))
    lock.release()


@pytest.mark.parametrize("has_open_file_locks", [True, False])
def test_kafka_is_kept_out_until_the_lock_is_released_also_after_a_second_owner_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_open_file_locks: bool
) -> None:
    """Where locks of open files are missing records are locked."""
    if not has_open_file_locks:
        monkeypatch.setattr(log_directory, "_OPEN_FILE_LOCK", None)
    with held(str(tmp_path)):
        assert not kafka_can_lock(tmp_path)
        with pytest.raises(LogDirectoryError, match="locked by triolog"):
            DirectoryLock.acquire(str(tmp_path))
        assert not (has_open_file_locks and kafka_can_lock(tmp_path))
    with held(str(tmp_path)):
        pass
    assert kafka_can_lock(tmp_path)


def test_a_directory_that_kafka_holds_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_AS_KAFKA, str(tmp_path / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirectoryError, match="another process"):
            DirectoryLock.acquire(str(tmp_path))
        holder.stdin.close()
    DirectoryLock.acquire(str(tmp_path)).release()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no locks of open files")
def test_linux_has_locks_of_open_files() -> None:
    assert log_directory._OPEN_FILE_LOCK == fcntl.F_OFD_SETLK
