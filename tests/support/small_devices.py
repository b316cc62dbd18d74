"""Mounted file systems of a few megabytes that can really be full. Where mounting is not allowed the tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

SIZES: Final = {"tmpfs": 1 << 20, "ext4": 8 << 20}
PAGE_BYTES: Final = 4096
NO_RESERVE: Final = {"TRIOLOG_DISK_RESERVE_BYTES": "0"}
"""For servers that are to meet a full device: with a reserve they refuse appends before."""


@contextmanager
def mounted_device(folder: Path, kind: str, size: int | None = None) -> Iterator[Path]:
    """An empty `tmpfs` or `ext4` (an image in a loop device) mounted below `folder`."""
    size = size or SIZES[kind]
    path = folder / "device"
    path.mkdir()
    if kind == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    else:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(size)
        made = _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        if made.returncode:
            pytest.skip(f"no ext4 can be made: {made.stderr.strip()}")
        mount = ["mount", "-o", "loop", str(image), str(path)]
    mounted = _run(*mount)
    if mounted.returncode:
        pytest.skip(f"no right to mount {kind}: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(path: Path) -> Path:
    """Take every block that is left; answers the file to delete."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (64 * PAGE_BYTES, PAGE_BYTES, 512):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as exc:
        return subprocess.CompletedProcess(command, 127, "", str(exc))
