"""A new leader of a partition: its epoch begins where the log ends."""

from __future__ import annotations

from ..disk.diskops import Procedure
from .log import Log


def raise_leader_epoch(log: Log) -> Procedure[int]:
    """Begin the epoch above the latest one; batches that are appended from now on carry it. The log changes when the file
    does."""
    epoch = log.leader_epoch + 1
    log.leader_epochs.assign(epoch, log.log_end_offset)
    yield from log.write_leader_epochs()
    log.changed()
    return epoch
