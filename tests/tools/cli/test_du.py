from __future__ import annotations

import json
import os
from pathlib import Path

from click.testing import Result
from triolog.server.storage.directory.log_directory import DirectoryLock
from triolog.tools.cli.terminal.output import size_text

from tests.support.drawings import Drawing
from tests.support.stopped_logs import StoppedLogs

from .conftest import call


def du(*arguments: object) -> Result:
    return call("du", *arguments)


def test_the_parts_are_what_the_system_says(logs: StoppedLogs) -> None:
    document = json.loads(du("--json", logs.path).stdout)
    files = [path for path in logs.path.rglob("*") if path.is_file()]
    parts = [*document["partitions"], document["beside_partitions"]]
    assert sum(part["logical_bytes"] for part in parts) == sum(path.stat().st_size for path in files)
    folders = [path for path in logs.path.rglob("*") if path.is_dir()]
    allocated = sum(path.stat().st_blocks * 512 for path in [*files, *folders])
    assert sum(part["allocated_bytes"] for part in parts) == allocated


def test_a_segment_is_as_old_as_its_largest_timestamp_and_a_sparse_index_takes_less_than_its_length(logs: StoppedLogs) -> None:
    segments = json.loads(du("--json", logs.path).stdout)["partitions"][0]["segments"]
    (records,) = (each for partition, each in logs.records.items() if partition.partition == 0)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        end = 2**63 if following is None else following["base_offset"]
        mine = [record.timestamp for record in records if segment["base_offset"] <= record.offset < end]
        assert segment["largest_timestamp"] >= max(mine)
    index = sorted(logs.partition().glob("*.timeindex"))[-1]
    index.write_bytes(index.read_bytes() + bytes(12 * 1000))
    sparse = sorted(logs.partition().glob("*.index"))[-1]
    os.truncate(sparse, 10 << 20)
    last = json.loads(du("--json", logs.path).stdout)["partitions"][0]["segments"][-1]
    assert last["largest_timestamp"] == segments[-1]["largest_timestamp"], "zeros are no age"
    assert last["indexes"]["logical_bytes"] > 10 << 20
    assert last["indexes"]["allocated_bytes"] < 1 << 20


def test_a_view_has_bars_and_a_sum_also_under_a_running_server(logs: StoppedLogs, tmp_path: Path) -> None:
    lock = DirectoryLock.acquire(str(logs.path))
    try:
        for view, first in (("topic", "flights (2 partitions)"), ("partition", "flights-0"), ("age", "up to 1 hour")):
            text = du(logs.path, "--by", view).stdout
            assert first in text
            assert "█" in text
            assert text.splitlines()[-1].startswith("2 partitions, ")
        text = du(logs.path, "--by", "segment").stdout
        assert all(f"flights-1/{log.stem}" in text for log in logs.partition(1).glob("*.log"))
    finally:
        lock.release()
    assert du(tmp_path).exit_code == 3, "it is no log directory"
    (tmp_path / "other" / "flights-0").mkdir(parents=True)
    assert du(tmp_path / "other", "--by", "segment").stdout.splitlines()[-1].startswith("1 partition, 0 B of content")


def test_a_picture_has_the_bytes_of_the_view(logs: StoppedLogs, tmp_path: Path) -> None:
    path = tmp_path / "du.svg"
    document = json.loads(du("--json", logs.path).stdout)
    parts = [*document["partitions"], document["beside_partitions"]]
    size = size_text(sum(part["allocated_bytes"] for part in parts))
    for view, expected in (("topic", "flights-1"), ("partition", "flights-0"), ("segment", "flights-0/0"), ("age", "older")):
        said = du(logs.path, "--by", view, "--svg", path).stdout
        assert said == f"a picture of {path.stat().st_size:,} bytes in {path}\n"
        drawing = Drawing(path.read_text())
        assert expected in drawing.texts
        assert any(text.endswith(f", {size} on disk") for text in drawing.texts)
    assert Drawing(du(logs.path, "--svg=-").stdout).title == f"room on the disk: {logs.path}"
    assert du(logs.path, "--svg=-", "--json").exit_code == 2
