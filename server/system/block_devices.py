"""Disks below a directory, and the bytes written to them, as the kernel reports them (Linux).

| value | source |
|---|---|
| the device of a file system | `/sys/dev/block/MAJOR:MINOR`; where that does not exist (btrfs), the source of the mount |
| the disk of a partition | the parent of the partition's folder; only a partition's has a file `partition` |
| the disks below device mapper, md and their like | `slaves/`, recursively |
| sectors written | `stat`, the seventh number (Documentation/block/stat.rst); a sector is always 512 B there |
| bytes written to a file system since its creation | `/sys/fs/ext4/NAME/lifetime_write_kbytes`, the same for f2fs |

A file system without a disk of this machine (tmpfs, overlayfs, a network's) has none. Everything here blocks, for microseconds:
the kernel returns values from memory.

The wear that a flash disk reports in sysfs (Linux), by files of its `device` folder:

| disk | file | meaning |
|---|---|---|
| eMMC | `life_time` | a number for each kind of cells. 1 to 10: at most so many tenths are used; 11: more; 0: not reported |
| | `pre_eol_info` | blocks in reserve. 1: normal; 2: four fifths are used; 3: nine tenths; 0: not reported |
| NVMe | `percentage_used` | there or in its `hwmon` folder, as in the SMART log: 100 is the warranted wear; more is possible |

The eMMC's are bytes 267 to 269 of EXT_CSD (JEDEC 84-B51, from eMMC 5.0 on). Linux's own NVMe driver has no such file; where
it is missing, `nvme smart-log` reads it from the disk, as root. SD cards and USB sticks report nothing.

The bytes that this process has written to disks (Linux: proc_pid_io(5)).
"""

from __future__ import annotations

import os
from typing import Final

import attrs

from ...protocol.limits import KIB
from .whole_sync import MOUNTS

SYSFS: Final = "/sys"
SECTOR_BYTES: Final = 512
SECTORS_WRITTEN: Final = 6
MOST_LAYERS: Final = 8
"""Devices that are made of devices, one on the other."""
LIFETIME_OF: Final = ("ext4", "f2fs")


@attrs.frozen
class BlockDevice:
    """The block device of a file system."""

    name: str
    """As in /sys/class/block: `mmcblk0p2`, `dm-0`."""
    disks: tuple[str, ...]
    """The whole disks below it, by name: what wears out."""


def device_of(directory: str, *, sysfs: str = SYSFS, mounts: str = MOUNTS) -> BlockDevice | None:
    """Return the block device of a directory's file system; None without one, or where the system does not report it."""
    try:
        number = os.stat(directory).st_dev
    except OSError:
        return None
    return numbered_device(os.major(number), os.minor(number), sysfs=sysfs) or _mounted_device(directory, sysfs, mounts)


def numbered_device(major: int, minor: int, *, sysfs: str = SYSFS) -> BlockDevice | None:
    """The one with this number; None where there is none."""
    return _device(f"{sysfs}/dev/block/{major}:{minor}")


def written_bytes(disk: str, *, sysfs: str = SYSFS) -> int | None:
    """Return the bytes that all processes have written to a disk, as the kernel counts them; None where the system does not
    report that."""
    fields = (read_text(f"{sysfs}/class/block/{disk}/stat") or "").split()
    try:
        return int(fields[SECTORS_WRITTEN]) * SECTOR_BYTES
    except (IndexError, ValueError):
        return None


def lifetime_written_bytes(device: str, *, sysfs: str = SYSFS) -> int | None:
    """Return the bytes written to the file system on a device since its creation; None where it does not count them."""
    for kind in LIFETIME_OF:
        told = read_text(f"{sysfs}/fs/{kind}/{device}/lifetime_write_kbytes")
        if told is not None and told.isascii() and told.isdigit():
            return int(told) * KIB
    return None


def read_text(path: str) -> str | None:
    """Return the text of a kernel file, stripped of white space; None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _device(path: str) -> BlockDevice | None:
    if not os.path.exists(path):
        return None
    real = os.path.realpath(path)
    return BlockDevice(os.path.basename(real), tuple(sorted(_disks(real, MOST_LAYERS))))


def _disks(real: str, layers: int) -> set[str]:
    if os.path.exists(f"{real}/partition"):
        real = os.path.dirname(real)
    try:
        below = os.listdir(f"{real}/slaves") if layers else []
    except OSError:
        below = []
    if not below:
        return {os.path.basename(real)}
    return set().union(*(_disks(os.path.realpath(f"{real}/slaves/{name}"), layers - 1) for name in below))


def _mounted_device(directory: str, sysfs: str, mounts: str) -> BlockDevice | None:
    """By the source of the innermost mount that the directory lies in (proc_pid_mountinfo(5))."""
    real, best, source = os.path.realpath(directory), "", ""
    for line in (read_text(mounts) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, told = before.split(), after.split()
        if len(fields) < 5 or len(told) < 2:
            continue
        point = fields[4].replace("\\040", " ")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, source = point, told[1]
    if not source.startswith("/dev/"):
        return None
    return _device(f"{sysfs}/class/block/{os.path.basename(os.path.realpath(source))}")


PRE_EOL: Final = {1: "normal", 2: "warning", 3: "urgent"}
PERCENT_OF_STEP: Final = 10
MOST_PERCENT: Final = 255
"""What the field of NVMe's log holds."""


@attrs.frozen(kw_only=True)
class FlashHealth:
    """None: the disk does not say."""

    life_used_percent: int | None = None
    """At most so much of its life is behind it; above 100: more than it was made for."""
    pre_eol: str | None = None
    """How the blocks in reserve stand: `normal`, `warning`, `urgent`."""


def flash_health(disk: str, *, sysfs: str = SYSFS) -> FlashHealth:
    """Return the wear that a disk reports. Blocks; for an eMMC the kernel returns the values that it read when it found the
    disk."""
    device = f"{sysfs}/class/block/{disk}/device"
    steps = [_number(each) for each in (read_text(f"{device}/life_time") or "").split()]
    used = max((step for step in steps if step is not None and 0 < step <= 11), default=0) * PERCENT_OF_STEP
    return FlashHealth(
        life_used_percent=used or _percentage_used(device),
        pre_eol=PRE_EOL.get(_number(read_text(f"{device}/pre_eol_info") or "") or 0),
    )


def _percentage_used(device: str) -> int | None:
    for folder in (device, *_monitors(device), *_monitors(f"{device}/hwmon")):
        value = _number((read_text(f"{folder}/percentage_used") or "").removesuffix("%"))
        if value is not None and 0 <= value <= MOST_PERCENT:
            return value
    return None


def _monitors(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.startswith("hwmon") and name != "hwmon"]
    except OSError:
        return []


def _number(text: str) -> int | None:
    """Decimal, or hexadecimal behind 0x."""
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


PROCESS_IO: Final = "/proc/self/io"


def process_written_bytes(path: str = PROCESS_IO) -> int | None:
    """Since the process began, with the children that it has waited for: whole pages, each time one is changed that was not
    waiting to be written anyway. None where the system does not tell."""
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes" and value.strip().isdigit():
            return int(value)
    return None
