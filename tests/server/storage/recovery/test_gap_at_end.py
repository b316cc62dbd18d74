"""Damage at the very end of a log: a control batch covers the lost offsets, so that clients reach the end offset."""

from __future__ import annotations

from typing import Final

import pytest
from triolog.protocol.records.batch import iter_batches, parse_header
from triolog.server.config import LogConfig
from triolog.server.storage.errors import OffsetInGapError

from tests.support import crash_fs
from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import DrivenLog, batch, open_driven

DIRECTORY: Final = "/logs/topic-0"
SKIP: Final = LogConfig().overlay({"gap.policy": "skip"})
BATCHES: Final = 7
CRC: Final = 17


def damaged(fs: CrashFileSystem, first: int) -> None:
    """Spoil each batch from the one with that base offset on."""
    path = f"{DIRECTORY}/{0:020}.log"
    data, at = bytearray(fs.content(path)), 0
    while at < len(data):
        header = parse_header(data, at)
        if header.base_offset >= first:
            data[at + CRC] ^= 1
        at += header.size_bytes
    crash_fs.put(fs, path, bytes(data))


def stored() -> CrashFileSystem:
    fs = CrashFileSystem()
    driven = open_driven(DIRECTORY, fs=fs, config=SKIP)
    for _ in range(BATCHES):
        driven.append(batch())
    driven.close()
    return fs


def after_kill(fs: CrashFileSystem, config: LogConfig = SKIP) -> DrivenLog:
    """The device had all batches."""
    return open_driven(DIRECTORY, fs=fs, config=config, was_clean=False, recovery_point=BATCHES)


def end_of_read(driven: DrivenLog, offset: int) -> int:
    """Where a client goes on that reads from there: behind the last batch that it gets."""
    while offset < driven.log.log_end_offset:
        batches = [header for header, _ in iter_batches(bytes(driven.read(offset).records))]
        assert batches, f"nothing is read at offset {offset}"
        offset = batches[-1].next_offset
    return offset


@pytest.mark.parametrize("first", range(BATCHES))
def test_a_reader_at_each_offset_reaches_the_end_of_a_log_that_ends_in_a_gap(first: int) -> None:
    fs = stored()
    damaged(fs, first)
    driven = after_kill(fs)
    assert [(gap.start_offset, gap.end_offset) for gap in driven.log.gaps] == [(first, BATCHES)]
    for offset in range(BATCHES):
        assert end_of_read(driven, offset) == BATCHES
    assert driven.offsets(skip_gaps=True) == list(range(first))
    assert driven.append(batch()).base_offset == BATCHES
    driven.close()
    for was_clean in (True, False):
        again = driven.reopen(was_clean=was_clean, recovery_point=BATCHES + 1)
        assert end_of_read(again, first) == BATCHES + 1
        assert again.offsets(skip_gaps=True) == [*range(first), BATCHES]


def test_a_log_that_lost_its_end_while_it_was_stopped_is_covered_too() -> None:
    fs = stored()
    path = f"{DIRECTORY}/{0:020}.log"
    content = fs.content(path)
    crash_fs.put(fs, path, content[: 5 * len(content) // BATCHES])
    driven = open_driven(DIRECTORY, fs=fs, config=SKIP, recovery_point=BATCHES)
    assert [(gap.start_offset, gap.end_offset) for gap in driven.log.gaps] == [(5, BATCHES)]
    assert end_of_read(driven, 0) == end_of_read(driven, 5) == BATCHES


@pytest.mark.parametrize("left", [0, 5, 13, 17, 24, 40, 50, 70])
@pytest.mark.parametrize("was_clean", [True, False])
def test_an_empty_segment_behind_a_gap_that_nothing_covers_is_led_to(left: int, was_clean: bool) -> None:
    """As a server before left it: a segment that starts behind the gap, and no batch in the gap, or as a power cut leaves the
    one that was put there."""
    fs = stored()
    damaged(fs, 5)
    driven = after_kill(fs)
    path = f"{DIRECTORY}/{0:020}.log"
    content = fs.content(path)
    covered = next(at for at in range(0, len(content), 1) if at and parse_header(content[at:] + bytes(61)).base_offset == 5)
    torn = content[covered : covered + left] + bytes(len(content) - covered - left) if left else b""
    crash_fs.put(fs, path, content[:covered] + torn)
    crash_fs.put(fs, f"{DIRECTORY}/{BATCHES:020}.log", b"")
    again = open_driven(DIRECTORY, fs=fs, config=SKIP, was_clean=was_clean, recovery_point=BATCHES)
    assert again.log.log_end_offset == again.log.active.base_offset == BATCHES
    assert end_of_read(again, 5) == BATCHES
    assert fs.content(path)[: len(content)] == content
    assert driven.log.gaps == again.log.gaps


def test_readers_are_still_refused_the_gap_by_policy_and_pass_it_when_they_skip() -> None:
    fs = stored()
    damaged(fs, 5)
    driven = after_kill(fs, LogConfig().overlay({"gap.policy": "refuse"}))
    with pytest.raises(OffsetInGapError):
        driven.read(5)
    assert driven.offsets(skip_gaps=True) == list(range(5))
    skipping = driven.reopen(was_clean=False, recovery_point=BATCHES, config=SKIP)
    assert skipping.read(4).passed == skipping.log.gaps == skipping.read(5).passed
