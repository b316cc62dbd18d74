"""A flipped bit in a file; one in a batch of a stopped log, and a stop that was none: the next start takes the batch out."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from triolog.protocol.records.batch import iter_batches
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE


def flip(path: Path, position: int) -> None:
    """Flip a bit of the byte at `position`; negative from the end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def damage_batch(data_dir: Path, partition: str, slot: int) -> tuple[int, int]:
    """Damage the batch at `slot` of a partition's first segment (`topic-0`). Answers its offsets, the end exclusive."""
    log = data_dir / partition / f"{0:020d}.log"
    batches = list(iter_batches(log.read_bytes()))
    header, _ = batches[slot]
    flip(log, list(accumulate(len(batch) for _, batch in batches))[slot] - 1)
    (data_dir / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    (data_dir / RECOVERY_POINT_FILE).unlink(missing_ok=True)
    return header.base_offset, header.next_offset
