"""Syncs: the strongest call that a system has, and no other way to a device."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.system import syncs

ROOT: Final = Path(__file__).resolve().parents[3]
F_FULLFSYNC: Final = 51
NO_GUARANTEE: Final = {"server/storage/disk/filesystem.py": "forget"}
"""Functions that sync so that the kernel can drop pages, whether that succeeds or not."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that reach the system."""
    calls: list[str] = []

    def noting(name: str) -> Callable[[int], None]:
        return lambda fd: calls.append(name)

    monkeypatch.setattr(os, "fsync", noting("fsync"))
    monkeypatch.setattr(os, "fdatasync", noting("fdatasync"), raising=False)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    return calls


def with_full_sync(monkeypatch: pytest.MonkeyPatch, calls: list[str], error: int | None = None) -> None:
    """macOS, or a file system that returns this errno."""

    def full_sync(fd: int, command: int) -> int:
        assert command == F_FULLFSYNC
        calls.append("F_FULLFSYNC")
        if error is not None:
            raise OSError(error, os.strerror(error))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)


def sync_both(folder: Path) -> None:
    fs = OsFileSystem()
    fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    try:
        fs.sync(fd)
    finally:
        os.close(fd)
    fs.sync_directory(str(folder))


def test_a_file_is_synced_with_its_data_alone_and_a_directory_as_a_whole(calls: list[str], tmp_path: Path) -> None:
    sync_both(tmp_path)
    assert calls == ["fdatasync", "fsync"]


def test_where_a_sync_leaves_data_in_the_cache_of_the_device_the_full_one_is_used(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_full_sync(monkeypatch, calls)
    sync_both(tmp_path)
    assert calls == ["F_FULLFSYNC"] * 2


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_an_ordinary_sync_serves_without_a_full_one(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    with_full_sync(monkeypatch, calls, error)
    sync_both(tmp_path)
    assert calls == ["F_FULLFSYNC", "fdatasync", "F_FULLFSYNC", "fsync"]


@pytest.mark.parametrize("sync", [syncs.sync_file, syncs.sync_directory])
def test_an_error_of_the_device_is_raised_and_nothing_weaker_is_tried(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, sync: Callable[[int], None]
) -> None:
    with_full_sync(monkeypatch, calls, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync(0)
    assert calls == ["F_FULLFSYNC"]


def test_no_other_code_syncs() -> None:
    """Bench measures the bare calls."""
    found = {}
    for path in (*ROOT.glob("server/**/*.py"), *ROOT.glob("tools/**/*.py")):
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if name.startswith(("tools/bench/", "server/system/syncs")) or not re.search("fsync|fdatasync", text):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Attribute) and node.attr in ("fsync", "fdatasync"):
                        found[name] = function.name
    assert found == NO_GUARANTEE
