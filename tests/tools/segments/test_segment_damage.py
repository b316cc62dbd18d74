"""First bytes that the CRC does not cover: offsets that only the batches around them can prove."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from triolog.tools.segments import segment_reader
from triolog.tools.segments.segment_damage import DamagedSegmentError, ReadMode
from triolog.tools.segments.segment_times import first_offset_at
from triolog.tools.segments.splits import LogRange, SplitLimits, plan_splits

from tests.support.segment_files import START_MS, DrawnBatch, write_log
from tests.tools.segments.test_segment_reader import READ, log_in, offsets_of, overwrite, splits_of, uniform

LEFT_OUT = {ReadMode.PERMISSIVE: (), ReadMode.DROPMALFORMED: (10, 11)}


@given(
    mode=st.sampled_from(list(LEFT_OUT)),
    offset=st.sampled_from([11, 15, 19, 1 << 20]),
    chunk_bytes=st.sampled_from([6 * 117, 6 * 117 + 60]) | st.integers(61, 1500),
)
@example(mode=ReadMode.PERMISSIVE, offset=1 << 20, chunk_bytes=6 * 117)
@example(mode=ReadMode.DROPMALFORMED, offset=11, chunk_bytes=6 * 117 + 60)
def test_a_wrong_offset_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, mode: ReadMode, offset: int, chunk_bytes: int
) -> None:
    written = write_log(tmp_path_factory.mktemp("log") / "topic-0", [uniform(10), uniform(2)])
    splits = splits_of(log_in(written.directory))
    overwrite(written, 5, offset.to_bytes(8, "big"))
    found = offsets_of(splits, attrs.evolve(READ, mode=mode, chunk_bytes=chunk_bytes))
    assert found == [each for each in written.offsets() if each not in LEFT_OUT[mode]]
    with pytest.raises(DamagedSegmentError, match=f"position {5 * 117}: base_offset {offset} for 10"):
        offsets_of(splits, attrs.evolve(READ, mode=ReadMode.FAILFAST, chunk_bytes=chunk_bytes))


@pytest.mark.parametrize("mode", [*LEFT_OUT, ReadMode.FAILFAST])
@pytest.mark.parametrize("tail", [b"", bytes(70), bytes(7)], ids=len)
@pytest.mark.parametrize(("at", "damage"), [(16, b"\x7f"), (0, b"\x00\x00\x01")], ids=["magic", "offset"])
def test_the_last_batch_of_a_log_is_read_when_only_its_first_bytes_are_damaged(
    tmp_path: Path, at: int, damage: bytes, tail: bytes, mode: ReadMode
) -> None:
    written = write_log(tmp_path / "topic-0", [uniform(10)])
    with written.log_path.open("ab") as file:
        file.write(tail)
    overwrite(written, 9, damage, at=at)
    log = log_in(written.directory)
    assert log.end_offset == 20
    if mode is ReadMode.FAILFAST:
        with pytest.raises(DamagedSegmentError, match="position 1053"):
            offsets_of(splits_of(log), attrs.evolve(READ, mode=mode))
    else:
        lost = () if mode is ReadMode.PERMISSIVE else (18, 19)
        assert offsets_of(splits_of(log), attrs.evolve(READ, mode=mode)) == [each for each in range(20) if each not in lost]


@pytest.mark.parametrize("offset", [13, 1 << 40])
def test_planning_does_not_believe_an_offset_that_those_behind_it_contradict(tmp_path: Path, offset: int) -> None:
    batches = [DrawnBatch(times=(10 * slot, 10 * slot + 5)) for slot in range(10)]
    written = write_log(tmp_path / "topic-0", [batches], index_interval_bytes=1 << 20)
    overwrite(written, 5, offset.to_bytes(8, "big"))
    log = log_in(written.directory)
    assert log.end_offset == 20
    assert [first_offset_at(log, START_MS + 10 * slot + 5) for slot in range(4, 8)] == [9, 11, 13, 15]


@pytest.mark.parametrize("high", [4, 5, 6])
def test_a_batch_of_a_suspect_size_is_read_up_to_the_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, high: int) -> None:
    monkeypatch.setattr(segment_reader, "_LARGEST_TRUSTED_BATCH_BYTES", 150)
    written = write_log(tmp_path / "topic-0", [uniform(10, value_bytes=100)])
    wanted = LogRange(log=log_in(written.directory), low=1, high=high)
    read = attrs.evolve(READ, chunk_bytes=100, mode=ReadMode.FAILFAST)
    assert offsets_of(plan_splits([wanted], SplitLimits()), read) == list(range(1, high))
