"""Opening a log: its files, leftover, missing and foreign ones too, and repair after an unclean stop."""

from __future__ import annotations

import contextlib
import errno
import struct
import zlib
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.limits import INT32_MAX
from triolog.server.config import LogConfig
from triolog.server.storage.disk.filesystem import CREATE, FileSystem
from triolog.server.storage.errors import StorageError
from triolog.server.storage.indexes.file_records import FIRST_READ_BYTES
from triolog.server.storage.log.changes import truncate_to
from triolog.server.storage.log.gaps import FILE_NAME as GAPS_FILE
from triolog.server.storage.log.gaps import NO_FILE, OffsetGap
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from triolog.server.storage.recovery.load import load_files
from triolog.server.storage.recovery.quarantine import MOST_TAILS

from tests.server.offline.test_verify import flip
from tests.support.counts import counts, draws
from tests.support.crash_fs import CrashFileSystem, PowerCut
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import START_MS, DrivenLog, batch, open_driven, untimed

SIZE: Final = len(batch())
SMALL: Final = LogConfig(segment_bytes=10 * SIZE, index_interval_bytes=1, segment_index_bytes=240)


def log_of(directory: Path | str, records: int, config: LogConfig = SMALL, fs: FileSystem | None = None) -> DrivenLog:
    """One record per batch, stamped START_MS + offset; ten to a segment."""
    driven = open_driven(directory, fs=fs, config=config)
    for offset in range(records):
        driven.append(batch(START_MS + offset))
    return driven


def assert_whole(driven: DrivenLog, records: int) -> None:
    """Every offset and every time is found."""
    assert driven.offsets() == list(range(records))
    assert driven.log.log_end_offset == driven.log.high_watermark == records
    for offset in range(records):
        assert driven.offset_for(START_MS + offset)[:2] == (START_MS + offset, offset)


def names(directory: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(suffix))


@pytest.mark.parametrize("start", [0, 500])
def test_a_log_whose_files_were_deleted_starts_at_its_log_start_offset(tmp_path: Path, start: int) -> None:
    """Kafka: UnifiedLogTest.testLogReinitializeAfterManualDelete,
    LogLoaderTest.testLogStartOffsetWhenRemoteStorageIsEnabled."""
    driven = open_driven(tmp_path, log_start_offset=start)
    assert (driven.log.log_start_offset, driven.log.log_end_offset, len(driven.log.segments)) == (start, start, 1)
    assert names(tmp_path, "") == [f"{start:020}.log", LEADER_EPOCH_FILE]
    assert driven.append(batch()).base_offset == start
    driven.close()
    again = driven.reopen(was_clean=True, log_start_offset=0)
    assert again.log.log_start_offset == start, "at least the first base offset"


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_log_that_ends_before_its_log_start_goes_on_empty_from_there_and_keeps_what_it_had(
    tmp_path: Path, was_clean: bool
) -> None:
    """One flipped bit in log-start-offset-checkpoint must not delete a log, not even one of many segments."""
    driven = log_of(tmp_path, 200)
    driven.close()
    before = [path.read_bytes() for path in sorted(tmp_path.glob("*.log"))]
    assert len(before) > MOST_TAILS
    again = driven.reopen(was_clean=was_clean, log_start_offset=1000)
    assert (again.log.log_start_offset, again.log.log_end_offset, again.offsets()) == (1000, 1000, [])
    assert again.append(batch()).base_offset == 1000
    again.close()
    again = again.reopen(was_clean=False, recovery_point=1000, log_start_offset=1000)
    assert again.offsets() == [1000]
    assert [path.read_bytes() for path in sorted(tmp_path.rglob("*.log.corrupt-0"))] == before


def test_offsets_that_a_clean_stop_promised_are_not_given_out_again(tmp_path: Path) -> None:
    """A log that was cut where a batch starts looks whole; the checkpoint says that it is not."""
    driven = log_of(tmp_path, 25)
    driven.close()
    end = driven.log.log_end_offset
    last = max(path for path in tmp_path.rglob("*.log") if path.stat().st_size)
    last.write_bytes(b"")
    again = driven.reopen(was_clean=True, recovery_point=end)
    first = int(last.stem)
    assert untimed(again.log.gaps) == (OffsetGap(first, end, NO_FILE),)
    assert again.append(batch()).base_offset == end


