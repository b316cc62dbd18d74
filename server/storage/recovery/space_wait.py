"""A log that cannot be opened because its device is full: it is opened in memory, serves reads, and waits for space.

Opening writes: indexes to rebuild, snapshots of producers, what is set aside of a torn append, a segment. When the device
refuses that, the log is opened once more on a `MemoryOverlay`: what would be written stays in memory, files as they are. It
ends where the next opening lets it end, because both look at the same bytes; what was scanned is forced to the device for
real, so nothing is read that a power cut could take back. The recovery point stays what the checkpoint says, because below it
the next opening would trust indexes that are in memory only.
"""

from __future__ import annotations

import logging
from typing import Final

from ..disk.memory_overlay import MemoryOverlay
from ..errors import WaitsForSpaceError
from ..log.log import Log
from .recovery import OpenLog, open_log

LOGGER: Final = logging.getLogger(__name__)


def open_in_memory(overlay: MemoryOverlay, request: OpenLog, why: OSError) -> Log:
    """The log of `request`, for readers. Blocks. Raises what `open_log` raises, ENOSPC where memory has no room for it either;
    then nothing is kept."""
    LOGGER.warning(
        "%s waits for space: %s; it is opened in memory, and what is said of its files now is done there",
        request.topic_partition,
        why,
    )
    try:
        log = open_log(overlay, request)
    except BaseException:
        overlay.drop(request.directory)
        raise
    log.recovery_point = max(log.log_start_offset, min(request.recovery_point, log.log_end_offset))
    log.waiting = waiting_error(log, why)
    return log


def waiting_error(log: Log, why: Exception) -> WaitsForSpaceError:
    """What appends to a log that waits are answered."""
    return WaitsForSpaceError(
        f"{log.topic_partition} waits for space: {log.directory} could not be opened for appends ({why}); nothing of the "
        "append is stored, reads are served; free space on that device, the server goes on without a restart"
    )
