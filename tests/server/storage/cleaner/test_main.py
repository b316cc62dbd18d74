"""What the cleaner's process says, line by line."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from triolog.server.config import LogConfig
from triolog.server.storage.child_process import ParentWatch, ServerGoneError
from triolog.server.storage.cleaner.__main__ import clean_for_server
from triolog.server.storage.cleaner.job import CleaningJob
from triolog.server.storage.cleaner.selection import choose, plan_round
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem

from tests.server.offline.test_verify import flip
from tests.support.compaction import put
from tests.support.logs import open_driven


def job_of(directory: Path, **settings: Any) -> CleaningJob:
    """A round over five segments of two records, each of which stays alone."""
    driven = open_driven(directory, config=LogConfig(cleanup_policy=("compact",), segment_bytes=200))
    for number in range(10):
        put(driven, number % 2, number)
    driven.roll()
    driven.flush()
    return plan_round(driven.log, drive(driven.fs, choose(driven.log, None, 0)), 0, map_bytes=1 << 14, **settings)


def lines_of(job: CleaningJob, answers: int) -> list[dict[str, Any]]:
    output = io.StringIO()
    source = io.StringIO(job.encode().decode() + "next\n" * answers)
    try:
        clean_for_server(OsFileSystem(), source, output, ParentWatch(os.getppid()))
    finally:
        lines = [json.loads(line) for line in output.getvalue().splitlines()]
    return lines


def test_a_line_for_each_group_and_one_for_the_result(tmp_path: Path) -> None:
    lines = lines_of(job_of(tmp_path), 100)
    assert [list(line) for line in lines] == [["group"]] * (len(lines) - 1) + [["result"]]
    assert [offset for line in lines[:-1] for offset in line["group"][0]] == [0, 2, 4, 6, 8]
    next_dirty_offset, bytes_read, _, keys, keyless = lines[-1]["result"]
    assert (next_dirty_offset, keys, keyless) == (10, 2, 0)
    assert bytes_read > 0


def test_it_goes_on_only_when_it_is_told_to(tmp_path: Path) -> None:
    with pytest.raises(ServerGoneError):
        lines_of(job_of(tmp_path), 1)
    assert {path.name[:20] for path in tmp_path.iterdir() if path.suffix == ".cleaned"} == {f"{base:020d}" for base in (0, 2)}


@pytest.mark.parametrize(
    ("name", "damage", "kind", "error"),
    [
        ("00000000000000000004.log", lambda path: flip(path, -1, 0), "damage", "CRC"),
        ("00000000000000000004.log", Path.unlink, "gone", "00000000000000000004.log"),
        ("00000000000000000000.log.cleaned", Path.mkdir, "disk", ""),
    ],
)
def test_what_ends_a_round_is_told_as_such(
    tmp_path: Path, name: str, damage: Callable[[Path], None], kind: str, error: str
) -> None:
    job = job_of(tmp_path)
    damage(tmp_path / name)
    [line] = lines_of(job, 1)
    assert line["kind"] == kind
    assert error in line["error"]
