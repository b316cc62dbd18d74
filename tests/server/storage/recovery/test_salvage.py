"""A scan continues after damage, and takes no record of a torn append for a batch of the log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from triolog.protocol.limits import INT32_MAX, INT64_MAX, MIB
from triolog.protocol.records.batch import LOG_OVERHEAD, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.recovery.salvage import Damage, GoodBatch, scan_batches

from tests.support.flipped_files import flipped
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS, batch, open_driven
from tests.support.record_batches import patched

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
def test_a_batch_in_a_record_is_not_taken_for_one_of_the_log_when_what_follows_is_damaged_too(
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
    assert damage.reason == f"offsets 101 to 101 do not lie in 104 to {START + INT32_MAX + 1}"
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
