"""A partition's directory with one file that is anything: opened as after a clean stop and as after a kill.

The first byte says which file the rest stands in the place of, the second one's lowest bit whether the stop was clean. The log
opens, or is refused by an error that names a file. No other segment loses a byte; and what has opened opens again as the same.
Unless a log was replaced, the records that are served, found by their time and deleted are those that a scan of the logs gives.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from typing import Final

import attrs
from triolog.protocol.errors import CorruptRecordError
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.server.config import LogConfig
from triolog.server.storage.disk.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.paths import LOG_SUFFIX, segment_file
from triolog.server.storage.errors import StorageError
from triolog.server.storage.log.log import Log
from triolog.server.storage.log.prepare import prepare_marker
from triolog.server.storage.log.retention import expire_segments
from triolog.server.storage.lookups.timestamps import offset_for_timestamp
from triolog.server.storage.recovery.recovery import OpenLog, open_log

from tests.fuzzing.target import BrokenInvariantError, Target, require
from tests.support import crash_fs, logs
from tests.support.altered_files import ENTRIES, EPOCHS, FACTS, altered

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
    crash_fs.put(fs, f"{DIRECTORY}/{PARTITION_METADATA_FILE}", encode_partition_metadata(uuid.UUID(int=5000)))
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
    crash_fs.put(fs, f"{DIRECTORY}/{segment_file(5, LOG_SUFFIX)}", bytes(damaged))
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
    crash_fs.put(fs, f"{DIRECTORY}/{name}", data[2:])
    before = crash_fs.logs_of(fs)
    log = _opened(fs, data, whole.end_offset if was_clean else None)
    files = fs.tree()
    kept = set(files.values())
    for path, content in before.items():
        other = path.rpartition("/")[2] != name
        found = files.get(path, b"")  # a marker is added behind a gap at the end
        require(not other or found.startswith(content) or content in kept, f"{path} has lost bytes: {data.hex()}")
    if log is None:
        return False
    if not name.endswith(LOG_SUFFIX):
        check_against_scan(fs, log, data)
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


def check_against_scan(fs: crash_fs.CrashFileSystem, log: Log, data: bytes) -> None:
    """Compare what a reader gets, and what retention takes, with a scan of the logs."""
    stored = [
        (segment.base_offset, list(iter_batches(fs.content(segment.log.path)))) for segment in log.segments if segment.size
    ]
    batches = [found for _, each in stored for found in each if found[0].last_offset >= log.log_start_offset]
    records = [
        record
        for header, batch in batches
        for record in (iter_records(batch, header) if header.records_count else ())
        if record.offset >= log.log_start_offset
    ]
    controls = {
        offset for header, _ in batches if header.is_control for offset in range(header.base_offset, header.next_offset)
    }
    snapshot = log.snapshot()
    served = logs.read_all(fs, snapshot, skip_gaps=True)
    require(served == [each for each in records if each.offset not in controls], f"other records are served: {data.hex()}")
    for time in {each.timestamp for each in records if each.timestamp >= 0}:
        expected = next(each.offset for each in records if each.timestamp >= time)
        found = drive(fs, offset_for_timestamp(snapshot, time)).offset
        require(found == expected, f"timestamp {time} is found at offset {found}, and is at {expected}: {data.hex()}")
    largest = max((each.timestamp for each in records), default=-1)
    before = log.log_start_offset
    drive(fs.copy(), expire_segments(log, largest + log.config.retention_ms))
    require(log.log_start_offset == before, f"retention deletes young records: {data.hex()}")


def seeds() -> Iterator[bytes]:
    """Every file as it is, and each derived one with each of its fields altered."""
    for number, name in enumerate(base().names):
        content = base().fs.content(f"{DIRECTORY}/{name}")
        for clean in (0, CLEAN):
            yield bytes([number, clean]) + content
        if name.endswith(tuple(ENTRIES)) or name in (EPOCHS, FACTS):
            for _, changed in altered(name, content) if content else ():
                if changed is not None:
                    yield bytes([number, CLEAN]) + changed


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
