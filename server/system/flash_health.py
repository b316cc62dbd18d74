"""What a flash disk says of its own wear in sysfs (Linux), by files of its `device` folder.

| disk | file | meaning |
|---|---|---|
| eMMC | `life_time` | a number for each kind of cells. 1 to 10: at most so many tenths are used; 11: more; 0: not said |
| | `pre_eol_info` | blocks in reserve. 1: normal; 2: four fifths are used; 3: nine tenths; 0: not said |
| NVMe | `percentage_used` | there or in its `hwmon` folder, as in the SMART log: 100 is what the maker warrants, more can be |

The eMMC's are bytes 267 to 269 of EXT_CSD (JEDEC 84-B51, from eMMC 5.0 on). Linux's own NVMe driver has no such file; where
it is missing, `nvme smart-log` asks the disk, as root. SD cards and USB sticks say nothing.
"""

from __future__ import annotations

import os
from typing import Final

import attrs

from .block_devices import SYSFS, read_text

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
    """What a disk says. Blocks; an eMMC answers from what it said when it was found."""
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
