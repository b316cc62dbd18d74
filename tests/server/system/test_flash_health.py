"""What flash disks say of their wear, read from a tree like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.server.system.block_devices import FlashHealth, flash_health

from tests.support.fake_sysfs import FakeSysfs


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
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
def test_an_emmc_tells_tenths_and_its_reserve(sysfs: FakeSysfs, life_time: str, pre_eol: str, health: FlashHealth) -> None:
    device = sysfs.disk("mmcblk0", "179:0") / "device"
    (device / "life_time").write_text(life_time)
    (device / "pre_eol_info").write_text(pre_eol)
    assert flash_health("mmcblk0", sysfs=sysfs.path) == health


@pytest.mark.parametrize("folder", [".", "hwmon1", "hwmon/hwmon3"])
@pytest.mark.parametrize(("told", "percent"), [("3\n", 3), ("0\n", 0), ("140%\n", 140), ("256", None), ("-1", None)])
def test_an_nvme_tells_percent_where_there_is_a_file(sysfs: FakeSysfs, folder: str, told: str, percent: int | None) -> None:
    device = sysfs.disk("nvme0n1", "259:0") / "device"
    (device / folder).mkdir(parents=True, exist_ok=True)
    (device / folder / "percentage_used").write_text(told)
    assert flash_health("nvme0n1", sysfs=sysfs.path) == FlashHealth(life_used_percent=percent)


def test_a_disk_that_says_nothing_has_no_health(sysfs: FakeSysfs) -> None:
    sysfs.disk("sda", "8:0")
    assert flash_health("sda", sysfs=sysfs.path) == flash_health("missing", sysfs=sysfs.path) == FlashHealth()
