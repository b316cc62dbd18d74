from __future__ import annotations

import os
from pathlib import Path

import pytest
from triolog.protocol.limits import MIB
from triolog.tools.demo.edge.small_disk import LOGS_BYTES, SIZE_BYTES, small_disk


def test_it_is_small_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        assert 40 * MIB < disk.room_bytes <= SIZE_BYTES
        if not disk.settings:
            assert os.statvfs(disk.folder).f_bavail * os.statvfs(disk.folder).f_frsize == disk.room_bytes
            assert disk.folder.is_mount()
    assert not disk.folder.is_mount()


def test_where_nothing_can_be_mounted_the_logs_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with small_disk(tmp_path) as disk:
        assert disk.settings == {"TRIOLOG_LOG_MAX_BYTES": str(LOGS_BYTES)}
        assert "because no file system of 64 MiB can be mounted" in disk.what
