"""Opening a log as after a crash, again and again: every time the recovery point is said to be its start."""

from __future__ import annotations

import time

from ....protocol.types import TopicPartition
from ....server.config import LogConfig
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.recovery.recovery import OpenLog, open_log
from ....server.system.clock import system_now_ms
from ..measuring.child import LoadFailedError
from .tools import measured


def recover_log(*, directory: str, end_offset: int) -> dict[str, float]:
    """Every batch is checked, indexes and the producers' snapshot are made anew, and all of it is forced to the device."""
    request = OpenLog(
        topic_partition=TopicPartition("crashed", 0),
        directory=directory,
        config=LogConfig(),
        now_ms=system_now_ms,
        was_clean=False,
    )
    started = time.perf_counter()
    log = open_log(OsFileSystem(), request)
    answer = measured(started)
    if log.log_end_offset != end_offset:
        raise LoadFailedError(f"the log was recovered up to offset {log.log_end_offset}, {end_offset} records were appended")
    return answer
