"""Manifests: what a second run finds, and which ones it does not go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.tools.spark.jobs.manifest import Manifest, ManifestError


def opened(path: Path, job: str = "export", **settings: Any) -> Manifest:
    return Manifest.open(path, job, {"topics": ("a", "b"), **settings})


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


def test_without_a_path_nothing_is_kept(tmp_path: Path) -> None:
    manifest = Manifest.open(None, "verify", {})
    manifest.add({"x": {}})
    manifest.complete()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is no manifest of a job"),
        ("{}", "is no manifest of a job"),
        ("[]", "is no manifest of a job"),
        ('{"version": 2, "job": "export", "settings": {}, "plan": [], "done": {}, "is_complete": false}', "version 2"),
    ],
)
def test_file_that_is_no_manifest_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with pytest.raises(ManifestError, match=complaint):
        opened(path)


def test_manifest_of_another_job_or_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    opened(path, walk=True).complete()
    with pytest.raises(ManifestError, match="is of the job export"):
        opened(path, "verify", walk=True)
    with pytest.raises(ManifestError, match="was begun with walk=True, this run has False; use the same settings"):
        opened(path, walk=False)
