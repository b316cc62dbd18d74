"""How large each file may be that is read whole: the one place that knows. Reading it and writing it go by the same number, so
nothing is written that cannot be read again.

A name that is not listed here has no limit of its own; whoever reads it names one.
"""

from __future__ import annotations

import os
from typing import Final

from ....protocol.limits import MIB
from ..errors import FileTooLargeError

PREVIOUS_SUFFIX: Final = ".previous"
"""Of the copy of a file as it was before its last change."""

MAX_CHECKPOINT_BYTES: Final = 64 * MIB
MAX_CHECKPOINT_ENTRIES: Final = 1_000_000
"""Ten times what a broker with many partitions has; reading them takes some seconds and half a GiB of memory."""
MAX_SNAPSHOT_BYTES: Final = 64 * MIB
MAX_BATCHES_BYTES: Final = 256 * MIB
"""Four batches of each of two million producers: more than a snapshot of the largest size has."""
MAX_SECURITY_BYTES: Final = 256 * MIB
MAX_GROUPS_BYTES: Final = 64 * MIB
MAX_CLIENT_METRICS_BYTES: Final = MIB
MAX_BROKERS_BYTES: Final = MIB

LIMITS: Final[dict[str, int]] = {
    "topics.json": MAX_CHECKPOINT_BYTES,
    "topics-in-creation.json": MAX_CHECKPOINT_BYTES,
    "security.json": MAX_SECURITY_BYTES,
    "groups.json": MAX_GROUPS_BYTES,
    "client-metrics.json": MAX_CLIENT_METRICS_BYTES,
    "brokers.json": MAX_BROKERS_BYTES,
    "meta.properties": MAX_CHECKPOINT_BYTES,
    ".kafka_cleanshutdown": MAX_CHECKPOINT_BYTES,
    "recovery-point-offset-checkpoint": MAX_CHECKPOINT_BYTES,
    "replication-offset-checkpoint": MAX_CHECKPOINT_BYTES,
    "log-start-offset-checkpoint": MAX_CHECKPOINT_BYTES,
    "cleaner-offset-checkpoint": MAX_CHECKPOINT_BYTES,
    "producer-id-block": MAX_CHECKPOINT_BYTES,
    "partition.metadata": MAX_CHECKPOINT_BYTES,
    "leader-epoch-checkpoint": MAX_CHECKPOINT_BYTES,
    "quarantine-checkpoint": MAX_CHECKPOINT_BYTES,
    "derived.json": MAX_CHECKPOINT_BYTES,
}
"""Largest size in bytes, by the name of the file."""
LIMITS_BY_SUFFIX: Final[dict[str, int]] = {".snapshot": MAX_SNAPSHOT_BYTES, ".batches": MAX_BATCHES_BYTES}
"""The same for files that are named after an offset."""

_OFFSET_LINE_BYTES: Final = len(" 2147483647 9223372036854775807\n")


def limit_of(path: str) -> int | None:
    """The largest size of a file in bytes; None where its name is not known."""
    name = os.path.basename(path).removesuffix(PREVIOUS_SUFFIX)
    return LIMITS.get(name, LIMITS_BY_SUFFIX.get(os.path.splitext(name)[1]))


def check_size(path: str, size: int) -> None:
    """Raises FileTooLargeError when a file of this size could not be read again."""
    limit = limit_of(path)
    if limit is not None and size > limit:
        raise FileTooLargeError(f"{os.path.basename(path)} would have {size} bytes, at most {limit} can be read again")


def offset_lines_bytes(topic: str, partitions: int) -> int:
    """What a topic adds to a checkpoint at most, whatever its offsets become."""
    return (len(topic) + _OFFSET_LINE_BYTES) * partitions


def check_offset_checkpoints(size: int, entries: int) -> None:
    """Raises FileTooLargeError when a checkpoint of this many partitions, with `offset_lines_bytes` of all topics, could not be
    read again."""
    check_size("recovery-point-offset-checkpoint", size)
    if entries > MAX_CHECKPOINT_ENTRIES:
        raise FileTooLargeError(
            f"there would be {entries} partitions, checkpoints of {MAX_CHECKPOINT_ENTRIES} can be read again"
        )
