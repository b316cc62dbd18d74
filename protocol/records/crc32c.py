"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of a record batch.

`crc32c(data, crc=0)` answers the unsigned checksum of `data`, continued from `crc`, the checksum of what came before it. The
work is done by the `crc32c` package: the processor's instruction where there is one, slicing-by-8 elsewhere.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
