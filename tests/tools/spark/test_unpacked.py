"""A home of Spark in which PySpark is a folder, and the command that prints it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner
from triolog.tools.cli.main import main
from triolog.tools.spark.unpacked import unpacked_home


def test_python_processes_of_the_home_load_compiled_modules_and_the_rest_is_the_real_home(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    home = unpacked_home(environ)
    assert home.is_relative_to(tmp_path)
    lib = home / "python" / "lib"
    script = "import importlib.util as u; [print(s.origin, s.cached) for s in map(u.find_spec, ('pyspark', 'py4j'))]"
    path = os.pathsep.join(map(str, sorted(lib.iterdir(), reverse=True)))
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert [line.split() for line in done.stdout.splitlines()] == [
        [str(lib / name / package / "__init__.py"), str(lib / name / package / "__pycache__" / cached)]
        for name, package, cached in (
            ("pyspark.zip", "pyspark", f"__init__.{sys.implementation.cache_tag}.pyc"),
            (next(lib.glob("py4j-*.zip")).name, "py4j", f"__init__.{sys.implementation.cache_tag}.pyc"),
        )
    ]
    real = Path(pyspark.__file__).resolve().parent
    for name in ("bin", "jars"):
        assert (home / name).resolve() == real / name
    assert (home / "conf").readlink() == real / "conf", "settings that are put there later count"
    assert unpacked_home(environ) == home
    assert [path.name for path in home.parent.iterdir()] == [home.name], "no unfinished folder is left"


def test_a_home_that_another_process_has_just_created_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    rename = Path.rename

    def rename_second(path: Path, target: Path) -> Path:
        (target / "created by the other process").mkdir(parents=True)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_second)
    home = unpacked_home(environ)
    assert [path.name for path in home.iterdir()] == ["created by the other process"]
    assert list(home.parent.iterdir()) == [home]


def test_the_command_prints_the_home_or_one_line(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    done = CliRunner().invoke(main, ["spark", "home"], env=environ)
    assert done.output == f"{unpacked_home(environ)}\n"
    refused = CliRunner().invoke(main, ["spark", "home"], env={"XDG_CACHE_HOME": "/dev/null"})
    assert refused.exit_code == 1
    assert refused.output == "Error: cannot write to /dev/null/triolog: Not a directory\n"
