"""A scan continues after damage, and the damage is taken out of a log so that a crash at any step loses no good batch and no
damaged byte. At the very end of a log a control batch covers the lost offsets, so that clients reach the end offset."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MIB
from triolog.protocol.records.batch import LOG_OVERHEAD, iter_batches, parse_header, stamp
from triolog.protocol.records.builder import build_batch
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import OsFileSystem, replace_file
from triolog.server.storage.errors import OffsetInGapError
from triolog.server.storage.log.gaps import OffsetGap
from triolog.server.storage.recovery.quarantine import MOST_TAILS, cut_tail, delete_oldest_tails, quarantine, set_aside
from triolog.server.storage.recovery.salvage import Damage, GoodBatch, scan_batches

from tests.support import crash_fs
from tests.support.counts import seeds
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.flipped_files import flipped
from tests.support.gate_fs import GateFileSystem
from tests.support.inline_log import InlineLog, make_on_device
from tests.support.logs import START_MS, DrivenLog, batch, open_driven
from tests.support.record_batches import patched

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


@pytest.mark.merge
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
    crash_fs.put(fs, path, bytes(data))


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
    crash_fs.put(fs, path, content[: 5 * len(content) // BATCHES])
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
    crash_fs.put(fs, path, content[:covered] + torn)
    crash_fs.put(fs, f"{TOPIC_DIRECTORY}/{BATCHES:020}.log", b"")
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


SIZE: Final = len(batch())
START: Final = 100


def log_of(count: int, *, start: int = START) -> list[bytes]:
    return [patched(batch(base_offset=start + slot), partition_leader_epoch=0) for slot in range(count)]


def scan(tmp_path: Path, data: bytes, **options: int) -> tuple[list[bytes], list[Damage]]:
    """The good batches (those with a stamp put right) and the damages; checks that nothing was left out."""
    path = tmp_path / "log"
    path.write_bytes(data)
    good: list[bytes] = []
    damages: list[Damage] = []
    position = options.get("start", 0)
    for found in scan_batches(OsFileSystem(), str(path), **{"base_offset": START, **options}):
        assert found.position == position
        if isinstance(found, GoodBatch):
            assert found.header == parse_header(found.batch)
            good.append(bytes(found.batch))
            position += len(found.batch)
            continue
        damages.append(found)
        if found.stamp is not None:
            good.append(found.stamp + data[found.position + len(found.stamp) : found.position + found.size])
        position += found.size
    assert position == options.get("end", len(data))
    return good, damages


@pytest.mark.parametrize(
    "batches",
    [
        [],
        log_of(5),
        [batch(base_offset=offset) for offset in (105, 106, 200, 1_000, 5_000_000)],
        [patched(each, partition_leader_epoch=epoch) for each, epoch in zip(log_of(6), (0, 0, 3, 3, 7, 900), strict=True)],
        [patched(each, partition_leader_epoch=epoch) for each, epoch in zip(log_of(5), (-1, 2, -1, 2, -1), strict=True)],
    ],
    ids=["empty", "whole", "compacted", "epochs that rise", "without epochs"],
)
def test_a_whole_file_is_its_batches(tmp_path: Path, batches: list[bytes]) -> None:
    assert scan(tmp_path, b"".join(batches), end_offset=6_000_000) == (batches, [])
    if len(batches) == 5:
        part = scan(tmp_path, b"".join(batches), start=SIZE, end=3 * SIZE, base_offset=START + 1)
        assert part == (batches[1:3], [])


def test_every_flipped_bit_costs_its_batch_at_most(tmp_path: Path) -> None:
    """Bits of the first 17 bytes cost nothing: the neighbours tell what they were."""
    batches = log_of(5)
    data = b"".join(batches)
    for bit in range(8 * SIZE):
        good, (damage,) = scan(tmp_path, flipped(data, 2 * 8 * SIZE + bit))
        assert damage[:2] + damage[3:5] == (2 * SIZE, SIZE, 102, 103), bit
        assert good == (batches if bit < 17 * 8 else batches[:2] + batches[3:]), bit
        assert bit < 17 * 8 or damage.stamp is None, bit


def test_a_torn_batch_at_the_end_is_one_damage(tmp_path: Path) -> None:
    """The next segment says how many offsets are missing."""
    batches = log_of(3)
    for size in range(1, SIZE):
        good, (damage,) = scan(tmp_path, b"".join(batches)[: 2 * SIZE + size])
        assert (good, damage[:2], damage[3:5]) == (batches[:2], (2 * SIZE, size), (102, 102)), size
    _, (damage,) = scan(tmp_path, b"".join(batches)[:-1], end_offset=110)
    assert (damage.first_offset, damage.next_offset) == (102, 110)


@pytest.mark.parametrize(
    "garbage",
    [bytes(1000), b"\x02" * 1000, b"\xff" * 1000, random.Random(1).randbytes(5000), b"\0\0\0\0\0\0\0\x66\0\0\0\x50" * 90],
    ids=["zeros", "twos", "ones", "noise", "half headers"],
)
def test_garbage_between_batches_is_passed_over(tmp_path: Path, garbage: bytes) -> None:
    batches = log_of(5)
    good, damages = scan(tmp_path, b"".join(batches[:2]) + garbage + b"".join(batches[2:]))
    assert good == batches
    assert [(each.position, each.size, each.first_offset, each.next_offset) for each in damages] == [
        (2 * SIZE, len(garbage), 102, 102)
    ]


@given(st.data())
def test_smashed_bytes_cost_the_batches_that_they_touch(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bytes over any range: all batches that it does not touch are found, and nothing else.

    Unless the bytes make a header that can be believed, of another offset and length: its extent is only left for the batch
    that has to follow it, because a record may hold what looks like a batch.
    """
    batches = log_of(8)
    content = bytearray(b"".join(batches))
    start = data.draw(st.integers(SIZE, 7 * SIZE - 1))
    stop = data.draw(st.integers(start + 1, 7 * SIZE))
    content[start:stop] = data.draw(st.binary(min_size=stop - start, max_size=stop - start))
    for slot, before in enumerate(batches):
        header = parse_header(content, slot * SIZE)
        believable = header.magic == 2 and header.size_bytes >= 61 and START <= header.base_offset < START + 2**31
        assume(header[:2] == parse_header(before)[:2] or not believable)
    good, _ = scan(tmp_path_factory.mktemp("scan"), bytes(content))
    untouched = [each for slot, each in enumerate(batches) if (slot + 1) * SIZE <= start or slot * SIZE >= stop]
    assert [each for each in batches if each in good] == good
    assert [each for each in good if each in untouched] == untouched


