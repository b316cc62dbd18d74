from __future__ import annotations

from pathlib import Path

from triolog.tools.demo.disk_usage import partition_usage


def test_files_segments_and_entries_are_counted(tmp_path: Path) -> None:
    for name, size in {
        "00000000000000000000.log": 100,
        "00000000000000000000.index": 3 * 8,
        "00000000000000000000.timeindex": 2 * 12,
        "00000000000000000007.log": 50,
        "00000000000000000007.index": 0,
        "00000000000000000007.timeindex": 12,
        "leader-epoch-checkpoint": 9,
    }.items():
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "folder").mkdir()
    usage = partition_usage(tmp_path)
    assert (usage.files, usage.segments, usage.log_bytes, usage.total_bytes) == (7, 2, 150, 219)
    assert (usage.offset_index_entries, usage.time_index_entries) == (3, 3)
    assert usage.first_log == tmp_path / "00000000000000000000.log"
