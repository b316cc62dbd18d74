"""Small JSON files that are written as a whole: `{"format_version": n, ..., "crc32c": c}`, where `crc32c` is that of the
document without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ....protocol.records.crc32c import crc32c
from ..errors import UNREADABLE_JSON, CheckpointError

T = TypeVar("T")

FORMAT_VERSION: Final = 1
CHECKSUM_KEY: Final = "crc32c"


def encode_checked(fields: Mapping[str, Any]) -> bytes:
    document: dict[str, Any] = {"format_version": FORMAT_VERSION, **fields}
    document[CHECKSUM_KEY] = _checksum(document)
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_checked(path: str, data: bytes, read: Callable[[dict[str, Any]], T], *, remedy: str) -> T:
    """What `read` makes of the document. Raises CheckpointError naming the file and what is wrong with it, never its content;
    also where `read` raises one of UNREADABLE_JSON."""
    try:
        document = json.loads(data)
        version = document["format_version"]
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {version}, {FORMAT_VERSION} is known: a newer triolog wrote it, or it is "
                f"damaged; {remedy}"
            )
        found = document.pop(CHECKSUM_KEY)
        if found != (computed := _checksum(document)):
            raise CheckpointError(f"{path} has {CHECKSUM_KEY} {found}, its content has {computed}: {remedy}")
        return read(document)
    except UNREADABLE_JSON as exc:
        raise CheckpointError(f"{path} cannot be read ({type(exc).__name__}); {remedy}") from None


def _checksum(document: Mapping[str, Any]) -> int:
    return crc32c(json.dumps(document, indent=1).encode())
