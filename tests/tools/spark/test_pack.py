"""The archive of `triolog spark pack`: its contents, its interpreter, and errors that leave a file as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from triolog.tools.cli.main import main
from triolog.tools.spark import pack
from triolog.tools.spark.pack import INTERPRETER, PackError, required


def without(name: str) -> Callable[[str], Any]:
    """`distribution`, where one package is not installed."""
    found = pack.distribution

    def lookup(wanted: str) -> Any:
        if wanted == name:
            raise PackageNotFoundError(wanted)
        return found(wanted)

    return lookup


def test_the_packages_are_those_of_reading_and_writing_and_none_of_sparks_own() -> None:
    found = required("triolog", "spark")
    assert {"attrs", "cramjam", "crc32c", "msgpack", "numpy", "outcome", "pyarrow", "trio"} <= found.keys()
    assert found.keys().isdisjoint({"pyspark", "py4j", "triolog", "pytest"})
    assert "numpy" not in required("triolog")


def test_the_archive_has_the_sources_and_a_python_that_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "required", lambda name, extra: {"attrs": pack.distribution("attrs")})
    archive = tmp_path / "env.tar.gz"
    done = CliRunner().invoke(main, ["spark", "pack", str(archive)])
    assert (done.exit_code, done.output.startswith(f"wrote {archive}: ")) == (0, True), done.output
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path, filter="data")
    assert {"packages/triolog/tools/spark/source/source.py", "packages/pyspark_triolog/__init__.py"} <= set(names)
    assert "packages/pyspark_triolog_segments/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name]
    program = "import triolog, attrs, sys; print(triolog.__file__, attrs.__file__, *sys.argv[1:])"
    environ = {"PATH": os.environ["PATH"], INTERPRETER: sys._base_executable}  # type: ignore[attr-defined]
    command = ["./bin/python", "-S", "-c", program, "an argument"]
    printed = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout
    packages = tmp_path / "packages"
    assert printed.strip() == f"{packages}/triolog/__init__.py {packages}/attrs/__init__.py an argument"
    refused = subprocess.run(command, cwd=tmp_path, env=environ | {INTERPRETER: "nowhere"}, capture_output=True, text=True)
    assert refused.returncode == 127
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert refused.stderr == f"nowhere not found: this archive needs Python {version} on PATH, or in {INTERPRETER}\n"


def test_a_missing_package_is_named_in_one_line_and_the_file_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "distribution", without("pyarrow"))
    archive = tmp_path / "env.tar.gz"
    archive.write_bytes(b"before")
    done = CliRunner().invoke(main, ["spark", "pack", str(archive)])
    assert done.exit_code == 1
    assert done.output.startswith("Error: the package pyarrow is not installed: pip install ")
    assert done.output.count("\n") == 1
    assert archive.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["env.tar.gz"]


def test_a_requirement_with_a_condition_counts_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        requires = ("attrs>=1", 'numpy; python_version < "3"', 'absent; os_name == "nt"', "trio; extra == 'other'", "own[x]")

    found = pack.distribution
    monkeypatch.setattr(pack, "distribution", lambda name: Fake() if name in ("root", "own") else found(name))
    assert required("root").keys() == {"attrs", "numpy", "own"}
    monkeypatch.setattr(Fake, "requires", ("absent",))
    with pytest.raises(PackError, match="the package absent is not installed"):
        required("root")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["spark", "pack", str(tmp_path / "nowhere" / "env.tar.gz")])
    assert done.exit_code == 1
    assert done.output == f"Error: {tmp_path}/nowhere/env.tar.gz.part: No such file or directory\n"
