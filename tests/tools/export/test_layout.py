from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import triolog
from pyarrow.parquet import ParquetWriter
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import NO_TIMESTAMP
from triolog.tools.export.layout import MAX_OPEN_DAYS, NO_DAY, TEMPORARY, DamagedLogError, Export, export_piece
from triolog.tools.export.log_pieces import LogSource, plan_pieces
from triolog.tools.export.manifest import VERSION, JobError, Manifest, ManifestError, replace_file

from tests.support.counting_fs import synced_inodes

DAY_MS = 86_400_000
Row = tuple[int | None, bytes | None, bytes | None, tuple[()]]
"""Time (None: no timestamp), key, value, headers."""


def written(path: Path, rows: list[Row]) -> Path:
    with triolog.blocking.open(path / "data", durability="os", config={"retention.ms": "-1"}) as broker:
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


def test_files_and_names_are_on_the_device_before_a_piece_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave a manifest and `_SUCCESS` beside Parquet files without content."""
    synced = synced_inodes(monkeypatch)
    result, target = exported(tmp_path, [(DAY_MS, None, b"a", ()), (2 * DAY_MS, None, b"b", ())])
    assert isinstance(result["files"], list)
    for name in result["files"]:
        for path in (target / name, *(target / parent for parent in Path(name).parents)):
            assert path.stat().st_ino in synced, path


def test_damage_is_reported_though_closing_what_was_begun_fails_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And there is no advice to read on with a mode that the job has not."""
    data = written(tmp_path, [(DAY_MS, None, b"a", ())])
    with triolog.blocking.open(data, durability="os", config={"retention.ms": "-1"}) as broker:
        broker.append("t", [(2 * DAY_MS, None, b"second", ())])
    source = LogSource(directories=(str(data),), topics=("t",))
    [piece] = plan_pieces(source, Manifest.open(None, "export", {}))
    log = Path(piece.what[0].path)
    log.write_bytes(log.read_bytes()[:-3] + b"???")

    really = ParquetWriter.close
    failures = [OSError(errno.ENOSPC, "No space left on device")]

    def close(self: ParquetWriter) -> None:
        if failures:
            raise failures.pop()
        really(self)

    monkeypatch.setattr(ParquetWriter, "close", close)
    with pytest.raises(DamagedLogError, match=f"^{log}: position .*`triolog repair` takes it out of the log$"):
        export_piece(Export(source=source, target=str(tmp_path / "out")), piece.what)
    assert failures == list((tmp_path / "out" / TEMPORARY).iterdir()) == []


def test_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = LogSource(directories=(str(written(tmp_path, [(DAY_MS, None, b"a", ())])),), topics=("absent",))
    with pytest.raises(JobError, match="no partition of topic absent"):
        plan_pieces(source, Manifest.open(None, "export", {}))


def opened(path: Path, job: str = "export", **settings: Any) -> Manifest:
    return Manifest.open(path, job, {"topics": ("a", "b"), **settings})


def manifest_text(**other: Any) -> str:
    """A manifest with something else in it."""
    parts = {"version": VERSION, "job": "export", "settings": {}, "files": {}, "plan": [], "done": {}, "is_complete": False}
    return json.dumps(parts | other)


def test_second_run_finds_plan_and_results_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "manifest.json"
    first = opened(path)
    assert first.planned(lambda: [("x", 1)]) == [["x", 1]]
    first.add({"x": {"records": 3}})
    second = opened(path)
    assert (second.done, second.is_complete) == ({"x": {"records": 3}}, False)
    assert second.planned(lambda: [("y", 2)]) == [["x", 1]]
    second.complete()
    assert opened(path).is_complete
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is not a manifest of a job"),
        ("{}", "is not a manifest of a job"),
        ("[]", "is not a manifest of a job"),
        ('{"version": 3, "job": "export"}', "version 3"),
        (manifest_text(settings=[]), "settings is of another type"),
        (manifest_text(plan={}), "plan is of another type"),
        (manifest_text(done=[1]), "done is of another type"),
        (manifest_text(done={"x": 1}), "done is of another type"),
    ],
)
def test_file_that_is_no_manifest_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with pytest.raises(ManifestError, match=complaint):
        opened(path)


def test_nothing_is_kept_without_a_path_and_another_job_or_other_settings_are_refused(tmp_path: Path) -> None:
    manifest = Manifest.open(None, "verify", {})
    manifest.add({"x": {}})
    manifest.complete()
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "manifest.json"
    opened(path, walk=True).complete()
    with pytest.raises(ManifestError, match="belongs to the job export"):
        opened(path, "verify", walk=True)
    with pytest.raises(ManifestError, match="was begun with walk=True, this run has False"):
        opened(path, walk=False)


def test_settings_in_an_error_are_short(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    opened(path, names=["x" * 1000]).complete()
    with pytest.raises(ManifestError) as caught:
        opened(path, names=["y" * 1000])
    assert len(str(caught.value)) < 400


def test_manifest_of_files_that_have_changed_names_the_first_one(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    Manifest.open(path, "verify", {}, files={"a": [1], "b": [2]}).add({"x": {}})
    assert Manifest.open(path, "verify", {}, files={"a": [1], "b": [2]}).done == {"x": {}}
    with pytest.raises(ManifestError, match=r"^b has changed since .*manifest\.json was begun\. Delete the manifest"):
        Manifest.open(path, "verify", {}, files={"a": [1], "b": [3]})


def test_finished_manifest_of_a_job_that_looks_at_what_is_there_now_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    first = Manifest.open(path, "verify", {}, files={"a": 1}, is_repeatable=True)
    first.add({"x": {}})
    assert Manifest.open(path, "verify", {}, files={"a": 1}, is_repeatable=True).done == {"x": {}}
    first.complete()
    assert Manifest.open(path, "verify", {}, files={"a": 1}).done == {"x": {}}
    again = Manifest.open(path, "verify", {"walk": False}, files={"a": 2}, is_repeatable=True)
    assert (again.done, again.plan, again.is_complete) == ({}, None, False)
    with pytest.raises(ManifestError, match="belongs to the job verify"):
        Manifest.open(path, "compact", {}, is_repeatable=True)


def test_file_and_its_name_are_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its name a power cut would leave no manifest, and a second load would write all rows again."""
    synced = synced_inodes(monkeypatch)
    replace_file(tmp_path / "manifest.json", b"{}")
    assert synced == {(tmp_path / "manifest.json").stat().st_ino, tmp_path.stat().st_ino}
