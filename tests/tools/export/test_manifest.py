from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from triolog.tools.export.manifest import VERSION, Manifest, ManifestError, replace_file

from tests.support.counting_fs import synced_inodes


def opened(path: Path, job: str = "export", **settings: Any) -> Manifest:
    return Manifest.open(path, job, {"topics": ("a", "b"), **settings})


def written(**other: Any) -> str:
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
        ("", "is no manifest of a job"),
        ("{}", "is no manifest of a job"),
        ("[]", "is no manifest of a job"),
        ('{"version": 3, "job": "export"}', "version 3"),
        (written(settings=[]), "settings is of another type"),
        (written(plan={}), "plan is of another type"),
        (written(done=[1]), "done is of another type"),
        (written(done={"x": 1}), "done is of another type"),
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
    with pytest.raises(ManifestError, match="is of the job export"):
        opened(path, "verify", walk=True)
    with pytest.raises(ManifestError, match="was begun with walk=True, this run has False; use the same settings"):
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
    with pytest.raises(ManifestError, match=r"^b has changed since .*manifest\.json was begun; delete the manifest"):
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
    with pytest.raises(ManifestError, match="is of the job verify"):
        Manifest.open(path, "compact", {}, is_repeatable=True)


def test_file_and_its_name_are_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its name a power cut would leave no manifest, and a second load would write all rows again."""
    synced = synced_inodes(monkeypatch)
    replace_file(tmp_path / "manifest.json", b"{}")
    assert synced == {(tmp_path / "manifest.json").stat().st_ino, tmp_path.stat().st_ino}
