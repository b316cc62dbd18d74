"""The tools that look inside, on a log that was written here: `verify`, `reindex`, and the plain checksum."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from ....protocol.limits import MIB
from ....protocol.records.batch import parse_header, stamp
from ....protocol.records.crc32c import crc32c
from ....server.config import LogConfig
from ....server.offline.findings import Quiet
from ....server.offline.repair import reindex
from ....server.offline.verify import verify
from ....server.storage.directory.inventory import read_directory
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.disk.paths import LOG_SUFFIX, segment_file
from ....server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ....server.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ....server.storage.producers.producer_state import ProducerState
from ..measuring.process import memory_mib
from ..measuring.wire import batch_of
from .sparse_log import STAMPED_BYTES

PARTITION: Final = "log-0"
BATCH_BYTES: Final = 16384


def write_log(*, directory: str, total_bytes: int, value_bytes: int) -> dict[str, int]:
    """A segment of batches of 16 KiB with records of `value_bytes`."""
    batch = batch_of(max(1, BATCH_BYTES // value_bytes), value_bytes)
    header, rest = parse_header(batch), batch[STAMPED_BYTES:]
    folder = Path(directory, PARTITION)
    folder.mkdir()
    (folder / LEADER_EPOCH_FILE).write_bytes(LeaderEpochs([EpochEntry(0, 0)]).encode())
    count = max(2, total_bytes // len(batch))
    with (folder / segment_file(0, LOG_SUFFIX)).open("wb") as file:
        for number in range(count):
            file.write(stamp(number * header.records_count, header, 0))
            file.write(rest)
    return {"bytes": count * len(batch), "records": count * header.records_count}


def reindex_log(*, directory: str) -> dict[str, float]:
    """Both indexes anew."""
    fs = OsFileSystem()
    started = time.perf_counter()
    for files in read_directory(fs, directory).partitions:
        outcomes = reindex(fs, files, LogConfig(), ProducerState(), lambda done: None)
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        assert not failures, failures
    return measured(started)


def verify_log(*, directory: str, walk: bool) -> dict[str, float]:
    """Every check; `walk`: every record too."""
    fs = OsFileSystem()
    started = time.perf_counter()
    verify(fs, read_directory(fs, directory), Quiet(), walk=walk)
    return measured(started)


def checksum_file(*, path: str) -> dict[str, float]:
    """What no check can be faster than: reading the file and its CRC-32C."""
    started = time.perf_counter()
    crc = 0
    with Path(path).open("rb", buffering=0) as file:
        while piece := file.read(MIB):
            crc = crc32c(piece, crc)
    return measured(started)


def measured(started: float) -> dict[str, float]:
    """Seconds from then on, and the most memory that this process had."""
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "memory_mib": memory_mib(os.getpid())["VmHWM"]}
