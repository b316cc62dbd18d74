"""The position in a followed file, and how the file is recognised again. No files are opened here.

A position says that all bytes before `offset` are stored as records. A name does not identify a file, because files are
renamed, and neither does an inode, because it is used again. So a position has device and inode, and digests of the first
bytes (`head`) and of the last bytes before `offset` (`tail`), CHECKED_BYTES each at most. A file with the inode whose bytes
differ there was truncated, or is another one.

A power cut may take the end of a file, so a position also has earlier offsets, `marks`, with the digests of the bytes before
them. The link continues at the newest one that the file still has, and stores the lines after it again.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, Final

import attrs

CHECKED_BYTES: Final = 1024
DIGEST_BYTES: Final = 16
MAX_MARKS: Final = 8
MARK_S: Final = 10.0
"""Between two marks, at least. Linux writes a change to the disk after 35 s at most, by its defaults."""

Mark = tuple[int, bytes]
"""An offset, and the digest of the bytes before it."""


@attrs.frozen
class FileId:
    """The device and inode of a file."""

    device: int
    inode: int


@attrs.frozen(kw_only=True)
class FilePosition:
    """The place where a link continues in a file. It is the value of a record in the topic of positions."""

    file: FileId
    path: str
    """The name under which programs write to it, or wrote before it was renamed or copied."""
    offset: int
    head: bytes
    """Digest of the first `checked` bytes."""
    tail: bytes
    """Digest of the last `checked` bytes before `offset`."""
    marks: tuple[Mark, ...] = ()
    """Ascending; each is at least CHECKED_BYTES."""

    @property
    def checked(self) -> int:
        """Return the number of bytes at each end that the digests cover."""
        return min(CHECKED_BYTES, self.offset)

    def encode(self) -> bytes:
        document = {
            "device": self.file.device,
            "inode": self.file.inode,
            "path": self.path,
            "offset": self.offset,
            "head": self.head.hex(),
            "tail": self.tail.hex(),
            "marks": [(offset, tail.hex()) for offset, tail in self.marks],
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, data: bytes) -> FilePosition:
        """Raises ValueError."""
        try:
            document: dict[str, Any] = json.loads(data)
            return cls(
                file=FileId(int(document["device"]), int(document["inode"])),
                path=str(document["path"]),
                offset=int(document["offset"]),
                head=bytes.fromhex(document["head"]),
                tail=bytes.fromhex(document["tail"]),
                marks=tuple((int(offset), bytes.fromhex(tail)) for offset, tail in document.get("marks", ())),
            )
        except (ValueError, TypeError, KeyError) as exc:
            raise ValueError(f"not a position: {type(exc).__name__}: {exc}") from exc


def position_key(link: str, file: FileId) -> bytes:
    """Return the key of a position in the topic."""
    return f"{link}/{file.device}/{file.inode}".encode()


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
