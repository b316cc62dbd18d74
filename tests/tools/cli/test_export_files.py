from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import triolog
from triolog.protocol.records.builder import build_batch
from triolog.tools.export import layout
from triolog.tools.export.layout import MANIFEST, SUCCESS, Export, export_piece
from triolog.tools.export.log_pieces import LogSource, plan_pieces
from triolog.tools.export.manifest import Manifest

from .conftest import call

DAY_MS: Final = 86_400_000
COUNT: Final = 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, one of two partitions with a record each for days 1 to 20."""
    path = tmp_path_factory.mktemp("export") / "data"
    with triolog.blocking.open(path, durability="os", config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("u")
        for number in range(COUNT):
            value = b'{"n": %d, "text": "a, b"}' % number
            rows = [((1 + number // 2) * DAY_MS, b"k%d" % number, value, ())]
            broker.append("t", build_batch(rows), partition=number % 2)
        broker.append("u", [b"\xff", None])
    return path


def files(target: Path) -> dict[str, bytes]:
    """What is there, but for the manifest, which names the source."""
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.suffix != ".json" and path.is_file()
    }


def read_arrow(path: Path) -> list[dict[str, Any]]:
    return pa.ipc.open_file(path).read_all().to_pylist()


def read_parquet(path: Path) -> list[dict[str, Any]]:
    return ds.dataset(path).to_table().to_pylist()


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return [row | {name: int(row[name]) for name in ("partition", "offset")} for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("format_name", "read"), [("parquet", read_parquet), ("arrow", read_arrow), ("jsonl", read_lines), ("csv", read_csv)]
)
def test_every_record_is_in_the_file_of_its_day(
    data: Path, tmp_path: Path, format_name: str, read: Callable[[Path], list[dict[str, Any]]]
) -> None:
    result = call("export", data, "--topic", "t", "--format", format_name, "--target", tmp_path, "--partition-by", "day")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{COUNT} records in {COUNT} files, ")
    [first, second] = sorted((tmp_path / "topic=t" / "day=1970-01-04").iterdir())
    assert first.name == f"part-00000-{0:020}.{format_name}"
    for partition, path in enumerate((first, second)):
        [found] = read(path)
        value = found["value"]
        assert json.loads(value)["n"] == 4 + partition
        assert (found["partition"], found["offset"]) == (partition, 2)
    assert (tmp_path / SUCCESS).exists()


def test_the_files_are_those_of_sparks_job(data: Path, tmp_path: Path) -> None:
    """Its tasks do no more than `export_piece`."""
    assert call("export", data, "--format", "parquet", "--target", tmp_path / "cli").exit_code == 0
    job = Export(source=LogSource(directories=(str(data),)), target=str(tmp_path / "spark"))
    for piece in plan_pieces(job.source, Manifest.open(None, "export", {})):
        export_piece(job, piece.what)
    expected = files(tmp_path / "spark")
    found = files(tmp_path / "cli")
    del found[SUCCESS]
    assert found == expected
    assert len(expected) == COUNT + 1


def test_offsets_and_times_bound_what_comes(data: Path, tmp_path: Path) -> None:
    times = ("--from-time", f"@{6 * 86400}", "--to-time", f"@{9 * 86400}")
    asked = ("--format", "jsonl", "--from-offset", 3, "--to-offset", 10, *times)
    assert call("export", data, "--topic", "t", "--target", tmp_path, *asked).exit_code == 0
    found = [row["offset"] for path in sorted(tmp_path.rglob("part-00000*")) for row in read_lines(path)]
    assert found == [5, 6, 7]


KILLED: Final = """
import os, sys
from triolog.tools.cli.main import main
from triolog.tools.export import manifest
add = manifest.Manifest.add
def add_and_die(self, results):
    add(self, results)
    os._exit(9)
manifest.Manifest.add = add_and_die
main(sys.argv[1:])
"""


def test_an_export_that_is_killed_goes_on(data: Path, tmp_path: Path) -> None:
    """It dies when its first piece is in the manifest, with leftovers of another."""
    target = tmp_path / "out"
    asked = ["export", str(data), "--format", "parquet", "--target", str(target)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *asked], capture_output=True, timeout=120)
    assert killed.returncode == 9, killed.stderr
    manifest = json.loads((target / MANIFEST).read_text())
    assert 0 < len(manifest["done"]) < len(manifest["plan"])
    assert not (target / SUCCESS).exists()
    done = {name for result in manifest["done"].values() for name in result["files"]}
    before = {name: (target / name).stat().st_mtime_ns for name in done}
    (target / layout.TEMPORARY / "piece").mkdir(parents=True)
    (target / layout.TEMPORARY / "piece" / "half").write_bytes(b"PAR1")
    assert call(*asked).exit_code == 0
    assert {name: (target / name).stat().st_mtime_ns for name in done} == before
    whole = tmp_path / "whole"
    assert call(*asked[:-1], whole).exit_code == 0
    assert files(target) == files(whole)


def test_what_cannot_be_exported_is_one_line(data: Path, tmp_path: Path) -> None:
    assert "need --target FOLDER" in call("export", data, "--format", "parquet").stderr
    assert "need --target FOLDER" in call("export", data, "--partition-by", "day").stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    refused = call("export", data, "--target", tmp_path / "mine")
    assert refused.exit_code == 1
    assert "holds letter" in refused.stderr
    assert "no partition of topic no" in call("export", data, "--topic", "no", "--target", tmp_path / "a").stderr
    damaged = shutil.copytree(data, tmp_path / "damaged")
    log = damaged / "t-0" / f"{0:020}.log"
    data_of = bytearray(log.read_bytes())
    data_of[80] ^= 1
    log.write_bytes(data_of)
    stopped = call("export", damaged, "--target", tmp_path / "b")
    assert stopped.exit_code == 1
    assert "position 0" in stopped.stderr
    assert len(stopped.stderr.splitlines()) == 1
