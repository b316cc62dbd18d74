"""What logs cost the flash below them, as metrics."""

from __future__ import annotations

from triolog.server.broker import DirectoryWear, Rates, WearStatistics
from triolog.server.listeners.http.wear_metrics import wear_metrics
from triolog.server.system.block_devices import BlockDevice
from triolog.server.system.flash_health import FlashHealth

UNKNOWN = DirectoryWear(
    path="/memory",
    device=None,
    disk_written_bytes=None,
    lifetime_written_bytes=None,
    health=FlashHealth(),
    recent=Rates(),
    days_left=None,
)
KNOWN = DirectoryWear(
    path="/data",
    device=BlockDevice("mmcblk0p2", ("mmcblk0",)),
    disk_written_bytes=5000,
    lifetime_written_bytes=9000,
    health=FlashHealth(life_used_percent=20, pre_eol="warning"),
    recent=Rates(written_per_s=3.0, written_per_appended=4.5, full_in_s=60.0),
    days_left=2.0,
)


def told(process: int | None, rates: Rates, *directories: DirectoryWear) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by labels, by name."""
    statistics = WearStatistics(process_written_bytes=process, process=rates, longest_unsynced_ms=0.0, directories=directories)
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in wear_metrics(statistics)
    }


def test_what_is_known_is_told_by_directory() -> None:
    assert told(700, Rates(written_per_appended=1.5), KNOWN, UNKNOWN) == {
        "triolog_process_written_bytes": {(): 700},
        "triolog_process_bytes_per_appended_byte": {(): 1.5},
        "triolog_disk_written_bytes": {("/data", "mmcblk0"): 5000},
        "triolog_disk_bytes_per_appended_byte": {("/data",): 4.5},
        "triolog_disk_life_used_ratio": {("/data",): 0.2},
        "triolog_disk_seconds_left": {("/data",): 2 * 86_400},
        "triolog_directory_full_in_seconds": {("/data",): 60},
        "triolog_disk_pre_eol": {("/data", "warning"): 1},
    }


def test_what_is_not_known_has_no_sample() -> None:
    assert set(map(len, told(None, Rates(), UNKNOWN).values())) == {0}
