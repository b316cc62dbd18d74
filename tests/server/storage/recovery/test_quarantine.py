"""Damage is taken out of a log so that a crash at any step loses no good batch and no damaged byte. At the very end of a log a
control batch covers the lost offsets, so that clients reach the end offset."""

from __future__ import annotations

import contextlib
import os
import random
from typing import Final

import pytest
from triolog.protocol.records.batch import iter_batches, parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import replace_file
from triolog.server.storage.errors import OffsetInGapError
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.recovery.quarantine import MOST_TAILS, cut_tail, delete_oldest_tails, quarantine, set_aside
from triolog.server.storage.recovery.salvage import Damage

from tests.support import memory_image
from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.inline_log import InlineLog, make_on_device
from tests.support.logs import DrivenLog, batch, open_driven

DIRECTORY: Final = "/orders-0"
LOG: Final = f"{DIRECTORY}/{0:020}.log"
FOUND_MS: Final = 1_000
CONFIG: Final = LogConfig(segment_bytes=700, segment_index_bytes=96, index_interval_bytes=100)


def file_system(**files: bytes) -> CrashFileSystem:
    """Everything in it is on the device."""
    fs = CrashFileSystem(page_bytes=64)
    make_on_device(fs, DIRECTORY)
    for name, content in files.items():
        replace_file(fs, f"{DIRECTORY}/{name}", content)
    return fs


def open_log(fs: CrashFileSystem, recovery_point: int = 0) -> InlineLog:
    return InlineLog.open_orders(fs, DIRECTORY, CONFIG, lambda: 1_000, recovery_point=recovery_point)


def log_files(damaged: frozenset[int]) -> tuple[dict[str, bytes], list[bytes]]:
    """Three segments of five batches, of which these have another last byte: the files, and the batches as they are."""
    rng = random.Random(5)
    batches = []
    for offset in range(15):
        data = build_batch([(1_000 + offset, b"key", rng.randbytes(40), ())])
        data = stamp(offset, parse_header(data), 0) + data[16:]
        batches.append(data[:-1] + bytes([data[-1] ^ 1]) if offset in damaged else data)
    return {f"{base:020}.log": b"".join(batches[base : base + 5]) for base in (0, 5, 10)}, batches


DAMAGED: Final = [
    pytest.param(frozenset({2}), id="middle"),
    pytest.param(frozenset({4}), id="end of a segment"),
    pytest.param(frozenset({0, 6, 7, 9, 11}), id="everywhere"),
    pytest.param(frozenset(range(5, 10)), id="a whole segment"),
    pytest.param(frozenset({14}), id="end of the log"),
]


@pytest.mark.parametrize("promised", [0, 15])
@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_power_cut_at_any_step_of_recovery_loses_nothing(damaged: frozenset[int], promised: int) -> None:
    """A disk that several cuts leave is looked at once: recovery does the same with the same files."""
    files, batches = log_files(damaged)
    fs = file_system(**files)
    moments = fs.moments()
    open_log(fs, promised).close_descriptors()
    assert len(moments) > 10
    seen = set()
    for moment in [*moments, fs.copy()]:
        for seed in seeds(40):
            again = moment.crash(random.Random(seed))
            disk = tuple(again.tree().items())
            if disk not in seen:
                seen.add(disk)
                check_recovered(again, batches, damaged, promised)


def check_recovered(fs: CrashFileSystem, batches: list[bytes], damaged: frozenset[int], promised: int) -> None:
    """What is not damaged is there, what is damaged is reported and its bytes are kept."""
    inline = open_log(fs, promised)
    stored = [header.base_offset for header, _ in inline.stored() if not header.is_control]  # a marker covers a gap at the end
    assert stored == [offset for offset in range(15) if offset not in damaged]
    lost = damaged if promised else damaged - {14}
    assert {offset for gap in inline.log.gaps for offset in range(gap.start_offset, gap.end_offset)} == lost
    assert inline.log.log_end_offset == (15 if promised or 14 not in damaged else 14)
    names = fs.list_directory(DIRECTORY)
    kept = b"".join(fs.content(f"{DIRECTORY}/{name}") for name in names if ".corrupt-" in name)
    for offset in damaged:
        assert batches[offset] in kept, f"the bytes of {offset} are gone"
    assert not [name for name in names if name.endswith(".tmp")]
    inline.close_descriptors()


