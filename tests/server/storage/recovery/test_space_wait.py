"""A log whose device is full when it is opened is read as after an opening that found space; the device stays as it is."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import attrs
import pytest
from triolog.protocol.types import Bytes, Isolation, TopicPartition
from triolog.server.config import LogConfig
from triolog.server.logs.waiting_logs import open_in_memory
from triolog.server.storage.disk.filesystem import FileSystem, replace_file
from triolog.server.storage.disk.memory_overlay import MemoryOverlay
from triolog.server.storage.disk.write_again import ATTEMPTS
from triolog.server.storage.errors import ErrorCode
from triolog.server.storage.recovery.recovery import OpenLog, open_log

from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem
from tests.support.inline_log import make_on_device
from tests.support.logs import START_MS, Clock, DrivenLog, batch, open_driven
from tests.support.stopped_logs import CONFIGS, fill_log

pytestmark = pytest.mark.merge  # cut off before each operation on the disk

DIRECTORY: Final = "/data/topic-0"
MOST_BYTES: Final = 1 << 16
STATES: Final = (
    "killed",
    "torn append",
    "no indexes",
    "no small files",
    "promised end is lost",
    "damage in the middle",
    "clean, an index is lost",
    "no log",
)


class FillingDevice:
    """Takes so many more writes that need room, then none."""

    def __init__(self, fs: CrashFileSystem, left: int) -> None:
        self.crash_fs = fs
        self.left = left

    @property
    def fs(self) -> FileSystem:
        return cast(FileSystem, self)

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        if position + sum(map(len, buffers)) > self.crash_fs.size(fd):
            self._take()
        self.crash_fs.write(fd, buffers, position)

    def make_directory(self, path: str) -> None:
        self._take()
        self.crash_fs.make_directory(path)

    def _take(self) -> None:
        if not self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.crash_fs, name)


@attrs.frozen
class Stopped:
    """A log that is not open, and what opens it."""

    fs: CrashFileSystem
    request: OpenLog


def stopped_log(state: str, seed: int) -> Stopped:
    fs, rng, clean = CrashFileSystem(), random.Random(seed), state.startswith("clean")
    driven = open_driven(DIRECTORY, fs=fs, config=LogConfig().overlay(CONFIGS | {"segment.index.bytes": "1200"}))
    promised = 0
    if state != "no log":
        fill_log(driven, rng)
        if clean or state == "promised end is lost":
            driven.close()
            promised = driven.log.log_end_offset
        else:
            driven.flush()
    files = {name: fs.content(f"{DIRECTORY}/{name}") for name in fs.list_directory(DIRECTORY)}
    active, size = driven.log.active.log.path.rpartition("/")[2], driven.log.active.size
    match state:
        case "torn append":
            files[active] = files[active][:size] + batch(START_MS, value=b"v" * 40)[:50]
        case "no indexes":
            files = {name: data for name, data in files.items() if not name.endswith("index")}
        case "no small files":
            files = {name: data for name, data in files.items() if name.endswith((".log", "index"))}
        case "promised end is lost":
            files[active] = files[active][: size // 2]
        case "damage in the middle":
            files[active] = files[active][:80] + b"damage" + files[active][86:]
        case "clean, an index is lost":
            del files[next(name for name in files if name.endswith(".index"))]
        case "no log":
            files = {}
    stopped = CrashFileSystem()
    make_on_device(stopped, DIRECTORY)
    for name, data in files.items():
        replace_file(stopped, f"{DIRECTORY}/{name}", data)
    request = OpenLog(
        topic_partition=TopicPartition("topic", 0),
        directory=DIRECTORY,
        config=driven.log.config,
        now_ms=Clock(),
        was_clean=clean,
        recovery_point=promised,
    )
    return Stopped(stopped, request)


def seen_in(fs: FileSystem, request: OpenLog, log: Any = None) -> dict[str, Any]:
    """What readers and the next append meet in a log."""
    driven = DrivenLog(fs, open_log(fs, request) if log is None else log, Clock())
    log = driven.log
    seen = {
        "offsets": (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset),
        "records": driven.records(skip_gaps=True),
        "committed": driven.records(Isolation.READ_COMMITTED, skip_gaps=True),
        "times": [driven.offset_for(START_MS + 5000 * number) for number in range(12)],
        "epochs": log.leader_epochs.entries,
        "gaps": [gap[:2] for gap in log.gaps],
        "producers": {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers.entries.values()},
        "segments": [(segment.base_offset, segment.size, segment.max_timestamp) for segment in log.segments],
    }
    driven.close_files()
    log.drop_maps()
    return seen


def openings_without_space(stopped: Stopped) -> Iterator[tuple[FillingDevice, OSError]]:
    """The device after each opening that found room for 0, 1, 2 ... writes and not for the next one."""
    for left in range(1000):
        device = FillingDevice(stopped.fs.copy(), left)
        try:
            open_log(device.fs, stopped.request)
        except OSError as exc:
            yield device, exc
        else:
            assert left, "nothing is written, so nothing is tested"
            return
    raise AssertionError("an opening writes a thousand times")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("seed", seeds(10))
def test_wherever_space_runs_out_the_log_is_read_as_with_space_and_the_device_stays_as_it_is(state: str, seed: int) -> None:
    """Also behind a power cut while it waits, and once there is space."""
    stopped, rng = stopped_log(state, seed), random.Random(seed)
    expected = seen_in(stopped.fs.copy(), stopped.request)
    for device, why in openings_without_space(stopped):
        before, overlay = device.crash_fs.tree(), MemoryOverlay(device.fs, MOST_BYTES)
        log = open_in_memory(overlay, stopped.request, why)
        assert seen_in(cast(FileSystem, overlay), stopped.request, log) == expected
        assert device.crash_fs.tree() == before
        assert device.crash_fs.open_descriptors == 0
        no_marker = attrs.evolve(stopped.request, was_clean=False)
        assert seen_in(device.crash_fs.copy().crash(rng), no_marker) == expected
        device.left = 1000
        assert seen_in(device.fs, stopped.request) == expected


def test_appends_are_told_what_it_waits_for_and_the_recovery_point_stays() -> None:
    """Below a recovery point the next opening trusts indexes, and those are in memory only."""
    stopped = stopped_log("killed", 1)
    device, why = next(openings_without_space(stopped))
    log = open_in_memory(MemoryOverlay(device.fs, MOST_BYTES), stopped.request, why)
    assert log.recovery_point == 0
    assert log.waiting is not None
    assert log.refusal is log.waiting
    assert log.waiting.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.waiting.retriable
    for told in ("topic-0 waits for space", DIRECTORY, "No space left on device", "without a restart"):
        assert told in log.waiting.message


def test_where_memory_has_no_room_either_nothing_is_kept_of_it() -> None:
    stopped = stopped_log("no indexes", 1)
    device, why = next(openings_without_space(stopped))
    overlay = MemoryOverlay(device.fs, 20)
    with pytest.raises(OSError, match="memory holds"):
        open_in_memory(overlay, stopped.request, why)
    assert overlay.held_bytes == 0
    assert overlay.list_directory(DIRECTORY) == device.crash_fs.list_directory(DIRECTORY)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_what_cannot_be_forced_to_the_device_is_not_read(number: int) -> None:
    """No reader sees a record that a power cut could take back."""
    stopped = stopped_log("killed", 1)
    device, why = next(openings_without_space(stopped))
    for _ in range(ATTEMPTS):
        device.crash_fs.fail_next("sync", number)
    with pytest.raises(OSError, match=r".") as raised:
        open_in_memory(MemoryOverlay(device.fs, MOST_BYTES), stopped.request, why)
    assert raised.value.errno == number
