from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import RECOVERY_POINT_FILE, encode_offsets
from triolog.tools.segments.segment_damage import DamagedSegmentError, ReadMode
from triolog.tools.segments.segment_times import first_offset_at

from tests.support.segment_files import SPOILS, START_MS, DrawnBatch, drawn_batches, spoil, write_log
from tests.tools.segments.test_segment_reader import log_in


@given(
    segments=st.lists(drawn_batches(), min_size=1, max_size=3),
    index_interval_bytes=st.sampled_from((0, 100, 500)),
    spoils=st.lists(st.tuples(st.sampled_from(SPOILS), st.sampled_from(SPOILS)), min_size=3, max_size=3),
    noise=st.binary(max_size=48),
    log_start_offset=st.integers(0, 12),
)
def test_a_time_is_found_where_looking_at_every_record_finds_it(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[DrawnBatch]],
    index_interval_bytes: int,
    spoils: list[tuple[str, str]],
    noise: bytes,
    log_start_offset: int,
) -> None:
    root = tmp_path_factory.mktemp("log")
    written = write_log(root / "topic-0", segments, index_interval_bytes=index_interval_bytes)
    for log_path, (of_offsets, of_times) in zip(sorted(written.directory.glob("*.log")), spoils, strict=False):
        spoil(log_path.with_suffix(".index"), of_offsets, noise)
        spoil(log_path.with_suffix(".timeindex"), of_times, noise)
    (root / "log-start-offset-checkpoint").write_bytes(f"0\n1\ntopic 0 {log_start_offset}\n".encode())
    log = log_in(root)
    for time in range(-1, 42):
        expected = next(
            (each.offset for each in written.records if each.offset >= log_start_offset and each.timestamp >= START_MS + time),
            None,
        )
        assert first_offset_at(log, START_MS + time) == expected, f"asked for {time}"
    shutil.rmtree(root)


def ordered(batches: int) -> list[DrawnBatch]:
    return [DrawnBatch(times=(10 * slot, 10 * slot + 5), value_bytes=100) for slot in range(batches)]


@pytest.mark.parametrize("points", [{TopicPartition("topic", 0): 20}, {}, None], ids=["below", "not there", "no file"])
def test_an_unfinished_index_is_not_taken_for_the_whole_segment(
    tmp_path: Path, points: dict[TopicPartition, int] | None
) -> None:
    written = write_log(tmp_path / "topic-0", [ordered(40), ordered(3)], index_interval_bytes=300)
    closed = min(written.directory.glob("*.timeindex"))
    closed.write_bytes(closed.read_bytes()[: 12 * 3])
    written_time = START_MS + 390
    if points is not None:
        (tmp_path / RECOVERY_POINT_FILE).write_bytes(encode_offsets(points))
    assert first_offset_at(log_in(tmp_path), written_time) == 78


def test_a_lookup_reads_a_few_batches_only(tmp_path: Path) -> None:
    """Everything but the neighbourhood of the answer may be unreadable."""
    written = write_log(tmp_path / "topic-0", [ordered(400)], index_interval_bytes=500)
    log = log_in(tmp_path)
    with written.log_path.open("r+b") as file:
        size = written.batches[1][1]
        file.write(bytes(150 * size))
        file.seek(250 * size)
        file.write(bytes(100 * size))
    assert first_offset_at(log, START_MS + 2005, ReadMode.FAILFAST) == 401


def test_damage_before_the_answer_is_passed_over_or_refused(tmp_path: Path) -> None:
    written = write_log(tmp_path / "topic-0", [ordered(20)], index_interval_bytes=1 << 20)
    size = written.batches[1][1]
    log = log_in(tmp_path)
    with written.log_path.open("r+b") as file:
        file.seek(5 * size)
        file.write(bytes(size))
    assert first_offset_at(log, START_MS + 50) == 12
    with pytest.raises(DamagedSegmentError, match=f"{written.log_path}: position {5 * size}: zeros"):
        first_offset_at(log, START_MS + 50, ReadMode.FAILFAST)
