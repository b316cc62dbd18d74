"""Which files and directories a program in this process has forced to the device."""

from __future__ import annotations

import os

import pytest


def synced_inodes(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Their inodes, as they are synced from now on."""
    synced: set[int] = set()
    sync = os.fsync

    def fsync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "fdatasync", fsync)
    return synced
