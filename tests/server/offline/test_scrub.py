from __future__ import annotations

import errno
import io
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from triolog.server.config import LogConfig
from triolog.server.offline.scrub import scrub_file, scrub_for_server
from triolog.server.storage.child_process import ParentWatch
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.log.log import Log

from tests.server.offline.test_verify import flip
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import DrivenLog, batch, open_driven

FS = OsFileSystem()


@pytest.fixture
def driven(tmp_path: Path) -> DrivenLog:
    opened = open_driven(tmp_path, config=LogConfig(segment_bytes=2000))
    for number in range(60):
        opened.append(batch(value=b"%060d" % number))
    return opened


def orders(log: Log) -> list[dict[str, Any]]:
    return [
        {"path": each.log.path, "size": each.size, "base_offset": each.base_offset, "end_offset": following.base_offset}
        for each, following in pairwise(log.segments)
    ]


def answers(lines: list[dict[str, Any]], fs: OsFileSystem = FS) -> list[dict[str, Any]]:
    source = io.StringIO("".join(json.dumps(line) + "\n" for line in [{"max_bytes_per_second": 0}, *lines]))
    output = io.StringIO()
    scrub_for_server(fs, source, output, ParentWatch(os.getppid()))
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_damaged_batch_is_told_with_its_place_and_offsets(driven: DrivenLog) -> None:
    first, second, *rest = orders(driven.log)
    flip(Path(second["path"]), 200, 2)
    good, damaged, *others = answers([first, second, *rest])
    assert good == {"damages": []}
    assert others == [{"damages": []}] * len(rest)
    ((position, size, first_offset, next_offset, reason),) = damaged["damages"]
    assert position <= 200 < position + size
    assert second["base_offset"] < first_offset == next_offset - 1
    assert "CRC" in reason


def test_a_segment_that_is_gone_or_another_is_passed_over(driven: DrivenLog) -> None:
    first, second, *_ = orders(driven.log)
    Path(first["path"]).unlink()
    assert answers([first, second | {"size": second["size"] - 1}]) == [{"gone": first["path"]}, {"gone": second["path"]}]


def test_a_file_that_the_disk_refuses_is_told(driven: DrivenLog) -> None:
    fs = GateFileSystem()
    fs.fail("read", number=errno.EIO, times=None)
    (order, *_) = orders(driven.log)
    assert answers([order], fs) == [{"error": f"{order['path']}: Input/output error"}]


def test_the_bytes_that_are_spent_are_those_of_the_file(driven: DrivenLog) -> None:
    (order, *_) = orders(driven.log)
    spent: list[int] = []
    scrub_file(FS, order["path"], order["size"], order["base_offset"], order["end_offset"], spend=spent.append)
    assert sum(spent) == order["size"]
