"""Moments between operations of a disk at which a cut shows the most.

| moment | begins with |
|---|---|
| roll | the creation of a segment |
| commit | a write to a log of the server: committed offsets, states of transactions and of share groups |
| stage | a write to the log of stage commits |
| marker | a write of the end of a transaction |
| checkpoint | the creation of a checkpoint, a snapshot of producers, or `derived.json` |
| swap | a rename in a compaction |
| deletion | a rename of a file that leaves its log |
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from triolog.protocol.records.batch import ATTRIBUTES_POSITION
from triolog.protocol.types import Bytes
from triolog.server.storage.disk.paths import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, SWAP_SUFFIX

MOMENTS: Final = ("roll", "commit", "stage", "marker", "checkpoint", "swap", "deletion")
CONTROL: Final = 1 << 5
"""Of the second byte of a batch's attributes."""


def of_creation(path: str) -> str | None:
    """Return the moment that begins with the creation of a file."""
    if path.endswith(LOG_SUFFIX):
        return "roll"
    whole = path.removesuffix(".tmp")
    return "checkpoint" if whole.endswith(("-checkpoint", "derived.json", SNAPSHOT_SUFFIX)) else None


def of_write(path: str, buffers: Sequence[Bytes]) -> str | None:
    """Return the moment that begins with a write."""
    if not path.endswith(LOG_SUFFIX):
        return None
    directory = os.path.basename(os.path.dirname(path))
    if directory.startswith("__"):
        return "stage" if directory.startswith("__stage_commits") else "commit"
    at = ATTRIBUTES_POSITION + 1
    return "marker" if any(len(buffer) > at and buffer[at] & CONTROL for buffer in buffers) else None


def of_rename(source: str, target: str) -> str | None:
    """Return the moment that begins with a rename."""
    if source.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
        return "swap"
    return "deletion" if target.endswith(DELETED_SUFFIX) else None
