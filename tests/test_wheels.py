"""`pip install` of the core compiles nothing where the table of docs/platforms.md says so, and has no wheel where it says no.

pip looks for wheels of other machines and Pythons on the package index, and installs nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.interpreters import VERSIONS
from tests.test_packaging import COMPILED, RELEASED

PAGE: Final = (Path(__file__).resolve().parent.parent / "docs" / "platforms.md").read_text(encoding="utf-8")
FIRST, LAST = VERSIONS[0], VERSIONS[-1]
NEWEST_FREE_THREADED: Final = "3.14"
GLIBC: Final = ("manylinux_2_17_{0}", "manylinux2014_{0}", "manylinux_2_28_{0}")
MUSL: Final = ("musllinux_1_1_{0}", "musllinux_1_2_{0}")
MACOS: Final = ("macosx_10_12_{0}", "macosx_10_13_{0}", "macosx_10_15_{0}", "macosx_11_0_{0}")
Machine = tuple[str, str, tuple[str, ...]]
"""Python, ABI, platform tags."""


def _machines(
    kind: tuple[str, ...], *machines: str, pythons: tuple[str, ...] = (FIRST, LAST), suffix: str = ""
) -> list[Machine]:
    return [
        (python, f"cp{python.replace('.', '')}{suffix}", tuple(tag.format(machine) for tag in kind))
        for python in pythons
        for machine in machines
    ]


COLUMNS: Final = {
    "glibc, macOS: x86_64, arm64": [*_machines(GLIBC, "x86_64", "aarch64"), *_machines(MACOS, "x86_64", "arm64")],
    "musl: x86_64, aarch64": _machines(MUSL, "x86_64", "aarch64"),
    "32-bit ARM": [*_machines(GLIBC, "armv7l"), *_machines(MUSL, "armv7l")],
    f"free-threaded {NEWEST_FREE_THREADED}": _machines(GLIBC, "x86_64", "aarch64", pythons=(NEWEST_FREE_THREADED,), suffix="t"),
}


def _rows() -> dict[str, dict[str, str]]:
    """What the table says of each package of the core, by column."""
    table = PAGE.partition("## Wheels")[2]
    heading, _, *rows = [
        line.strip("| ").split(" | ") for line in re.findall(r"^\|.*\|$", table.partition("\n## ")[0], re.MULTILINE)
    ]
    found = [dict(zip(heading, row, strict=True)) for row in rows]
    return {row["package"]: row for row in found if row["for"] == "core"}


def has_wheels(packages: list[str], machine: Machine, folder: Path) -> bool:
    python, abi, tags = machine
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run", "--no-deps"]
    command += ["--only-binary", ":all:", "--target", str(folder), "--implementation", "cp", "--python-version", python]
    command += ["--abi", abi, "--abi", "abi3", *(argument for tag in tags for argument in ("--platform", tag)), *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "No matching distribution found" in done.stderr, done.stderr
    return done.returncode == 0


def test_the_table_has_the_packages_of_the_core_that_are_compiled() -> None:
    assert _rows().keys() == COMPILED


@(pytest.mark.long if RELEASED is None else pytest.mark.merge)
@pytest.mark.parametrize("column", COLUMNS)
def test_the_core_has_the_wheels_of_the_table(column: str, tmp_path: Path) -> None:
    said = {package: row[column] for package, row in _rows().items()}
    assert {*said.values()} <= {"yes", "no"}
    for machine in COLUMNS[column]:
        assert has_wheels([package for package, has in said.items() if has == "yes"], machine, tmp_path), machine
        for package in (package for package, has in said.items() if has == "no"):
            assert not has_wheels([package], machine, tmp_path), (package, machine)
