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

Forcing a whole file system to the device at once (syncfs(2)), where thousands of files would be forced one by one.

Each `fsync` of a new or grown file is a commit of the journal and a flush of the device: 0.3 ms on a good one, and half of
that on the processor. For 5,000 partitions that is 20,000 of them; `syncfs` is one.

It counts only where it says what failed. The kernel remembers for each open descriptor which errors of its file system it was
told of (Linux 5.8), so the descriptor is opened before anything is written; that the journal failed is told since Linux 5.17;
file systems that lie over others pass on nothing. After an error it is not asked again: it would not be told twice.

It writes what everybody has changed, not this server alone. So it is only taken where less is dirty than the single syncs cost.

Which file systems are mounted, and which lie in memory: what is there can be read at once, though tmpfs does not know
RWF_NOWAIT.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple, Protocol

import attrs

from ...protocol.limits import INT64_MAX, KIB

TELLS_ERRORS: Final = (5, 17)
KNOWN: Final = frozenset({"ext4", "xfs"})
FEWEST: Final = 8
"""Single syncs that it is worth asking for."""
WORTH_BYTES: Final = 128 * KIB
"""What a device writes in the time of one sync."""
MEMORY: Final = "/proc/meminfo"


class WholeSync(Protocol):
    """Stands for a file system, from before it is written to."""

    def sync_instead(self, syncs: int) -> bool:
        """Force everything to the device in place of so many syncs. False: that would not be cheaper, or not all may be there,
        and each has to be done by itself. Blocks."""
        ...

    def close(self) -> None: ...


class DeviceSync:
    """A `WholeSync` that uses the system. Only one thread may use it at a time: of two simultaneous calls only one would get an
    error."""

    def __init__(self, path: str, syncfs: Callable[[int], None], dirty_bytes: Callable[[], int]) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._syncfs, self._dirty_bytes = syncfs, dirty_bytes
        self._has_failed = False

    def sync_instead(self, syncs: int) -> bool:
        if self._has_failed or syncs < FEWEST or self._dirty_bytes() > syncs * WORTH_BYTES:
            return False
        try:
            self._syncfs(self._fd)
        except OSError:
            self._has_failed = True
            return False
        return True

    def close(self) -> None:
        os.close(self._fd)


def open_whole_sync(path: str) -> DeviceSync | None:
    """For the file system that holds `path`; None where a whole one cannot be forced, or would not tell of errors."""
    if sys.platform != "linux" or _kernel() < TELLS_ERRORS or file_system_type(os.stat(path).st_dev) not in KNOWN:
        return None
    syncfs = _system_call()
    return None if syncfs is None else DeviceSync(path, syncfs, dirty_bytes)


def dirty_bytes() -> int:
    """Return the bytes that the kernel has yet to write, for all devices; INT64_MAX where the system does not report them."""
    try:
        fields = dict(line.split(":", 1) for line in (read_text(MEMORY) or "").splitlines())
        return sum(int(fields[name].split()[0]) * KIB for name in ("Dirty", "Writeback"))
    except (KeyError, ValueError):
        return INT64_MAX


def _kernel() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return () if found is None else tuple(map(int, found.groups()))


@cache
def _system_call() -> Callable[[int], None] | None:
    import ctypes  # not needed but for this

    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(fd: int) -> None:
        if function(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return syncfs


MOUNTS: Final = "/proc/self/mountinfo"
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def lies_in_memory(device: int) -> bool:
    """Return whether a device, as in `st_dev`, is a mount in memory; False where the system does not report it. Pages that were
    swapped out count as memory: a machine that swaps waits everywhere."""
    return file_system_type(device) in IN_MEMORY


@cache
def file_system_type(device: int) -> str:
    """Return the file system type of a device, as in `st_dev`; "" where the system does not report it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return next((mount.kind for mount in _mounts(MOUNTS) if mount.number == number), "")


class _Mount(NamedTuple):
    """A line of mountinfo (proc_pid_mountinfo(5)): the third and the fifth field, and the first two after the single dash."""

    number: str
    point: str
    kind: str
    source: str


def _mounts(path: str) -> Iterator[_Mount]:
    for line in (read_text(path) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) >= 5 and len(rest) >= 2:
            yield _Mount(fields[2], fields[4].replace("\\040", " "), rest[0], rest[1])


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
    """By the source of the innermost mount that the directory lies in."""
    real, best, source = os.path.realpath(directory), "", ""
    for mount in _mounts(mounts):
        if f"{real}/".startswith(mount.point.rstrip("/") + "/") and len(mount.point) >= len(best):
            best, source = mount.point, mount.source
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
