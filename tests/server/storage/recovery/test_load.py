"""The files of a partition's directory: leftovers, missing and foreign ones."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.limits import INT32_MAX
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import CREATE, FileSystem
from triolog.server.storage.errors import StorageError
from triolog.server.storage.recovery.load import load_files

from tests.support.counts import counts, draws
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.logs import START_MS, DrivenLog, batch, open_driven

SIZE: Final = len(batch())
SMALL: Final = LogConfig(segment_bytes=10 * SIZE, index_interval_bytes=1, segment_index_bytes=240)


def log_of(directory: Path | str, records: int, fs: FileSystem | None = None) -> DrivenLog:
    """One record per batch, ten to a segment, stopped."""
    driven = open_driven(directory, fs=fs, config=SMALL)
    for offset in range(records):
        driven.append(batch(START_MS + offset))
    driven.close()
    return driven


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("was_clean", "recovery_point", "log_start_offset"), [(True, 0, 0), (False, 30, 0), (False, 30, 19), (False, 30, 20)]
)
def test_a_log_file_that_is_missing_in_the_middle_is_named_and_below_the_log_start_offset_not_missed(
    tmp_path: Path, was_clean: bool, recovery_point: int, log_start_offset: int
) -> None:
    """Retention took segments out; a power cut gave an older one and an index of a later one their names back."""
    driven = log_of(tmp_path, 35)
    (tmp_path / "00000000000000000010.log").unlink()
    before, options = names(tmp_path), {"recovery_point": recovery_point, "log_start_offset": log_start_offset}
    if log_start_offset == 20:
        reopened = driven.reopen(was_clean=was_clean, **options)
        assert [offset for offset in reopened.offsets() if offset >= 20] == list(range(20, 35))
        return
    with pytest.raises(StorageError, match=r"00000000000000000010\.log is missing; put it back") as caught:
        driven.reopen(was_clean=was_clean, **options)
    assert "00000000000000000010.index" in str(caught.value)
    assert names(tmp_path) == before


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_hole_that_no_file_tells_of_or_that_a_power_cut_may_have_left_is_stepped_over(
    tmp_path: Path, was_clean: bool
) -> None:
    """Compaction and truncation leave holes too."""
    driven = log_of(tmp_path, 35)
    for path in tmp_path.glob("00000000000000000010.*" if was_clean else "00000000000000000010.log"):
        path.unlink()
    assert driven.reopen(was_clean=was_clean).offsets() == [*range(10), *range(20, 35)]


@pytest.mark.parametrize("log_start_offset", [0, 20])
def test_files_of_a_segment_that_is_on_its_way_out_tell_of_no_hole(tmp_path: Path, log_start_offset: int) -> None:
    """Of the renames of a deletion a power cut keeps any: here an older segment has its name back, and two indexes have. The
    checkpoint of the log start may be older than the deletion."""
    driven = log_of(tmp_path, 35)
    log = tmp_path / "00000000000000000010.log"
    log.rename(f"{log}.deleted")
    reopened = driven.reopen(was_clean=False, recovery_point=30, log_start_offset=log_start_offset)
    assert reopened.offsets() == [offset for offset in (*range(10), *range(20, 35)) if offset >= log_start_offset]
    assert not [name for name in names(tmp_path) if name.startswith("00000000000000000010")]


def test_no_file_of_a_deletion_is_unlinked_before_all_new_names_are_on_the_device() -> None:
    """A server was killed behind the renames: a power cut during the start must not leave the first without the second."""
    rng = draws(3)
    bases = ("00000000000000000000", "00000000000000000010")
    stopped = CrashFileSystem()
    log_of("/topic-0", 35, stopped)
    stopped.sync_directory("/")
    for _ in range(counts(1000)):
        fs = stopped.crash(rng)
        for base in bases:
            fs.rename(f"/topic-0/{base}.log", f"/topic-0/{base}.log.deleted")
        fs.cut_after(rng.randrange(12))
        with contextlib.suppress(PowerCut):
            load_files(fs, "/topic-0", SMALL, START_MS)
        left = fs.crash(rng).list_directory("/topic-0")
        gone = [base for base in bases if not {f"{base}.log", f"{base}.log.deleted"} & set(left)]
        assert not gone or not [base for base in bases if f"{base}.log" in left]


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_segment_in_the_place_of_another_one_is_refused(tmp_path: Path, was_clean: bool) -> None:
    """A copy, two that were swapped, and one of another log whose offsets do not fit."""
    driven = log_of(tmp_path / "log", 35)
    zero, five, ten = (tmp_path / "log" / f"{base:020}.log" for base in (0, 5, 10))
    whole, second = zero.read_bytes(), ten.read_bytes()
    other = b"".join(batch(START_MS, base_offset=offset) for offset in range(38))
    for contents, why in (
        ({five: whole}, r"whole batches, the first at position \d+, have offsets that cannot be here"),
        ({zero: second, ten: whole}, "put the right one back or move it away"),
        ({zero: other}, "a file of another log or another segment"),
    ):
        for path, content in contents.items():
            path.write_bytes(content)
        with pytest.raises(StorageError, match=why):
            driven.reopen(was_clean=was_clean)
        five.unlink(missing_ok=True)
        zero.write_bytes(whole)
        ten.write_bytes(second)


def test_a_log_file_with_a_foreign_name_or_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    for name in ("notes.log", "5.log", "00000000000000000000.log.log", "-0000000000000000001.log"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(StorageError, match=r"is not named after a base offset of 20 digits; move it away"):
            open_driven(tmp_path)
        (tmp_path / name).unlink()
    (tmp_path / "00000000000000000000.log").mkdir()
    with pytest.raises((StorageError, OSError), match=r"00000000000000000000\.log"):
        open_driven(tmp_path)


OVERFLOWS: Final = {
    "two": [0, 1, 2**31 + 9, 2**31 + 10],
    "many": [0, 1, 2, INT32_MAX - 1, INT32_MAX, *range(INT32_MAX + 5, INT32_MAX + 9)],
    "twice": [0, 1, 2**31 + 9, 2**31 + 10, 2**32 + 20, 2**32 + 21],
    "all": [2**31 + 9, 2**31 + 10],
}
OVERFLOW_CASES: Final = [
    *(
        pytest.param(offsets, was_clean, id=f"{name}-{was_clean}")
        for name, offsets in OVERFLOWS.items()
        for was_clean in (True, False)
    ),
    pytest.param([0, 1, 2**31 + 9], True, id="one"),
]


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_segment_with_an_offset_overflow_is_split(tmp_path: Path, was_clean: bool) -> None:
    """Kafka: LogLoaderTest.testRecoveryOfSegmentWithOffsetOverflow."""
    offsets = OVERFLOWS["many"]
    (tmp_path / f"{0:020}.log").write_bytes(b"".join(batch(START_MS, base_offset=offset) for offset in offsets))
    driven = open_driven(tmp_path, was_clean=was_clean)
    assert driven.offsets() == offsets
    assert [segment.base_offset for segment in driven.log.segments] == [0, INT32_MAX + 5]
    assert driven.log.gaps == ()
    driven.close()
    assert driven.reopen(was_clean=True).offsets() == offsets


@pytest.mark.parametrize(("offsets", "was_clean"), OVERFLOW_CASES)
def test_a_split_that_is_interrupted_after_any_operation_leaves_no_gap(offsets: list[int], was_clean: bool) -> None:
    """A kill leaves every byte that was written, a power cut what was synced and any part of the rest; a start that is
    interrupted is not clean. A single batch that does not fit is only told from a flipped bit once its new file is there."""
    fs = CrashFileSystem()
    fs.make_directory("/log")
    fd = fs.open(f"/log/{0:020}.log", CREATE)
    fs.write(fd, [batch(START_MS, base_offset=offset) for offset in offsets], 0)
    fs.sync(fd)
    fs.close(fd)
    for folder in ("/log", "/"):
        fs.sync_directory(folder)
    moments = fs.moments()
    assert open_driven("/log", fs=fs, was_clean=was_clean).offsets() == offsets
    assert len(moments) > 10
    rng = draws(1)
    new_file = f"/log/{offsets[-1]:020}.log"
    for number, moment in enumerate(list(moments)):
        for after in (moment.copy(), *(moment.crash(rng) for _ in range(counts(8, merge=8)))):
            if len(offsets) == 3 and new_file not in after.tree():
                continue
            driven = open_driven("/log", fs=after, was_clean=False)
            assert (driven.log.gaps, driven.offsets()) == ((), offsets), f"interrupted before operation {number}"


def test_a_log_goes_on_behind_a_jump_of_offsets(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testOverCompactedLogRecovery: the second segment is named after the offset that did not fit."""
    (tmp_path / f"{0:020}.log").write_bytes(batch())
    (tmp_path / f"{INT32_MAX + 2:020}.log").write_bytes(b"".join(batch(base_offset=INT32_MAX + each) for each in (2, 3, 4)))
    driven = open_driven(tmp_path, was_clean=False)
    assert driven.append(batch()).base_offset == INT32_MAX + 5
    assert [segment.base_offset for segment in driven.log.segments] == [0, INT32_MAX + 2]
    assert f"{INT32_MAX + 2:020}.snapshot" in names(tmp_path)
