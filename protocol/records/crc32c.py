"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of a record batch.

The work is done by the `crc32c` package: the processor's instruction where there is one, slicing-by-8 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from crc32c import crc32c as _crc32c

crc32c: Final[Callable[..., int]] = _crc32c
"""(data, crc=0) -> the unsigned checksum of `data`, continued from `crc` (the checksum of what came before it)."""
