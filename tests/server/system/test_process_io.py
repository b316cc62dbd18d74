"""What a process has written to disks."""

from __future__ import annotations

from pathlib import Path

from triolog.server.system.block_devices import process_written_bytes


def test_it_is_the_kernel_s_count_and_not_known_where_the_system_does_not_tell(tmp_path: Path) -> None:
    told = tmp_path / "io"
    assert process_written_bytes(str(told)) is None
    told.write_text("rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n")
    assert process_written_bytes(str(told)) == 8192
    told.write_text("rchar: 5\nwrite_bytes: many\n")
    assert process_written_bytes(str(told)) is None
