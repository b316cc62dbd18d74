"""What a release takes beside its files (`test_packaging.py`): workflows, one version, one constant for `pip install`, a home.

The workflows cannot run here. Their YAML, Pythons and commands are compared with the classifiers, the Makefile and the tree.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from triolog.protocol.extras import IS_ON_PYPI
from triolog.server.config.version import VERSION

from tests.support.interpreters import PROJECT, VERSIONS

ROOT: Final = Path(__file__).resolve().parent.parent
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS: Final = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
CHANGELOG: Final = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HOME: Final = "https://forge.example/owner/name"


def make(target: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["make", "--silent", target], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def _make() -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make")


# ---- the workflows -------------------------------------------------------------------------------------------------------


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File, name and content of each job."""
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            yield path.name, name, job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for _, name, job in jobs():
        yield from ((name, step) for step in job["steps"])


def test_every_step_of_a_workflow_runs_a_command_or_a_named_version_of_an_action() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]
    for name, step in steps():
        assert ("run" in step) != ("uses" in step), (name, step)
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step.get("uses", "a/b@v1")), (name, step)


def test_every_job_that_is_needed_exists_and_rights_are_few() -> None:
    found = {(file, name) for file, name, _ in jobs()}
    for file, _, job in jobs():
        needed = job.get("needs", [])
        assert {(file, each) for each in ([needed] if isinstance(needed, str) else needed)} <= found
    assert all(yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"} for path in WORKFLOWS)
    rights = {name: job["permissions"] for _, name, job in jobs() if "permissions" in job}
    assert rights == {"pypi": {"id-token": "write"}, "github": {"contents": "write"}}


def test_every_command_of_a_workflow_exists() -> None:
    made, started = set(), set()
    for _, step in steps():
        words = shlex.split(step.get("run", "").replace("$(", " ").replace(")", " "), comments=True)
        words = " ".join(words).split()
        made |= {
            next(each for each in words[at + 1 :] if each != "--silent") for at, each in enumerate(words) if each == "make"
        }
        started |= {each for each in words if each.startswith((".ci/", "packaging/"))}
    assert made >= {"test", "release-check", "print-pythons", "print-version", "print-notes", "print-portable"}
    assert made <= TARGETS
    assert started == {".ci/run", "packaging/name_home.py"}
    assert all((ROOT / each).is_file() for each in started)


def test_workflows_run_the_pythons_of_the_classifiers_on_linux_and_macos() -> None:
    """`make print-pythons` reads them, and so does `make zipapp`."""
    assert json.loads(make("print-pythons")) == list(VERSIONS)
    runners = {job["runs-on"] for _, _, job in jobs() if "fromJSON(needs.pythons" in str(job.get("strategy"))}
    assert runners == {"ubuntu-latest", "macos-latest"}
    fixed = {str(step["with"]["python-version"]) for _, step in steps() if "python-version" in step.get("with", {})}
    assert fixed - {"${{ matrix.python }}"} == {VERSIONS[0]}


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_a_form_for_issues_asks_for_text(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    assert [each["type"] for each in form["body"] if each["type"] not in ("markdown", "textarea")] == []
    assert len({each["id"] for each in form["body"] if each["type"] == "textarea"}) >= 2


def test_the_form_for_bugs_asks_for_the_report_of_doctor() -> None:
    assert "`triolog doctor DIR HOST:PORT" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8")


# ---- the version ---------------------------------------------------------------------------------------------------------


def test_the_version_has_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert make("print-version") == f"{VERSION}\n"


def test_the_changelog_begins_with_changes_to_come_and_continues_with_the_version() -> None:
    """Before the first release the version may have no section yet, but `make release-check` requires it."""
    headings = re.findall(r"^## \[(.+?)\]", CHANGELOG, flags=re.MULTILINE)
    released = ["Unreleased", VERSION, *headings[2:]]
    assert headings in ([released] if "TRIOLOG_TEST_RELEASED" in os.environ else [released, ["Unreleased"]])


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "server/config/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    sections = f"# Changelog\n\n## [Unreleased]\n\n- new\n\n## [{VERSION}] - 2026-11-30\n\n- first\n\n## [0.0.9]\n\n- old\n"
    (tmp_path / "CHANGELOG.md").write_text(sections)
    assert make("print-notes", tmp_path).strip() == "- first"


# ---- how to install it ---------------------------------------------------------------------------------------------------


def test_the_documentation_installs_triolog_as_the_constant_says() -> None:
    lines = runpy.run_path(str(ROOT / "packaging" / "install_lines.py"))
    assert lines["is_on_pypi"]() == IS_ON_PYPI
    texts = {path: path.read_text(encoding="utf-8") for path in lines["pages"]()}
    switched = lines["switched"]
    assert [path.name for path, text in texts.items() if switched(text, released=IS_ON_PYPI) != text] == []
    other = {path: switched(text, released=not IS_ON_PYPI) for path, text in texts.items()}
    assert sum(other[path] != text for path, text in texts.items()) >= 6
    assert {path: switched(text, released=IS_ON_PYPI) for path, text in other.items()} == texts
    released = "\n".join((texts if IS_ON_PYPI else other).values())
    assert re.search(r"pip install '\.\[|PyPI has no release|No release exists", released) is None


# ---- the home of the project ---------------------------------------------------------------------------------------------


def test_a_release_names_its_home_and_its_readme_has_links_that_work_elsewhere(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    runpy.run_path(str(ROOT / "packaging" / "name_home.py"))["name_home"](tmp_path, HOME, "v1.2.3")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert "urls" not in PROJECT
    assert project.pop("urls")["Changelog"] == f"{HOME}/blob/v1.2.3/CHANGELOG.md"
    assert project == PROJECT
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text())
    assert f"{HOME}/raw/v1.2.3/docs/pictures/console/walk.webp" in links
    assert [link for link in links if not link.startswith("https://")] == []
    relative = re.findall(r"\]\((?!https:)([^)#]+)", (ROOT / "README.md").read_text())
    assert len(relative) > 20
    assert all((ROOT / link).is_file() for link in relative)
