"""Which disks lie below a directory, and what they have written, read from a tree like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from triolog.server.system.block_devices import (
    BlockDevice,
    device_of,
    lifetime_written_bytes,
    numbered_device,
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


def test_a_directory_is_found_by_the_number_of_its_file_system(tmp_path: Path, sysfs: FakeSysfs) -> None:
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


def test_a_file_system_without_a_disk_has_none(tmp_path: Path, sysfs: FakeSysfs) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:30 / / rw - overlay overlay rw\n")
    assert device_of(str(tmp_path), sysfs=sysfs.path, mounts=str(mounts)) is None
    assert device_of(str(tmp_path), sysfs=sysfs.path, mounts=str(tmp_path / "missing")) is None


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
