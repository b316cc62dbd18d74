"""A file as a block device of its own, formatted ext4: what the kernel counts there is one load's and nobody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from .child import LoadFailedError
from .server import bytes_written

SECTOR_BYTES: Final = 512
SECTORS_WRITTEN: Final = 6
"""Field of /sys/block/<device>/stat (Linux: Documentation/block/stat.rst)."""
TOOLS: Final = ("losetup", "mkfs.ext4", "mount", "umount", "sync")


class NoLoopDeviceError(LoadFailedError):
    """Loop devices cannot be had here; the message says why."""


@attrs.frozen
class LoopDevice:
    """A mounted one."""

    name: str
    directory: str

    def bytes_written(self) -> int:
        """Return the bytes that have reached the device, those of the file system included, after a sync."""
        _run("sync", "--file-system", self.directory)
        fields = Path(f"/sys/block/{self.name}/stat").read_text(encoding="ascii").split()
        return int(fields[SECTORS_WRITTEN]) * SECTOR_BYTES


@contextmanager
def loop_device(directory: str, *, size_bytes: int) -> Iterator[LoopDevice]:
    """Mount a sparse file in `directory` for the time of the block. Raises NoLoopDeviceError."""
    if os.geteuid() != 0:
        raise NoLoopDeviceError("loop devices need root")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoLoopDeviceError(f"{', '.join(missing)} not installed")
    image, mounted = Path(directory, "image"), Path(directory, "mounted")
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    with ExitStack() as stack:
        device = _run("losetup", "--find", "--show", str(image))
        stack.callback(_run, "losetup", "--detach", device)
        # Nothing is left for the kernel to initialise while it is measured.
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        _run("mount", device, str(mounted))
        stack.callback(_run, "umount", str(mounted))
        yield LoopDevice(device.rpartition("/")[2], str(mounted))


def _run(*command: str) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise NoLoopDeviceError(f"{command[0]}: {run.stderr.strip()[-300:] or run.returncode}")
    return run.stdout.strip()


@attrs.frozen
class DeviceBytes:
    """Counts for who works in `directory`."""

    directory: str
    device: LoopDevice | None
    reason: str
    """Why there is no device."""

    def during(self, work: Callable[[], Any], pid: int | None = None) -> int:
        """Return the bytes that the process `pid` writes during `work`."""
        before = self._written(pid)
        work()
        return self._written(pid) - before

    def _written(self, pid: int | None) -> int:
        if self.device is not None:
            return self.device.bytes_written()
        assert pid is not None
        return bytes_written(pid)

    @property
    def how(self) -> str:
        """Say what is counted."""
        if self.device is not None:
            return "sectors written to a loop device formatted ext4, its journal included"
        return f"pages written by the server's process, the file system's journal not included: no loop device ({self.reason})"


@contextmanager
def device_bytes(directory: str, *, size_bytes: int) -> Iterator[DeviceBytes]:
    """Count on a loop device of `size_bytes` for the time of the block, or in `directory` itself without one."""
    with ExitStack() as stack:
        try:
            device = stack.enter_context(loop_device(directory, size_bytes=size_bytes))
        except NoLoopDeviceError as exc:
            place = DeviceBytes(directory, None, str(exc))
        else:
            place = DeviceBytes(device.directory, device, "")
        yield place
