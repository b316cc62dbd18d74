from __future__ import annotations

from typing import Any, Final

from triolog.tools.cli.top.view import wear_lines

NOTHING_TOLD: Final = (
    *("device", "disk_written_bytes", "disk_bytes_per_second", "disk_bytes_per_appended_byte", "lifetime_written_bytes"),
    *("life_used_percent", "pre_eol", "days_left", "full_in_s"),
)
UNKNOWN: dict[str, Any] = {"path": "/memory", "disks": [], **dict.fromkeys(NOTHING_TOLD)}
KNOWN: dict[str, Any] = {
    **UNKNOWN,
    "path": "/data",
    "device": "mmcblk0p2",
    "disks": ["mmcblk0"],
    "disk_written_bytes": 2048,
    "disk_bytes_per_second": 1024.0,
    "disk_bytes_per_appended_byte": 4.5,
    "lifetime_written_bytes": 4096,
    "life_used_percent": 20,
    "pre_eol": "warning",
    "days_left": 400.0,
}


def told(*directories: dict[str, Any], process: int | None = None, rate: float | None = None) -> list[tuple[str, str]]:
    return list(
        wear_lines(
            {
                "process_written_bytes": process,
                "process_bytes_per_second": rate,
                "process_bytes_per_appended_byte": rate,
                "directories": list(directories),
            }
        )
    )


def test_everything_that_is_known_is_said() -> None:
    wear = "mmcblk0: 4.0 KiB written, 1.0 KiB/s, 4.50 x the appended bytes; 20 % of its life used, blocks in reserve: warning"
    assert told(KNOWN, process=1024, rate=2.0) == [
        ("written", "1.0 KiB by the process, 2 B/s, 2.00 x the appended bytes"),
        ("wear", f"{wear}; lasts 1.1 years"),
    ]


def test_a_disk_is_one_line_and_says_when_it_tells_nothing() -> None:
    assert [label for label, _ in told(KNOWN, {**KNOWN, "path": "/other"})] == ["wear"]
    assert told(UNKNOWN) == []
    assert told({**UNKNOWN, "disks": ["sda"]}) == [("wear", "sda: reports nothing")]
