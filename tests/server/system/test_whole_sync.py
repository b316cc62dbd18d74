"""Forcing a whole file system to the device: when it stands for single syncs, and when it does not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.system import block_devices
from triolog.server.system.block_devices import FEWEST, WORTH_BYTES, DeviceSync, dirty_bytes, open_whole_sync


class Kernel:
    """Answers `syncfs` with what is ordered, and says how much is dirty."""

    def __init__(self) -> None:
        self.synced: list[int] = []
        self.failure: OSError | None = None
        self.dirty_bytes = 0

    def syncfs(self, fd: int) -> None:
        os.fstat(fd)
        self.synced.append(fd)
        if self.failure is not None:
            raise self.failure

    def open(self, path: Path) -> DeviceSync:
        return DeviceSync(str(path), self.syncfs, lambda: self.dirty_bytes)


def test_many_syncs_are_one_few_or_those_where_others_have_more_to_write_are_left_to_the_caller(tmp_path: Path) -> None:
    kernel = Kernel()
    sync = kernel.open(tmp_path)
    assert not sync.sync_instead(FEWEST - 1)
    assert kernel.synced == []
    assert sync.sync_instead(FEWEST)
    assert len(kernel.synced) == 1
    kernel.dirty_bytes = 100 * WORTH_BYTES + 1
    assert not sync.sync_instead(100)
    assert sync.sync_instead(101)
    sync.close()


def test_after_an_error_it_is_not_believed_again_because_the_kernel_tells_it_once(tmp_path: Path) -> None:
    kernel = Kernel()
    sync = kernel.open(tmp_path)
    kernel.failure = OSError(errno.EIO, "lost")
    assert not sync.sync_instead(100)
    kernel.failure = None
    assert not sync.sync_instead(100)
    assert len(kernel.synced) == 1
    sync.close()


def test_what_the_system_has_forces_files_and_names(tmp_path: Path) -> None:
    sync = open_whole_sync(str(tmp_path))
    if sync is None:
        pytest.skip("not on this kernel or file system")
    (tmp_path / "file").write_bytes(b"x")
    sync._dirty_bytes = lambda: 0
    assert sync.sync_instead(FEWEST)
    sync.close()


def test_an_older_kernel_or_another_file_system_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OsFileSystem().whole_sync(str(tmp_path)) is None, "nobody asked for it"
    monkeypatch.setattr(block_devices, "file_system_type", lambda device: "overlay")
    assert open_whole_sync(str(tmp_path)) is None
    monkeypatch.setattr(block_devices, "file_system_type", lambda device: "ext4")
    monkeypatch.setattr(block_devices, "_kernel", lambda: (5, 16))
    assert open_whole_sync(str(tmp_path)) is None


def test_where_the_system_does_not_tell_there_is_more_dirty_than_anything_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_devices, "MEMORY", str(tmp_path / "meminfo"))
    assert dirty_bytes() > 2**60
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nDirty:  12 kB\nWriteback: 3 kB\n")
    assert dirty_bytes() == 15 * 1024
