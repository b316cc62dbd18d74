"""Which disks lie below a directory, and what they have written, read from a tree like the kernel's. What flash disks say of
their wear, read from a tree like the kernel's. Forcing a whole file system to the device: when it stands for single syncs, and
when it does not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.system import block_devices
from triolog.server.system.block_devices import (
    FEWEST,
    WORTH_BYTES,
    BlockDevice,
    DeviceSync,
    FlashHealth,
    device_of,
    dirty_bytes,
    flash_health,
    lifetime_written_bytes,
    numbered_device,
    open_whole_sync,
    written_bytes,
)

from tests.support.fake_sysfs import FakeSysfs


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    fake = FakeSysfs(tmp_path / "sys")
    fake.disk("mmcblk0", "179:0", 4096 * 512)
    fake.partition("mmcblk0", "mmcblk0p2", "179:2")
    fake.disk("sda", "8:0")
    fake.partition("sda", "sda1", "8:1")
    return fake


def test_a_device_lies_on_the_disks_below_all_layers(sysfs: FakeSysfs) -> None:
    """A partition, a disk, a device over a RAID, one over nothing, one that is made of itself; and a number of no device."""
    sysfs.mapped("md0", "9:0", "mmcblk0p2", "sda1")
    sysfs.mapped("dm-0", "253:0", "md0")
    sysfs.mapped("dm-1", "253:1")
    sysfs.mapped("dm-2", "253:2")
    folder = sysfs.root / "devices/virtual/block/dm-2"
    (folder / "slaves/dm-2").symlink_to(folder)
    for major, minor, name, disks in (
        (179, 2, "mmcblk0p2", ("mmcblk0",)),
        (179, 0, "mmcblk0", ("mmcblk0",)),
        (253, 0, "dm-0", ("mmcblk0", "sda")),
        (253, 1, "dm-1", ("dm-1",)),
        (253, 2, "dm-2", ("dm-2",)),
    ):
        assert numbered_device(major, minor, sysfs=sysfs.path) == BlockDevice(name, disks)
    assert numbered_device(0, 47, sysfs=sysfs.path) is None


def test_a_directory_is_found_by_the_number_of_its_file_system_if_that_has_a_disk(tmp_path: Path, sysfs: FakeSysfs) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:30 / / rw - overlay overlay rw\n")
    assert device_of(str(tmp_path), sysfs=sysfs.path, mounts=str(mounts)) is None
    assert device_of(str(tmp_path), sysfs=sysfs.path, mounts=str(tmp_path / "missing")) is None
    number = os.stat(tmp_path).st_dev
    sysfs.disk("found", f"{os.major(number)}:{os.minor(number)}")
    assert device_of(str(tmp_path), sysfs=sysfs.path) == BlockDevice("found", ("found",))
    assert device_of(str(tmp_path / "missing"), sysfs=sysfs.path) is None


def test_a_number_of_a_file_system_s_own_is_looked_up_by_its_innermost_mount(tmp_path: Path, sysfs: FakeSysfs) -> None:
    mounts = tmp_path / "mountinfo"
    inner = str(tmp_path / "with space").replace(" ", "\\040")
    mounts.write_text(
        "22 1 0:30 / / rw - btrfs /dev/sda1 rw\n"
        f"23 22 0:31 / {inner} rw,relatime shared:1 - btrfs /dev/mmcblk0p2 rw\n"
        f"24 22 0:32 / {tmp_path}/wit rw - tmpfs tmpfs rw\n"
        "a line of another kind\n"
    )
    directory = tmp_path / "with space" / "data"
    directory.mkdir(parents=True)
    assert device_of(str(directory), sysfs=sysfs.path, mounts=str(mounts)) == BlockDevice("mmcblk0p2", ("mmcblk0",))
    assert device_of(str(tmp_path), sysfs=sysfs.path, mounts=str(mounts)) == BlockDevice("sda1", ("sda",))


def test_written_bytes_are_sectors_of_512(sysfs: FakeSysfs) -> None:
    assert written_bytes("mmcblk0", sysfs=sysfs.path) == 4096 * 512


@pytest.mark.parametrize("told", ["", "1 2 3", "1 2 3 4 5 6 seven 8"])
def test_a_counter_that_cannot_be_read_is_not_known(sysfs: FakeSysfs, told: str) -> None:
    (sysfs.root / "class/block/sda/stat").write_text(told)
    assert written_bytes("sda", sysfs=sysfs.path) is None
    assert written_bytes("missing", sysfs=sysfs.path) is None


@pytest.mark.parametrize("kind", ["ext4", "f2fs"])
def test_a_file_system_that_counts_for_its_life_tells_it(sysfs: FakeSysfs, kind: str) -> None:
    sysfs.lifetime("mmcblk0p2", 3, kind)
    assert lifetime_written_bytes("mmcblk0p2", sysfs=sysfs.path) == 3072
    assert lifetime_written_bytes("sda1", sysfs=sysfs.path) is None


@pytest.fixture
def bare_sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "sys")


@pytest.mark.parametrize(
    ("life_time", "pre_eol", "health"),
    [
        ("0x01 0x02\n", "0x01\n", FlashHealth(life_used_percent=20, pre_eol="normal")),
        ("0x0a 0x00\n", "0x02\n", FlashHealth(life_used_percent=100, pre_eol="warning")),
        ("0x0b 0x0b\n", "0x03\n", FlashHealth(life_used_percent=110, pre_eol="urgent")),
        ("0x00 0x00\n", "0x00\n", FlashHealth()),
        ("0xff nonsense\n", "nonsense\n", FlashHealth()),
        ("", "", FlashHealth()),
    ],
)
def test_an_emmc_tells_tenths_and_its_reserve(bare_sysfs: FakeSysfs, life_time: str, pre_eol: str, health: FlashHealth) -> None:
    device = bare_sysfs.disk("mmcblk0", "179:0") / "device"
    (device / "life_time").write_text(life_time)
    (device / "pre_eol_info").write_text(pre_eol)
    assert flash_health("mmcblk0", sysfs=bare_sysfs.path) == health


@pytest.mark.parametrize("folder", [".", "hwmon1", "hwmon/hwmon3"])
@pytest.mark.parametrize(("told", "percent"), [("3\n", 3), ("0\n", 0), ("140%\n", 140), ("256", None), ("-1", None)])
def test_an_nvme_tells_percent_if_there_is_a_file(bare_sysfs: FakeSysfs, folder: str, told: str, percent: int | None) -> None:
    device = bare_sysfs.disk("nvme0n1", "259:0") / "device"
    (device / folder).mkdir(parents=True, exist_ok=True)
    (device / folder / "percentage_used").write_text(told)
    assert flash_health("nvme0n1", sysfs=bare_sysfs.path) == FlashHealth(life_used_percent=percent)


def test_a_disk_that_says_nothing_has_no_health(bare_sysfs: FakeSysfs) -> None:
    bare_sysfs.disk("sda", "8:0")
    assert flash_health("sda", sysfs=bare_sysfs.path) == flash_health("missing", sysfs=bare_sysfs.path) == FlashHealth()


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


def test_without_a_count_more_is_dirty_than_anything_is_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_devices, "MEMORY", str(tmp_path / "meminfo"))
    assert dirty_bytes() > 2**60
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nDirty:  12 kB\nWriteback: 3 kB\n")
    assert dirty_bytes() == 15 * 1024
