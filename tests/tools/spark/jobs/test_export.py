"""The files of one piece of an export: days, names, and what a second attempt leaves."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_TIMESTAMP
from triolog.server.embedded import BlockingBroker
from triolog.tools.spark.jobs.export import MAX_OPEN_DAYS, NO_DAY, TEMPORARY, Export, export_piece
from triolog.tools.spark.jobs.log_pieces import LogSource, plan_pieces
from triolog.tools.spark.jobs.manifest import Manifest
from triolog.tools.spark.jobs.runner import JobError
from triolog.tools.spark.segment_reader import SegmentGoneError

DAY_MS = 86_400_000
Row = tuple[int | None, bytes | None, bytes | None, tuple[()]]
"""Time (None: no timestamp), key, value, headers."""


def written(path: Path, rows: list[Row]) -> Path:
    with BlockingBroker(path / "data", durability="os", config={"retention.ms": "-1"}) as broker:
        broker.create_topic("t")
        broker.append("t", build_batch((NO_TIMESTAMP if at is None else at, *rest) for at, *rest in rows))
    return path / "data"


def exported(path: Path, rows: list[Row], columns: tuple[str, ...] = ("value", "offset")) -> tuple[dict[str, object], Path]:
    source = LogSource(directories=(str(written(path, rows)),), topics=("t",))
    [piece] = plan_pieces(source, Manifest.open(None, "export", {}))
    job = Export(source=source, target=str(path / "out"), columns=columns)
    export_piece(job, piece.what)
    return export_piece(job, piece.what), path / "out"


def test_piece_that_is_run_again_replaces_its_files(tmp_path: Path) -> None:
    result, target = exported(
        tmp_path, [(DAY_MS, None, b"a", ()), (2 * DAY_MS - 1, None, b"b", ()), (2 * DAY_MS, None, b"c", ())]
    )
    assert result["files"] == [
        "topic=t/day=1970-01-02/part-00000-00000000000000000000.parquet",
        "topic=t/day=1970-01-03/part-00000-00000000000000000000.parquet",
    ]
    assert (result["records"], result["first_offset"], result["last_offset"]) == (3, 0, 2)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.parquet")) == result["files"]
    assert list((target / TEMPORARY).iterdir()) == []


def test_more_days_than_may_be_open_become_more_files(tmp_path: Path) -> None:
    days = 2 * MAX_OPEN_DAYS
    rows: list[Row] = [((number % days + 1) * DAY_MS, None, b"%d" % number, ()) for number in range(3 * days)]
    result, target = exported(tmp_path, rows)
    table = ds.dataset(target / "topic=t", partitioning="hive").to_table()
    assert sorted(table.column("offset").to_pylist()) == list(range(3 * days))
    assert len({row["day"] for row in table.to_pylist()}) == days
    assert result["records"] == 3 * days


def test_columns_are_those_asked_for_and_records_without_a_time_have_no_day(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="size"):
        Export(source=LogSource(directories=()), target="", columns=("size",))
    result, target = exported(tmp_path, [(None, b"k", b"v", ())], columns=("key", "headers"))
    assert result["files"] == [f"topic=t/day={NO_DAY}/part-00000-{0:020}.parquet"]
    assert ds.dataset(target / "topic=t").to_table().to_pylist() == [{"key": b"k", "headers": []}]


def test_segment_that_was_deleted_meanwhile_is_named(tmp_path: Path) -> None:
    source = LogSource(directories=(str(written(tmp_path, [(DAY_MS, None, b"a", ())])),), topics=("t",))
    [piece] = plan_pieces(source, Manifest.open(None, "export", {}))
    log = Path(piece.what[0].path)
    log.unlink()
    with pytest.raises(SegmentGoneError, match=str(log)):
        export_piece(Export(source=source, target=str(tmp_path / "out")), piece.what)


def test_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = LogSource(directories=(str(written(tmp_path, [(DAY_MS, None, b"a", ())])),), topics=("absent",))
    with pytest.raises(JobError, match="there is no partition of topic absent"):
        plan_pieces(source, Manifest.open(None, "export", {}))
