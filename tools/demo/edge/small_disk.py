"""A file system of 64 MiB: ext4 on a loop device, or a tmpfs. Who may mount neither gets a bound on the logs instead."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from ....protocol.limits import MIB
from ...bench.measuring.loop_device import NoLoopDeviceError, loop_device

SIZE_BYTES: Final = 64 * MIB
LOGS_BYTES: Final = 50 * MIB
"""What logs may take where there is no such file system: as much as an ext4 of 64 MiB has room for."""


@attrs.frozen
class SmallDisk:
    """The disk for the gateway's data. `what` describes it for people; `settings` are variables of the server."""

    folder: Path
    what: str
    room_bytes: int
    settings: Mapping[str, str] = attrs.field(factory=dict)


@contextmanager
def small_disk(work_dir: Path) -> Iterator[SmallDisk]:
    """Yield the best disk that this machine allows, for the time of the block."""
    with ExitStack() as stack:
        try:
            device = stack.enter_context(loop_device(str(work_dir), size_bytes=SIZE_BYTES))
        except NoLoopDeviceError as exc:
            yield _tmpfs(stack, work_dir / "tmpfs") or _bounded(work_dir, str(exc))
        else:
            yield _mounted(Path(device.directory), f"ext4 of 64 MiB on /dev/{device.name}")


def _tmpfs(stack: ExitStack, folder: Path) -> SmallDisk | None:
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder))
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return None
    except FileNotFoundError:
        return None
    stack.callback(subprocess.run, ("umount", str(folder)), check=True)
    return _mounted(folder, "a tmpfs of 64 MiB")


def _mounted(folder: Path, what: str) -> SmallDisk:
    found = os.statvfs(folder)
    return SmallDisk(folder, what, found.f_bavail * found.f_frsize)


def _bounded(work_dir: Path, why: str) -> SmallDisk:
    what = f"log_max_bytes={LOGS_BYTES}, because no file system of 64 MiB can be mounted ({why})"
    return SmallDisk(work_dir, what, LOGS_BYTES, {"TRIOLOG_LOG_MAX_BYTES": str(LOGS_BYTES)})