@pytest.mark.parametrize("left", range(4))
def test_offsets_of_a_log_that_lost_its_end_behind_damage_are_given_to_nobody(left: int) -> None:
    """Simulated seed 409: a gap, and a log that ended with it and went on when it was closed."""
    files, _ = log_files(frozenset({2, 3}))
    fs = file_system(**files)
    open_log(fs).close_descriptors()
    names = sorted(f"{DIRECTORY}/{name}" for name in fs.list_directory(DIRECTORY) if name.endswith(".log"))
    for name in names[1:]:
        fs.unlink(name)
    fs.truncate(fs.open(names[0], os.O_RDWR), len(fs.content(names[0])) * left // 3)
    inline = InlineLog.open_orders(fs, DIRECTORY, CONFIG, lambda: 1_000, recovery_point=15, was_clean=True)
    there = {header.base_offset for header, _ in inline.stored() if not header.is_control}
    assert inline.log.log_end_offset == 15
    assert {offset for gap in inline.log.gaps for offset in range(gap.start_offset, gap.end_offset)} == set(range(15)) - there
    inline.close_descriptors()


def test_a_side_file_has_exactly_the_bytes_and_those_are_not_kept_twice() -> None:
    fs = file_system(**{f"{0:020}.log": bytes(range(100))})
    for _ in range(2):
        assert set_aside(fs, LOG, 10, 20) == f"{0:020}.log.corrupt-10"
        assert fs.content(f"{LOG}.corrupt-10") == bytes(range(10, 30))
    assert set_aside(fs, LOG, 10, 21) == f"{0:020}.log.corrupt-10.2"


def test_a_tail_is_kept_before_it_is_cut() -> None:
    """Its name too: a power cut may keep the cut and take a name that was not synced."""
    for cut in range(10):
        for seed in range(50):
            fs = file_system(**{f"{0:020}.log": bytes(range(100))})
            fs.cut_after(cut)
            with contextlib.suppress(PowerCut):
                cut_tail(fs, LOG, 10, 100)
            fs = fs.crash(random.Random(seed))
            if fs.content(LOG) != bytes(range(100)):
                assert fs.content(f"{LOG}.corrupt-10") == bytes(range(10, 100))


def test_indexes_are_gone_before_the_log_has_other_positions() -> None:
    for cut in range(20):
        for seed in range(50):
            fs = file_system(**{f"{0:020}.log": bytes(range(100)), f"{0:020}.index": b"stale"})
            fs.cut_after(cut)
            with contextlib.suppress(PowerCut):
                quarantine(fs, LOG, [Damage(50, 10, "lost", 3, 5)], found_ms=FOUND_MS)
            fs = fs.crash(random.Random(seed))
            if fs.content(LOG) != bytes(range(100)):
                assert f"{0:020}.index" not in fs.list_directory(DIRECTORY)


def test_a_stamp_is_put_in_the_place_of_the_first_bytes() -> None:
    fs = file_system(**{f"{0:020}.log": bytes(range(100)), f"{0:020}.index": b"stale"})
    damages = [Damage(10, 30, "stamp", 0, 1, stamp=b"S" * 17), Damage(50, 10, "lost", 3, 5)]
    gaps = quarantine(fs, LOG, damages, found_ms=FOUND_MS)
    assert gaps == (OffsetGap(3, 5, f"{0:020}.log.corrupt-50", FOUND_MS),)
    assert fs.content(LOG) == bytes(range(10)) + b"S" * 17 + bytes(range(27, 50)) + bytes(range(60, 100))
    assert f"{0:020}.index" not in fs.list_directory(DIRECTORY)


def test_only_the_newest_torn_appends_are_kept_and_all_that_a_gap_names() -> None:
    fs = file_system()
    names = [f"{0:020}.log.corrupt-{position}" for position in range(MOST_TAILS + 3)]
    for name in names:
        replace_file(fs, f"{DIRECTORY}/{name}", b"torn")
    gone = delete_oldest_tails(fs, DIRECTORY, [OffsetGap(0, 5, names[0])])
    left = [name for name in fs.list_directory(DIRECTORY) if ".corrupt-" in name]
    assert names[0] in left
    assert len(left) == MOST_TAILS + 1
    assert sorted([*left, *gone]) == sorted(names)
    assert delete_oldest_tails(fs, DIRECTORY, [OffsetGap(0, 5, names[0])]) == []


TOPIC_DIRECTORY: Final = "/logs/topic-0"
SKIP: Final = LogConfig().overlay({"gap.policy": "skip"})
BATCHES: Final = 7
CRC: Final = 17


def damaged(fs: CrashFileSystem, first: int) -> None:
    """Spoil each batch from the one with that base offset on."""
    path = f"{TOPIC_DIRECTORY}/{0:020}.log"
    data, at = bytearray(fs.content(path)), 0
    while at < len(data):
        header = parse_header(data, at)
        if header.base_offset >= first:
            data[at + CRC] ^= 1
        at += header.size_bytes
    memory_image.put(fs, path, bytes(data))


def stored() -> CrashFileSystem:
    fs = CrashFileSystem()
    driven = open_driven(TOPIC_DIRECTORY, fs=fs, config=SKIP)
    for _ in range(BATCHES):
        driven.append(batch())
    driven.close()
    return fs


def after_kill(fs: CrashFileSystem, config: LogConfig = SKIP) -> DrivenLog:
    """The device had all batches."""
    return open_driven(TOPIC_DIRECTORY, fs=fs, config=config, was_clean=False, recovery_point=BATCHES)


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
    path = f"{TOPIC_DIRECTORY}/{0:020}.log"
    content = fs.content(path)
    memory_image.put(fs, path, content[: 5 * len(content) // BATCHES])
    driven = open_driven(TOPIC_DIRECTORY, fs=fs, config=SKIP, recovery_point=BATCHES)
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
    path = f"{TOPIC_DIRECTORY}/{0:020}.log"
    content = fs.content(path)
    covered = next(at for at in range(0, len(content), 1) if at and parse_header(content[at:] + bytes(61)).base_offset == 5)
    torn = content[covered : covered + left] + bytes(len(content) - covered - left) if left else b""
    memory_image.put(fs, path, content[:covered] + torn)
    memory_image.put(fs, f"{TOPIC_DIRECTORY}/{BATCHES:020}.log", b"")
    again = open_driven(TOPIC_DIRECTORY, fs=fs, config=SKIP, was_clean=was_clean, recovery_point=BATCHES)
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
