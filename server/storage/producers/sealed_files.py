"""What both files of producer state begin with: a version, and a CRC of all that follows.

| position | bytes | field |
|---:|---:|---|
| 0 | 2 | version |
| 2 | 4 | CRC-32C of everything from position 6 on, unsigned |
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ....protocol.records.crc32c import crc32c
from ..errors import CorruptSnapshotError

_PREFIX: Final = Struct(">hI")


def seal(version: int, content: bytes) -> bytes:
    """The file with this content."""
    return _PREFIX.pack(version, crc32c(content)) + content


def crc_of(data: bytes) -> int:
    """The CRC that a file carries."""
    _, crc = _PREFIX.unpack_from(data)
    return int(crc)


def unseal(path: str, data: bytes, version: int, smallest: int) -> memoryview:
    """The content, of at least `smallest` bytes. Raises CorruptSnapshotError."""
    if len(data) < _PREFIX.size + smallest:
        raise CorruptSnapshotError(f"{path} has {len(data)} bytes, the smallest of its kind has {_PREFIX.size + smallest}")
    found, crc = _PREFIX.unpack_from(data)
    content = memoryview(data)[_PREFIX.size :]
    if found != version:
        raise CorruptSnapshotError(f"{path} has version {found}, {version} is known")
    if (computed := crc32c(content)) != crc:
        raise CorruptSnapshotError(f"{path} carries CRC {crc:#010x}, its bytes have {computed:#010x}")
    return content
