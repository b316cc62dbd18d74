"""Writing again what the device may not have: which bytes, through which steps, and what is lost for good."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.records.batch import crc32c
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import Bytes
from triolog.server.storage.disk import write_again
from triolog.server.storage.disk.filesystem import CREATE
from triolog.server.storage.disk.write_again import force_batches, write_batches_again, write_file_again
from triolog.server.storage.errors import LostWriteError

from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem

PATH: Final = "/log"
PAGE_BYTES: Final = 64


@attrs.define(eq=False)
class Writes:
    """A log of batches with the offsets 0, 1, 2 ..., and what was written to it."""

    fs: CrashFileSystem = attrs.field(factory=lambda: CrashFileSystem(page_bytes=PAGE_BYTES))
    fd: int = attrs.field(init=False)
    positions: list[int] = attrs.field(factory=lambda: [0])

    def __attrs_post_init__(self) -> None:
        self.fd = self.fs.open(PATH, CREATE)
        self.fs.sync_directory("/")

    @property
    def size(self) -> int:
        return self.positions[-1]

    def add(self, value_bytes: int) -> None:
        data = batch_at(len(self.positions) - 1, value_bytes)
        self.fs.write(self.fd, [data], self.size)
        self.positions.append(self.size + len(data))

    def sync(self, *, fails: bool) -> None:
        if not fails:
            self.fs.sync(self.fd)
            return
        self.fs.fail_next("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            self.fs.sync(self.fd)


def batch_at(offset: int, value_bytes: int) -> bytes:
    data = bytearray(build_batch([(0, None, random.Random(offset).randbytes(value_bytes), ())]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=20),
    st.integers(0, 20),
    st.sampled_from([1, 100, 1000]),
    st.integers(PAGE_BYTES, 3 * PAGE_BYTES),
)
def test_what_is_written_again_and_synced_is_on_the_device(
    sizes: list[int], durable: int, window_bytes: int, folio_bytes: int
) -> None:
    """However the windows lie: what the kernel forgets of one must not be what the next one was going to read."""
    log = Writes()
    durable = durable if durable <= len(sizes) else 0
    for number, size in enumerate(sizes):
        log.add(size)
        if number + 1 == durable:
            log.sync(fails=False)
    content = log.fs.content(PATH)
    log.sync(fails=True)
    write_batches_again(log.fs, log.fd, PATH, 0, log.size, durable, window_bytes=window_bytes, folio_bytes=folio_bytes)
    assert log.fs.content(PATH) == content
    log.fs.sync(log.fd)
    assert log.fs.durable_content(PATH) == content


def test_nothing_before_the_offset_is_written_again() -> None:
    written: list[int] = []

    class Noting(CrashFileSystem):
        def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
            written.append(position)
            super().write(fd, buffers, position)

    log = Writes(Noting())
    for size in (10, 200, 30, 40):
        log.add(size)
    written.clear()
    for from_offset in range(5):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, from_offset)
    assert written == log.positions[:4]


@pytest.mark.parametrize("position", [16, 17, 30, 61, 90])
def test_bytes_that_read_differently_are_lost_and_nothing_is_written(position: int) -> None:
    log = Writes()
    log.add(100)
    log.add(100)
    at = log.positions[1] + position
    log.fs.write(log.fd, [b"\xff"], at)
    changed = log.fs.content(PATH)
    with pytest.raises(LostWriteError, match=f"is lost.*{PATH}"):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 0)
    assert log.fs.content(PATH) == changed


class LosesWhatIsForgotten(CrashFileSystem):
    """The device has zeros where [start, stop) was, which shows when the kernel has forgotten its pages."""

    lost = (0, 0)

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        super().forget(fd, start, stop)
        first, behind = self.lost
        if first < behind:
            super().write(fd, [bytes(behind - first)], first)


@pytest.mark.parametrize("new", [0, 40])
def test_synced_bytes_that_the_device_lost_with_their_neighbours_are_written_after_all(new: int) -> None:
    """Also where nothing behind them is to be written: the append was taken back when its sync had failed."""
    log = Writes(fs := LosesWhatIsForgotten())
    log.add(30)
    log.sync(fails=False)
    if new:
        log.add(new)
    content = log.fs.content(PATH)
    log.sync(fails=True)
    fs.lost = (70, 80)
    write_batches_again(log.fs, log.fd, PATH, 0, log.size, 1)
    assert log.fs.content(PATH) == content
    log.fs.sync(log.fd)
    assert log.fs.durable_content(PATH) == content


def test_synced_bytes_that_share_pages_with_refused_ones_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Writes()
    for size in (30, 40, 50):
        log.add(size)
    log.fs.write(log.fd, [b"\xff"], log.positions[1] + 70)
    with pytest.raises(LostWriteError, match="is lost"):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 3)
    monkeypatch.setattr(write_again, "SHARED_BYTES", log.size - log.positions[2])
    write_batches_again(log.fs, log.fd, PATH, 0, log.size, 3)


def test_pages_that_the_kernel_dropped_are_lost() -> None:
    log = Writes()
    log.add(20)
    log.sync(fails=False)
    log.add(500)
    log.sync(fails=True)
    log.fs.forget(log.fd, 0)
    with pytest.raises(LostWriteError, match=r"from position \d+ on") as lost:
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 1)
    assert not lost.value.is_passing


@pytest.mark.parametrize("cut", [0, 1, 60, 100])
def test_a_file_that_ends_too_early_is_lost(cut: int) -> None:
    log = Writes()
    log.add(100)
    log.fs.truncate(log.fd, cut)
    with pytest.raises(LostWriteError):
        write_batches_again(log.fs, log.fd, PATH, 0, log.size, 0)


def test_an_error_of_before_the_start_is_told_once_and_does_not_count_and_one_that_stays_is_reported() -> None:
    for failures in (0, 2):
        log = Writes()
        log.add(500)
        content = log.fs.content(PATH)
        log.fs.fail_write_back(PATH)
        log.fs.end_process()
        for _ in range(failures):
            log.fs.fail_next("sync", errno.EIO)
        with pytest.raises(OSError, match="Input/output") if failures else contextlib.nullcontext():
            force_batches(log.fs, PATH, 0, log.size, 0)
        assert failures or log.fs.durable_content(PATH) == content


def test_a_log_is_as_old_as_it_was_and_a_batch_that_is_larger_than_a_window_is_written_whole(tmp_path: Path) -> None:
    path, fs = tmp_path / "log", GateFileSystem()
    data = batch_at(0, 10) + batch_at(1, 3 * 2**20) + batch_at(2, 10)
    path.write_bytes(data)
    fs.set_modified_ms(str(path), 1_600_000_000_000)
    force_batches(fs, str(path), 0, len(data), 0)
    assert fs.modified_ms(str(path)) == 1_600_000_000_000
    assert path.read_bytes() == data
    assert fs.count("write") == 1


def test_a_small_file_is_written_again_as_a_new_one() -> None:
    log = Writes()
    log.add(500)
    content = log.fs.content(PATH)
    log.sync(fails=True)
    assert write_file_again(log.fs, PATH) == (len(content), crc32c(content))
    log.fs.sync(log.fs.open(PATH, CREATE))
    assert log.fs.durable_content(PATH) is not None
    log.fs.sync_directory("/")
    assert log.fs.durable_content(PATH) == content