def test_a_batch_in_a_record_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    """The log of a program that stores copies of log segments: the damaged batch's own header keeps its extent."""
    inner = b"".join(batch(base_offset=START + slot) for slot in range(2, 9))
    outer = patched(batch(base_offset=START + 1, value=inner), partition_leader_epoch=0)
    first, last = log_of(3)[0], log_of(3)[2]
    damaged = bytearray(outer)
    damaged[65] ^= 1
    good, damages = scan(tmp_path, first + bytes(damaged) + last)
    assert (good, [each.size for each in damages]) == ([first, last], [len(outer)])
    torn = outer[:-1]
    good, damages = scan(tmp_path, first + torn)
    assert [parse_header(each).base_offset for each in good][:1] == [START]
    for length in range(32):
        damaged = bytearray(outer)
        damaged[11 - length // 8] ^= 1 << length % 8
        assert scan(tmp_path, first + bytes(damaged) + last)[0] == [first, outer, last]


@pytest.mark.parametrize("ends_the_record", [False, True])
def test_a_batch_in_a_record_is_not_taken_for_one_of_the_log_if_the_next_is_damaged(
    tmp_path: Path, ends_the_record: bool
) -> None:
    """Then nothing confirms where the damaged batch ends; inside of what it claims only its successor may start. In the last
    header of the last record it leads to what follows, as one of the log would."""
    first, _, second, last = log_of(4)
    inner = batch(base_offset=START + 3)
    outer = patched(batch(base_offset=START + 1, value=inner), partition_leader_epoch=0)
    if ends_the_record:
        outer = build_batch([(START_MS, None, b"value", (("copy", inner),))], base_offset=START + 1, partition_leader_epoch=0)
        assert outer.endswith(inner)
    data = first + flipped(outer, 8 * 65) + flipped(second, 8 * (SIZE - 1)) + last
    good, damages = scan(tmp_path, data)
    assert (good, sum(each.size for each in damages)) == ([first, last], len(outer) + SIZE)


def test_behind_a_length_out_of_the_file_and_a_gap_of_offsets_reading_goes_on_at_the_next_batch(tmp_path: Path) -> None:
    batches = [batch(base_offset=offset) for offset in (100, 105, 111, 120)]
    damaged = bytearray(batches[1])
    damaged[8:10] = b"\x7f\xff"
    damaged[70] ^= 1
    good, (damage,) = scan(tmp_path, batches[0] + bytes(damaged) + batches[2] + batches[3])
    assert good == [batches[0], *batches[2:]]
    assert (damage.position, damage.size, damage.first_offset, damage.next_offset) == (SIZE, SIZE, 101, 111)


def test_an_older_batch_and_one_that_reaches_into_the_next_segment_are_misplaced(tmp_path: Path) -> None:
    batches = log_of(4)
    good, (damage,) = scan(tmp_path, b"".join([*batches, batches[1]]))
    assert (good, damage.is_misplaced, damage.stamp) == (batches, True, None)
    assert damage.reason == f"offsets 101 to 101 are not in 104 to {START + INT32_MAX + 1}"
    good, damages = scan(tmp_path, b"".join(batches), end_offset=102)
    assert (good, [each.is_misplaced for each in damages]) == (batches[:2], [True, True])


def test_a_batch_larger_than_a_read_is_found(tmp_path: Path) -> None:
    large = patched(batch(base_offset=START + 1, value=random.Random(3).randbytes(3 * MIB)), partition_leader_epoch=0)
    first, *rest = log_of(6)
    batches = [first, large, *rest[1:]]
    assert scan(tmp_path, b"".join(batches)) == (batches, [])
    damaged = b"".join([first, flipped(large, 8 * 2 * MIB), *rest[1:]])
    good, damages = scan(tmp_path, damaged)
    assert (good, [each.size for each in damages]) == ([first, *rest[1:]], [len(large)])


def test_a_length_that_claims_the_rest_of_the_file_costs_nothing_behind_it(tmp_path: Path) -> None:
    batches = log_of(200)
    content = bytearray(b"".join(batches))
    content[2 * SIZE + 8 : 2 * SIZE + 12] = (len(content) - 2 * SIZE - LOG_OVERHEAD).to_bytes(4, "big")
    good, damages = scan(tmp_path, bytes(content))
    assert good[:2] == batches[:2]
    assert [each for each in batches if each in good] == good
    assert len(damages) == 1


def test_crafted_headers_do_not_cost_more_than_a_few_reads_of_the_file(tmp_path: Path) -> None:
    """Each of them claims the rest of the file; checking every claim would be quadratic."""
    fake = (START + 1).to_bytes(8, "big") + (INT32_MAX >> 4).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(44)
    content = b"".join(log_of(1)) + fake * 20_000

    path = tmp_path / "log"
    path.write_bytes(content)
    fs = GateFileSystem()
    found = list(scan_batches(fs, str(path), base_offset=START))
    assert [type(each) for each in found] == [GoodBatch, Damage]
    assert fs.read_bytes["log"] < 64 * len(content)


WHOLE: Final = 3
"""Batches before the torn one, of one record each."""
INNER_OFFSETS: Final = (0, 1, WHOLE, WHOLE + 1, 100)


def stamped(offset: int, **content: bytes) -> bytes:
    return patched(batch(base_offset=offset, **content), partition_leader_epoch=0)


def torn_logs() -> Iterator[tuple[str, bytes]]:
    """A description, and the bytes of a log whose last append is torn and contains a whole batch."""
    before = b"".join(stamped(offset) for offset in range(WHOLE))
    for inner_offset in INNER_OFFSETS:
        inner = stamped(inner_offset, value=b"nobody sent this here")
        outer = stamped(WHOLE, value=b"." * 700 + inner + b"." * 2000)
        inner_end = outer.index(inner) + len(inner)
        for size in (inner_end, inner_end + 1, 2200, len(outer) - 1):
            yield f"inner offset {inner_offset}, {size} of {len(outer)} bytes", before + outer[:size]


def test_torn_append_is_one_damage_and_its_record_is_not_searched(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for what, data in torn_logs():
        path.write_bytes(data)
        *good, torn = scan_batches(OsFileSystem(), str(path), base_offset=0, torn_from=WHOLE)
        assert [found.header.base_offset for found in good if isinstance(found, GoodBatch)] == list(range(WHOLE)), what
        assert isinstance(torn, Damage), what
        assert torn.position + torn.size == len(data), what


@pytest.mark.parametrize("rest", [b"", b"." * 100, bytes(200) + b"." * 100], ids=["end", "text", "zeros"])
@pytest.mark.parametrize("count", [1, 3])
def test_record_of_an_append_that_lost_its_first_bytes_is_not_searched(tmp_path: Path, count: int, rest: bytes) -> None:
    """A power cut has left zeros up to a batch within a record. The rest of the record follows it."""
    before = b"".join(stamped(offset) for offset in range(WHOLE))
    inner = b"".join(stamped(10_000 + number, value=b"nobody sent this here") for number in range(count))
    outer = stamped(WHOLE, value=b"." * 700 + inner + b"..." + rest)
    path = tmp_path / "log"
    path.write_bytes(before + bytes(outer.index(inner)) + outer[outer.index(inner) :])
    found = list(scan_batches(OsFileSystem(), str(path), base_offset=0, torn_from=WHOLE))
    assert [each.header.base_offset for each in found if isinstance(each, GoodBatch)] == list(range(WHOLE))
    assert isinstance(found[-1], Damage)
    assert found[-1].position + found[-1].size == path.stat().st_size


@pytest.mark.parametrize("rest", [b"", bytes(100), stamped(WHOLE + 3)[:40], stamped(WHOLE + 3)[:-1]])
def test_batches_after_an_append_that_lost_its_first_bytes_are_still_found(tmp_path: Path, rest: bytes) -> None:
    lost, *others = (stamped(offset) for offset in range(WHOLE, WHOLE + 3))
    before = b"".join(stamped(offset) for offset in range(WHOLE))
    path = tmp_path / "log"
    path.write_bytes(before + bytes(len(lost)) + b"".join(others) + rest)
    found = scan_batches(OsFileSystem(), str(path), base_offset=0, torn_from=WHOLE)
    offsets = [each.header.base_offset for each in found if isinstance(each, GoodBatch)]
    assert offsets == [*range(WHOLE), WHOLE + 1, WHOLE + 2]


def test_batches_after_a_damaged_length_are_still_found(tmp_path: Path) -> None:
    """A length out of the file whose batch is whole is damage, wherever the recovery point is."""
    batches = [stamped(offset) for offset in range(WHOLE + 2)]
    batches[1] = batches[1][:8] + (1 << 20 | 0xFFF).to_bytes(4, "big") + batches[1][12:]
    path = tmp_path / "log"
    path.write_bytes(b"".join(batches))
    for torn_from in (0, 2, INT64_MAX):
        found = list(scan_batches(OsFileSystem(), str(path), base_offset=0, torn_from=torn_from))
        assert [each.position for each in found] == [sum(map(len, batches[:number])) for number in range(WHOLE + 2)], torn_from


def test_log_after_a_kill_ends_before_the_torn_append(tmp_path: Path) -> None:
    for number, (what, data) in enumerate(torn_logs()):
        directory = tmp_path / f"t-{number}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(data)
        log = open_driven(directory, was_clean=False).log
        assert (log.log_end_offset, log.gaps) == (WHOLE, ()), what
