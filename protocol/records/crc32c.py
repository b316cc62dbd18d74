"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of a record batch.

The work is done by the `crc32c` package: the processor's instruction where there is one, slicing-by-8 elsewhere.
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c

from ..types import Bytes


def crc32c(data: Bytes, crc: int = 0) -> int:
    """Return the unsigned checksum of `data`, continued from `crc` (the checksum of what came before it)."""
    return _crc32c(data, crc)
