"""A partition's directory with one file that is anything: opened as after a clean stop and as after a kill.

The first byte says which file the rest stands in the place of, the second one's lowest bit whether the stop was clean. The log
opens, or is refused by an error that names a file. No other segment loses a byte; and what has opened opens again as the same.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from typing import Final

import attrs
from triolog.protocol.errors import CorruptRecordError
from triolog.server.config import LogConfig
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.paths import LOG_SUFFIX, segment_file
from triolog.server.storage.errors import StorageError
from triolog.server.storage.log.log import Log
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.storage.recovery.recovery import OpenLog, open_log

from tests.fuzzing.target import BrokenInvariantError, Target, require
from tests.support import crash_fs, logs, memory_image

DIRECTORY: Final = f"/logs/{logs.TOPIC_PARTITION}"
CONFIG: Final = LogConfig().overlay({"index.interval.bytes": "100", "segment.index.bytes": "240"})
CLEAN: Final = 1
KILLED_RECOVERY_POINT: Final = 8
_ABORTED: Final = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}


@attrs.frozen
class Base:
    """The directory as it was left, and the names of its files."""

    fs: crash_fs.CrashFileSystem
    names: tuple[str, ...]
    end_offset: int


@functools.cache
def base() -> Base:
    """Three segments with aborted transactions, an idempotent producer and a gap, stopped in order."""
    fs = crash_fs.CrashFileSystem()
    driven = logs.open_driven(DIRECTORY, fs=fs, config=CONFIG)
    memory_image.put(fs, f"{DIRECTORY}/{PARTITION_METADATA_FILE}", encode_partition_metadata(uuid.UUID(int=5000)))
    for number in range(3):
        driven.append(logs.batch(logs.START_MS + number, value=b"plain", key=b"key"))
        driven.append(logs.batch(*[logs.START_MS + number] * 2, producer_id=3, producer_epoch=0, base_sequence=2 * number))
        driven.append(logs.batch(logs.START_MS + 9, base_sequence=number, **_ABORTED))
        end = prepare_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=logs.START_MS)
        driven.append_group([end])
        if number < 2:
            driven.roll()
    driven.close()
    damaged = bytearray(fs.content(f"{DIRECTORY}/{segment_file(5, LOG_SUFFIX)}"))
    damaged[70] ^= 1
    memory_image.put(fs, f"{DIRECTORY}/{segment_file(5, LOG_SUFFIX)}", bytes(damaged))
    driven = driven.reopen(was_clean=False)
    driven.close()
    fs.end_process()
    names = tuple(path.rpartition("/")[2] for path in fs.tree() if not path.endswith("/"))
    return Base(fs, names, driven.log.log_end_offset)


def feed(data: bytes) -> bool:
    """See `Target.feed`: whether the log could be opened."""
    if len(data) < 2:
        return False
    whole, was_clean = base(), bool(data[1] & CLEAN)
    name, fs = whole.names[data[0] % len(whole.names)], whole.fs.copy()
    memory_image.put(fs, f"{DIRECTORY}/{name}", data[2:])
    before = memory_image.logs_of(fs)
    log = _opened(fs, data, whole.end_offset if was_clean else None)
    files = fs.tree()
    kept = set(files.values())
    for path, content in before.items():
        other = path.rpartition("/")[2] != name
        require(not other or files.get(path) == content or content in kept, f"{path} has lost bytes: {data.hex()}")
    if log is None:
        return False
    again = _opened(fs, data, log.log_end_offset)
    require(again is not None, f"it opens once and not again: {data.hex()}")
    assert again is not None
    ends = log.log_start_offset, log.log_end_offset
    require(ends == (again.log_start_offset, again.log_end_offset), f"it was {ends} and is {again}: {data.hex()}")
    return True


def _opened(fs: crash_fs.CrashFileSystem, data: bytes, clean_end: int | None) -> Log | None:
    """`clean_end`: what the checkpoint of a clean stop says; None after a kill."""
    request = OpenLog(
        topic_partition=logs.TOPIC_PARTITION,
        directory=DIRECTORY,
        config=CONFIG,
        now_ms=lambda: logs.START_MS,
        was_clean=clean_end is not None,
        recovery_point=KILLED_RECOVERY_POINT if clean_end is None else clean_end,
    )
    try:
        log = open_log(fs, request)
        log.check_invariant()
    except (StorageError, CorruptRecordError) as exc:
        require(DIRECTORY in str(exc), f"the refusal names no file: {exc}: {data.hex()}")
        return None
    except Exception as exc:
        raise BrokenInvariantError(f"{exc!r} is not documented: {data.hex()}") from exc
    return log


def seeds() -> Iterator[bytes]:
    """Every file as it is."""
    for number, name in enumerate(base().names):
        for clean in (0, CLEAN):
            yield bytes([number, clean]) + base().fs.content(f"{DIRECTORY}/{name}")


TARGET: Final = Target(
    name="opened-logs",
    feed=feed,
    seeds=seeds,
    modules=(
        "triolog.server.storage.recovery",
        "triolog.server.storage.indexes",
        "triolog.server.storage.producers",
        "triolog.server.storage.log",
        "triolog.server.storage.segments",
        "triolog.server.storage.disk.checkpoints",
    ),
    max_bytes=1024,
)
