"""The bill of materials (`make sbom`): valid, the same each time, with all that runs and nothing that does not."""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from triolog.server.config.version import VERSION

pytestmark = pytest.mark.merge  # of releases

ROOT: Final = Path(__file__).resolve().parent.parent
DECLARED: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: Final = DECLARED["project"]
ALL: Final = ("cli", "metrics", "telemetry", "forward", "mqtt", "oauth", "registry", "regex", "arrow", "sql", "spark")
BUILDS: Final = ("release", "test", "docs", "dev", "fuzz")
COMBINED: Final = ("pipelines",)
"""Brings what `spark` brings, a Java and Spark Connect, which tests do without."""


def made(folder: Path, *arguments: str, seed: str = "0") -> str:
    target = folder / "bill" / "triolog.cdx.json"
    command = [sys.executable, "-W", "error", str(ROOT / "packaging/sbom.py"), *arguments, str(target)]
    subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, timeout=120, stderr=subprocess.PIPE
    )
    return target.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a server may need."""
    return made(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("whole"), "--extras", ",".join(ALL))


@functools.cache
def asked(extra: str | None = None) -> frozenset[str]:
    """What pyproject.toml names for an extra or a group, for this Python and machine."""
    known = {None: PROJECT["dependencies"], **PROJECT["optional-dependencies"], **DECLARED["dependency-groups"]}
    found = [Requirement(each) for each in known[extra] if isinstance(each, str)]  # others include a group
    names = (canonicalize_name(each.name) for each in found if each.marker is None or each.marker.evaluate())
    return frozenset(names) - {"triolog"}  # whose extras bring others


def components(text: str) -> dict[str, Any]:
    return {canonicalize_name(each["name"]): each for each in json.loads(text)["components"]}


def licences(component: Any) -> list[str]:
    """Names, identifiers or expressions."""
    told = [each.get("expression") or each["license"] for each in component["licenses"]]
    return [each if isinstance(each, str) else each.get("id") or each["name"] for each in told]


def test_it_is_valid_and_the_same_each_time(plain: str, tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # it compiles 39 grammars, for two seconds

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(plain) is None
    assert made(tmp_path, seed="1") == plain
    bill = json.loads(plain)
    assert bill["metadata"]["component"]["name"] == "triolog"
    assert bill["metadata"]["component"]["version"] == VERSION
    assert "timestamp" not in bill["metadata"]


def test_it_has_no_place_in_it(whole: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert set(re.findall(r"\w+://[^\"]*", whole)) == {"http://cyclonedx.org/schema/bom-1.6.schema.json"}
    places = (str(ROOT), str(tmp_path_factory.getbasetemp()), str(Path.home()), sys.prefix, "site-packages")
    assert [place for place in places if place in whole] == []


def test_it_names_every_dependency_that_runs_with_version_and_licence(whole: str) -> None:
    found = components(whole)
    named = asked().union(*map(asked, ALL))
    assert named <= found.keys()
    assert "sortedcontainers" in found, "which trio needs"
    for name, component in found.items():
        assert re.match(r"\d+(\.\w+)*", component["version"]), name
        assert all(licences(component)), name
        assert len(licences(component)) == 1, name
        assert component["purl"] == f"pkg:pypi/{name}@{component['version']}"
    built = frozenset().union(*map(asked, BUILDS)) - named
    assert len(built) > 10
    assert built & found.keys() == set()
    assert {*ALL, *COMBINED} == {*PROJECT["optional-dependencies"]}


def test_what_an_extra_asks_for_is_optional_and_says_so(plain: str) -> None:
    found = components(plain)
    for name in asked():
        assert (found[name]["scope"], "properties" in found[name]) == ("required", False), name
    for extra in ALL[:6]:
        for name in asked(extra) - asked():
            assert found[name]["scope"] == "optional", name
            assert extra in [each["value"] for each in found[name]["properties"]], name
    assert asked("spark") & found.keys() == set(), "which a server does not need"


def test_it_says_who_needs_what(plain: str) -> None:
    bill = json.loads(plain)
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    known = {each["bom-ref"] for each in bill["components"]}
    root = needs[bill["metadata"]["component"]["bom-ref"]]
    assert {re.sub(r"pkg:pypi/|@.*", "", each) for each in root} >= asked()
    reached, waiting = set[str](), set(root)
    while waiting:
        reached.add(each := waiting.pop())
        waiting |= needs[each] - reached
    assert reached == known


def test_make_and_the_page_on_releases_name_the_extras_of_a_server_as_the_bill_has_them() -> None:
    assert "SBOM_EXTRAS :=" not in (ROOT / "Makefile").read_text(), "packaging/sbom.py has the list"
    page = " ".join((ROOT / "docs" / "releasing.md").read_text().split())
    listed = re.search(r"extras[^(.]*\((`[^)]+)\)", page)
    assert listed is not None
    server = runpy.run_path(str(ROOT / "packaging" / "sbom.py"))["SERVER_EXTRAS"]
    assert tuple(re.findall(r"[\w-]+", listed[1])) == server


def test_an_extra_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        made(tmp_path, "--extras", "metrics,no-such-extra")
    assert b"has no extra no-such-extra" in refused.value.stderr
