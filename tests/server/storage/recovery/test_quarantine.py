"""Damage is taken out of a log so that a crash at any step loses no good batch and no damaged byte."""

from __future__ import annotations

import contextlib
import os
import random
from typing import Final

import pytest
from triolog.protocol.records.batch import parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import replace_file
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.recovery.quarantine import MOST_TAILS, cut_tail, delete_oldest_tails, quarantine, set_aside
from triolog.server.storage.recovery.salvage import Damage

from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.inline_log import InlineLog, make_on_device

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
