"""A tree as the kernel shows it in /sys: disks, partitions of them, and devices made of others."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class FakeSysfs:
    """Made in `root`, whose path stands for /sys."""

    root: Path

    @property
    def path(self) -> str:
        return str(self.root)

    def disk(self, name: str, number: str, written_bytes: int = 0) -> Path:
        """A disk with that device number; answers its folder."""
        folder = self.root / "devices" / name / "block" / name
        (folder / "device").mkdir(parents=True)
        self._add(folder, name, number)
        self.write(name, written_bytes)
        return folder

    def partition(self, disk: str, name: str, number: str) -> None:
        folder = self.root / "devices" / disk / "block" / disk / name
        folder.mkdir()
        (folder / "partition").write_text("1\n")
        self._add(folder, name, number)

    def mapped(self, name: str, number: str, *slaves: str) -> None:
        """A device that is made of others."""
        folder = self.root / "devices/virtual/block" / name
        (folder / "slaves").mkdir(parents=True)
        for slave in slaves:
            (folder / "slaves" / slave).symlink_to((self.root / "class/block" / slave).resolve())
        self._add(folder, name, number)

    def write(self, disk: str, total_bytes: int) -> None:
        """What the disk's counter says from now on."""
        counters = [0, 0, 0, 0, 7, 8, total_bytes // 512, 9, 0, 10, 11]
        stat = self.root / "class/block" / disk / "stat"
        stat.write_text("  ".join(map(str, counters)) + "\n")

    def lifetime(self, device: str, kib: int, kind: str = "ext4") -> None:
        folder = self.root / "fs" / kind / device
        folder.mkdir(parents=True)
        (folder / "lifetime_write_kbytes").write_text(f"{kib}\n")

    def _add(self, folder: Path, name: str, number: str) -> None:
        for link in (self.root / "class/block" / name, self.root / "dev/block" / number):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder)
