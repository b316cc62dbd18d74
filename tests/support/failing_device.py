"""A real ext4 file system on a loop device that can be made to refuse writes, so that the kernel's own write-back fails; and
file systems of a few megabytes that can really be full.

The device is cut to its first megabytes, where the metadata are (`LOOP_SET_STATUS64`, `lo_sizelimit`): what ext4 then writes
behind them is "beyond the end of the device", EIO. Nothing on the device is lost, and it comes back whole.

Linux, root and loop devices are needed, else tests are skipped. It runs in a mount namespace of its own (`run_alone`), which
goes with its process: nothing stays mounted, and the loop device goes with its mount.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

MIB: Final = 1024 * 1024
DEVICE_BYTES: Final = 64 * MIB
METADATA_BYTES: Final = 4 * MIB
"""Superblock, bitmaps, 512 inodes, and the first directories."""
FILLER_BYTES: Final = 8 * MIB
"""What is written next lies behind these."""
PATIENCE_S: Final = 60
CANNOT: Final = 77
"""What the process ends with where there are no loop devices."""
_GET_STATUS: Final = 0x4C05
_SET_STATUS: Final = 0x4C04
_STATUS_BYTES: Final = 232
_SIZE_LIMIT_AT: Final = 32


class CannotRunHereError(Exception):
    """This machine has no such device for us."""


@attrs.frozen
class FailingDevice:
    """`path` is where it is mounted."""

    image: Path
    path: Path
    loop: str

    def fail(self) -> None:
        """From now on what is written to new places is lost, and the sync says EIO."""
        self._limit(METADATA_BYTES)

    def heal(self) -> None:
        self._limit(0)

    def forget_caches(self) -> None:
        """Unmount and mount again: what is read then is what the device has."""
        subprocess.run(["umount", self.path], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True)

    def _limit(self, size: int) -> None:
        fd = os.open(self.loop, os.O_RDWR)
        try:
            status = bytearray(_STATUS_BYTES)
            fcntl.ioctl(fd, _GET_STATUS, status)
            struct.pack_into("=Q", status, _SIZE_LIMIT_AT, size)
            fcntl.ioctl(fd, _SET_STATUS, bytes(status))
        finally:
            os.close(fd)


@contextmanager
def failing_device(directory: Path) -> Iterator[FailingDevice]:
    """Raises CannotRunHereError."""
    image, path = directory / "image", directory / "mounted"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(DEVICE_BYTES)
    try:
        options = ["-b", "4096", "-N", "512", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"]
        subprocess.run(["mkfs.ext4", "-q", "-F", *options, image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        raise CannotRunHereError(f"no ext4 on a loop device: {getattr(exc, 'stderr', b'')!r} {exc}") from exc
    try:
        with (path / "filler").open("wb") as file:
            file.write(bytes(FILLER_BYTES))
            file.flush()
            os.fsync(file.fileno())
        yield FailingDevice(image, path, _loop_of(path))
    finally:
        subprocess.run(["umount", path], check=False)


def _loop_of(path: Path) -> str:
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        device, mounted, *_ = line.split()
        if mounted == str(path):
            return device
    raise CannotRunHereError(f"{path} is not in /proc/mounts")


def run_alone(module: str, directory: Path) -> str | None:
    """Run a module's `main(directory)` in a process with mounts of its own. Answers why it cannot run here, None when it went
    well. Raises AssertionError with what it said."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux and root, to mount a file system whose device fails"
    if missing := [name for name in ("unshare", "mount", "umount", "mkfs.ext4") if shutil.which(name) is None]:
        return f"{', '.join(missing)} not found"
    program = f"from tests.support.failing_device import _main; _main({module!r}, {str(directory)!r})"
    run = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if run.returncode == CANNOT or "unshare failed" in run.stdout:
        return run.stdout.strip()
    assert run.returncode == 0, run.stdout
    return None


def _main(module: str, directory: str) -> None:
    signal.alarm(PATIENCE_S)  # whoever waits for it may be gone
    try:
        __import__(module, fromlist=["main"]).main(Path(directory))
    except CannotRunHereError as exc:
        sys.stdout.write(f"{exc}\n")
        sys.exit(CANNOT)


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
