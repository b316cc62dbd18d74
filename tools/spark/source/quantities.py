"""Times and sizes as options of a read have them: a number and a unit."""

from __future__ import annotations

import re
from typing import Final

from ....protocol.limits import KIB, MIB
from ..sink.write_options import OptionError

_UNITS_MS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES: Final = {"": 1, "b": 1, "k": KIB, "kb": KIB, "m": MIB, "mb": MIB, "g": KIB * MIB, "gb": KIB * MIB}
_QUANTITY: Final = re.compile(r"(\d+)\s*([a-z]*)")


def read_duration_ms(option: str, text: str) -> int:
    """Of a time; without a unit it is in ms. OptionError."""
    match = _QUANTITY.fullmatch(text.lower())
    unit = match and _UNITS_MS.get(match[2] or "ms")
    if match is None or unit is None:
        raise OptionError(f"option {option} is {text!r}, expected a time such as 500ms, 10s, 15m or 1h")
    return int(int(match[1]) * unit)


def read_size(option: str, text: str, least: int, most: int) -> int:
    """Of bytes, in these bounds, both inclusive. OptionError."""
    match = _QUANTITY.fullmatch(text.lower())
    unit = match and _UNITS_BYTES.get(match[2])
    if match is None or unit is None or not least <= int(match[1]) * unit <= most:
        raise OptionError(f"option {option} is {text!r}, expected bytes from {least} to {most}, such as 64m or 4194304")
    return int(match[1]) * unit