def test_after_a_clean_stop_no_segment_is_scanned(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=100_000)
    driven = open_driven(tmp_path, config=config)
    for offset in range(40):
        driven.append(batch(START_MS + offset, value=bytes(20_000)))
    expected = [(segment.max_timestamp, segment.offset_of_max_timestamp) for segment in driven.log.segments]
    driven.close()
    fs = GateFileSystem()
    again = open_driven(tmp_path, fs=fs, config=config)
    assert sum(fs.read_bytes[name] for name in names(tmp_path, ".log")) <= (len(expected) + 2) * FIRST_READ_BYTES
    assert [(segment.max_timestamp, segment.offset_of_max_timestamp) for segment in again.log.segments] == expected
    assert again.log.recovery_point == 40
    assert_whole(again, 40)


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("content", [None, b"  "], ids=["deleted", "damaged"])
def test_deleted_and_damaged_indexes_are_rebuilt(tmp_path: Path, content: bytes | None, was_clean: bool) -> None:
    """Kafka: LogLoaderTest.testIndexRebuild, testCorruptIndexRebuild, LogSegmentTest.testRecoveryFixesCorruptIndex,
    testRecoveryFixesCorruptTimeIndex. One index at a time: see test_damage."""
    driven = log_of(tmp_path, 35)
    driven.close()
    for name in names(tmp_path, "index"):
        (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    again = driven.reopen(was_clean=was_clean)
    assert_whole(again, 35)
    assert all(index.entries for segment in again.log.segments for index in segment.indexes)


def test_an_empty_active_segment_survives_a_crash(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testRecoverWithEmptyActiveSegment."""
    driven = log_of(tmp_path, 5)
    driven.roll()
    driven.flush()
    assert not (tmp_path / "00000000000000000005.index").exists()
    again = driven.reopen(was_clean=False, recovery_point=5)
    assert (tmp_path / "00000000000000000005.index").exists()
    assert len(again.log.segments) == 2
    assert_whole(again, 5)
    again.close()
    assert_whole(again.reopen(was_clean=True), 5)


def test_indexes_without_a_log_and_files_marked_for_deletion_are_deleted(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testBogusIndexSegmentsAreRemoved, testOpenDeletesObsoleteFiles."""
    log_of(tmp_path, 5).close()
    before = names(tmp_path, "")
    for name in (
        *(f"{0:020}.{suffix}" for suffix in ("log.deleted", "index.deleted", "log.cleaned", "timeindex.cleaned", "log.tmp")),
        *(f"{9:020}.{suffix}" for suffix in ("index", "timeindex", "txnindex")),
        *("leader-epoch-checkpoint.tmp", "x.snapshot.deleted"),
    ):
        (tmp_path / name).write_bytes(b"left over")
    assert_whole(open_driven(tmp_path, config=SMALL), 5)
    assert names(tmp_path, "") == before


def test_a_log_file_above_32_bits_is_refused(tmp_path: Path) -> None:
    """Kafka: FileRecordsTest.testOpenOversizeFile."""
    with (tmp_path / "00000000000000000000.log").open("wb") as file:
        file.truncate(INT32_MAX + 5)
    with pytest.raises(StorageError, match=f"has {INT32_MAX + 5} bytes"):
        open_driven(tmp_path)


def without(records: int, *lost: int) -> list[int]:
    return [offset for offset in range(records) if offset not in lost]


def test_a_damaged_batch_costs_itself_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = log_of(tmp_path, 35)
    path = tmp_path / "00000000000000000010.log"
    original = path.read_bytes()
    flip(path, 4 * SIZE + 70, 0)
    damaged = path.read_bytes()[4 * SIZE : 5 * SIZE]
    again = driven.reopen(was_clean=False)
    kept = f"00000000000000000010.log.corrupt-{4 * SIZE}"
    assert untimed(again.log.gaps) == (OffsetGap(14, 15, kept),)
    assert again.offsets(skip_gaps=True) == without(35, 14)
    assert again.log.log_end_offset == 35
    assert path.read_bytes() == original[: 4 * SIZE] + original[5 * SIZE :]
    assert (tmp_path / kept).read_bytes() == damaged
    assert (tmp_path / GAPS_FILE).read_text() == f"1\n1\n14 15 {kept} {START_MS} -\n"
    assert f"offsets 14 to 14 are lost, their bytes are in {kept}" in caplog.text
    for offset in without(35, 14):
        assert again.offset_for(START_MS + offset)[:2] == (START_MS + offset, offset)
    assert again.offset_for(START_MS + 14)[:2] == (START_MS + 15, 15)


@pytest.mark.parametrize("log_start_offset", [14, 15])
def test_damage_below_the_log_start_is_no_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture, log_start_offset: int) -> None:
    driven = log_of(tmp_path, 35)
    flip(tmp_path / "00000000000000000010.log", 4 * SIZE + 70, 0)
    again = driven.reopen(was_clean=False, log_start_offset=log_start_offset)
    assert ("offsets 14 to 14 are lost" in caplog.text) is (log_start_offset == 14)
    assert len(again.log.gaps) == (log_start_offset == 14)


def test_a_gap_is_remembered_until_it_lies_below_the_log_start_and_its_bytes_stay(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 35)
    flip(tmp_path / "00000000000000000010.log", 4 * SIZE + 70, 0)
    driven = driven.reopen(was_clean=False)
    expected = driven.log.gaps
    for was_clean in (False, True):
        if was_clean:
            driven.close()
        driven = driven.reopen(was_clean=was_clean)
        assert driven.log.gaps == expected
        assert driven.offsets(skip_gaps=True) == without(35, 14)
    driven.close()
    driven = driven.reopen(was_clean=True, log_start_offset=20)
    assert driven.log.gaps == ()
    assert (tmp_path / GAPS_FILE).read_text() == "0\n0\n"
    assert (tmp_path / f"00000000000000000010.log.corrupt-{4 * SIZE}").exists()


def test_zeros_that_the_device_gave_back_are_a_gap_without_a_file_and_two_damages_at_one_position_two(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 35)
    path = tmp_path / "00000000000000000010.log"
    for bit in (0, 1):
        flip(path, 4 * SIZE + 70, bit)
        driven = driven.reopen(was_clean=False)
    kept = f"00000000000000000010.log.corrupt-{4 * SIZE}"
    gaps = (OffsetGap(14, 15, kept), OffsetGap(15, 16, kept + ".2"))
    assert untimed(driven.log.gaps) == gaps
    assert (tmp_path / kept).read_bytes() != (tmp_path / f"{kept}.2").read_bytes()
    data = path.read_bytes()
    path.write_bytes(data[: 5 * SIZE] + bytes(2 * SIZE) + data[7 * SIZE :])
    driven = driven.reopen(was_clean=False)
    assert untimed(driven.log.gaps) == (*gaps, OffsetGap(17, 19, "-"))
    assert driven.offsets(skip_gaps=True) == without(35, 14, 15, 17, 18)
    assert names(tmp_path, "corrupt-0") == []


def test_what_is_cut_off_the_end_is_kept_beside_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driven = log_of(tmp_path, 8)
    path = Path(driven.log.active.log.path)
    flip(path, 7 * SIZE + 70, 0)
    tail = path.read_bytes()[7 * SIZE :]
    again = driven.reopen(was_clean=False)
    assert_whole(again, 7)
    assert Path(f"{path}.corrupt-{7 * SIZE}").read_bytes() == tail
    assert f"{SIZE} bytes after the last good batch, kept in" in caplog.text
    assert again.log.gaps == ()
    assert again.append(batch()).base_offset == 7


def test_promised_offsets_at_the_end_are_a_gap_and_are_not_given_out_again(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 8)
    path = Path(driven.log.active.log.path)
    flip(path, 7 * SIZE + 70, 0)
    again = driven.reopen(was_clean=False, recovery_point=8)
    kept = f"{path.name}.corrupt-{7 * SIZE}"
    assert untimed(again.log.gaps) == (OffsetGap(7, 8, kept),)
    assert [segment.base_offset for segment in again.log.segments] == [0], "the batch that covers the gap ends the log"
    assert again.append(batch(START_MS + 8)).base_offset == 8
    again.close()
    assert again.reopen(was_clean=True).offsets(skip_gaps=True) == without(9, 7)


def test_a_whole_segment_of_garbage_is_a_gap_and_at_the_end_no_log_end(tmp_path: Path) -> None:
    """Nothing good lies behind the cut there, so nothing says that those offsets were given out."""
    driven = log_of(tmp_path, 35)
    garbage = ["00000000000000000000.log", "00000000000000000020.log", "00000000000000000030.log"]
    for name in garbage:
        (tmp_path / name).write_bytes(b"!" * SIZE)
    again = driven.reopen(was_clean=False)
    assert untimed(again.log.gaps) == (OffsetGap(0, 10, "00000000000000000000.log.corrupt-0"),)
    assert again.offsets(skip_gaps=True) == list(range(10, 20))
    assert (tmp_path / "00000000000000000000.log").read_bytes() == b""
    assert names(tmp_path, "corrupt-0") == [f"{name}.corrupt-0" for name in garbage]
    assert again.append(batch()).base_offset == 20


def test_segments_are_scanned_from_the_one_on_that_holds_the_recovery_point(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 35)
    flip(tmp_path / "00000000000000000000.log", 70, 0)
    path = tmp_path / "00000000000000000010.log"
    path.write_bytes(path.read_bytes()[: 7 * SIZE - 1])
    gap = OffsetGap(16, 20, f"{path.name}.corrupt-{6 * SIZE}")
    again = driven.reopen(was_clean=False, recovery_point=20 - 1)
    assert untimed(again.log.gaps) == (gap,)
    assert again.log.log_end_offset == 35
    again = driven.reopen(was_clean=False, recovery_point=5)
    assert untimed(again.log.gaps) == (OffsetGap(0, 1, "00000000000000000000.log.corrupt-0"), gap)
    assert again.offsets(skip_gaps=True) == without(35, 0, *range(16, 20))


@pytest.mark.parametrize("offset", [0, 1, 2**31], ids=["an old one", "the same", "above 32 bits"])
def test_an_offset_that_cannot_follow_ends_the_log(tmp_path: Path, offset: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing says that the one above 32 bits is no flipped bit."""
    (tmp_path / "00000000000000000000.log").write_bytes(batch() + batch(base_offset=1) + batch(base_offset=offset))
    assert open_driven(tmp_path, was_clean=False).offsets() == [0, 1]
    assert "are not in 2 to 2147483648" in caplog.text
    assert (tmp_path / f"00000000000000000000.log.corrupt-{2 * SIZE}").exists()


def test_a_legacy_message_format_ends_the_log_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = struct.pack(">bbqii", 1, 0, START_MS, -1, 40) + bytes(40)
    legacy = struct.pack(">qiI", 1, len(body) + 4, zlib.crc32(body)) + body
    (tmp_path / "00000000000000000000.log").write_bytes(batch() + legacy)
    again = open_driven(tmp_path, was_clean=False)
    assert again.offsets() == [0]
    assert "magic 1, a legacy message format" in caplog.text


def test_all_that_was_scanned_is_synced_before_the_log_is_served(tmp_path: Path) -> None:
    driven = log_of(tmp_path, 25)
    fs = GateFileSystem()
    open_driven(tmp_path, fs=fs, config=SMALL, was_clean=False, recovery_point=12)
    stems = ("00000000000000000010", "00000000000000000020")
    expected = [f"{stem}{suffix}" for stem in stems for suffix in (".log", ".index", ".timeindex")]
    snapshots = [f"{offset:020}.snapshot" for offset in (10, 20, 25)]
    assert fs.synced[-10:] == [*expected, *snapshots, f"{tmp_path}/"]
    assert driven.log.recovery_point == 0


def test_a_log_that_cannot_be_synced_after_recovery_is_not_served(tmp_path: Path) -> None:
    log_of(tmp_path, 5)
    fs = GateFileSystem()
    fs.fail("sync", number=errno.EIO, times=None)
    with pytest.raises(OSError, match="Input/output error"):
        open_driven(tmp_path, fs=fs, config=SMALL, was_clean=False)


def test_leader_epochs_are_restored_from_the_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka: LogLoaderTest.testLogRecoversForLeaderEpoch, LogSegmentTest.testRecoveryRebuildsEpochCache. A file that cannot be
    read is forgotten with a warning."""
    driven = open_driven(tmp_path)
    for epoch, offset in ((1, 0), (2, 1), (2, 2), (3, 3)):
        driven.log.leader_epochs.assign(epoch, offset)
        driven.append(batch())
    (tmp_path / LEADER_EPOCH_FILE).unlink()
    again = driven.reopen(was_clean=False)
    assert again.log.leader_epochs.entries == ((1, 0), (2, 1), (3, 3))
    assert (tmp_path / LEADER_EPOCH_FILE).read_text() == "0\n3\n1 0\n2 1\n3 3\n"
    again.close()
    (tmp_path / LEADER_EPOCH_FILE).write_text("nonsense")
    assert again.reopen(was_clean=True).offsets() == [0, 1, 2, 3]
    assert "leader epochs lost" in caplog.text


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_log_goes_on_as_if_it_had_not_been_closed(tmp_path: Path, was_clean: bool) -> None:
    """Kafka: LogLoaderTest.testReopenThenTruncate."""
    driven = log_of(tmp_path, 15)
    if was_clean:
        driven.close()
    again = driven.reopen(was_clean=was_clean)
    for offset in range(15, 35):
        again.append(batch(START_MS + offset))
    assert [segment.base_offset for segment in again.log.segments] == [0, 10, 20, 30]
    assert_whole(again, 35)
    again.run(truncate_to(again.log, 3))
    assert (len(again.log.segments), again.log.log_end_offset, again.offsets()) == (1, 3, [0, 1, 2])


def test_rolling_by_time_goes_on_from_the_first_batch_on_disk(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=1000)
    driven = open_driven(tmp_path, config=config)
    driven.append(batch(START_MS))
    driven.close()
    again = driven.reopen(was_clean=True)
    again.append(batch(START_MS + 1000))
    assert len(again.log.segments) == 1
    again.append(batch(START_MS + 1001))
    assert len(again.log.segments) == 2


def stopped_log(directory: Path | str, records: int, fs: FileSystem | None = None) -> DrivenLog:
    """One record per batch, ten to a segment, stopped."""
    driven = log_of(directory, records, fs=fs)
    driven.close()
    return driven


@pytest.mark.parametrize(
    ("was_clean", "recovery_point", "log_start_offset"), [(True, 0, 0), (False, 30, 0), (False, 30, 19), (False, 30, 20)]
)
def test_a_log_file_that_is_missing_in_the_middle_is_named_and_below_the_log_start_offset_not_missed(
    tmp_path: Path, was_clean: bool, recovery_point: int, log_start_offset: int
) -> None:
    """Retention took segments out; a power cut gave an older one and an index of a later one their names back."""
    driven = stopped_log(tmp_path, 35)
    (tmp_path / "00000000000000000010.log").unlink()
    before, options = names(tmp_path, ""), {"recovery_point": recovery_point, "log_start_offset": log_start_offset}
    if log_start_offset == 20:
        reopened = driven.reopen(was_clean=was_clean, **options)
        assert [offset for offset in reopened.offsets() if offset >= 20] == list(range(20, 35))
        return
    with pytest.raises(StorageError, match=r"00000000000000000010\.log is missing\. Put it back") as caught:
        driven.reopen(was_clean=was_clean, **options)
    assert "00000000000000000010.index" in str(caught.value)
    assert names(tmp_path, "") == before


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_hole_that_a_power_cut_or_no_file_accounts_for_is_stepped_over(tmp_path: Path, was_clean: bool) -> None:
    """Compaction and truncation leave holes too."""
    driven = stopped_log(tmp_path, 35)
    for path in tmp_path.glob("00000000000000000010.*" if was_clean else "00000000000000000010.log"):
        path.unlink()
    assert driven.reopen(was_clean=was_clean).offsets() == [*range(10), *range(20, 35)]


@pytest.mark.parametrize("log_start_offset", [0, 20])
def test_files_of_a_segment_that_is_on_its_way_out_tell_of_no_hole(tmp_path: Path, log_start_offset: int) -> None:
    """Of the renames of a deletion a power cut keeps any: here an older segment has its name back, and two indexes have. The
    checkpoint of the log start may be older than the deletion."""
    driven = stopped_log(tmp_path, 35)
    log = tmp_path / "00000000000000000010.log"
    log.rename(f"{log}.deleted")
    reopened = driven.reopen(was_clean=False, recovery_point=30, log_start_offset=log_start_offset)
    assert reopened.offsets() == [offset for offset in (*range(10), *range(20, 35)) if offset >= log_start_offset]
    assert not [name for name in names(tmp_path, "") if name.startswith("00000000000000000010")]


def test_no_file_of_a_deletion_is_unlinked_before_all_new_names_are_on_the_device() -> None:
    """A server was killed behind the renames: a power cut during the start must not leave the first without the second."""
    rng = draws(3)
    bases = ("00000000000000000000", "00000000000000000010")
    stopped = CrashFileSystem()
    stopped_log("/topic-0", 35, stopped)
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
    driven = stopped_log(tmp_path / "log", 35)
    zero, five, ten = (tmp_path / "log" / f"{base:020}.log" for base in (0, 5, 10))
    whole, second = zero.read_bytes(), ten.read_bytes()
    other = b"".join(batch(START_MS, base_offset=offset) for offset in range(38))
    for contents, why in (
        ({five: whole}, r"whole batches, the first at position \d+, have impossible offsets"),
        ({zero: second, ten: whole}, "replace it with the right one or move it away"),
        ({zero: other}, "A file of another log or another segment"),
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
        with pytest.raises(StorageError, match=r"is not named after a base offset of 20 digits\. Move it away"):
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


@pytest.mark.merge
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
    assert f"{INT32_MAX + 2:020}.snapshot" in names(tmp_path, "")
