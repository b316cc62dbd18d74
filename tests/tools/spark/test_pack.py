"""What an executor has: the archive of `triolog spark pack`, a home without zips, and one line where triolog is missing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType
from triolog.tools.cli.main import main
from triolog.tools.spark import pack
from triolog.tools.spark.carried import ADVICE, carried
from triolog.tools.spark.masters import check_master
from triolog.tools.spark.pack import INTERPRETER, PackError, required
from triolog.tools.spark.segments.segments_source import TriologSegments
from triolog.tools.spark.source.source import TriologDataSource
from triolog.tools.spark.unpacked import unpacked_home


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


@pytest.mark.merge
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


def test_a_missing_package_is_named_in_one_line_and_the_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


BARE: Final = sys._base_executable  # type: ignore[attr-defined]
"""The Python from which the virtual environment was made: without triolog and its packages."""
LOAD: Final = """
import os, pickle, sys
try:
    pickle.load(sys.stdin.buffer)("the pieces of a job")
except Exception as exc:
    print(f"{type(exc).__name__}: {exc}")
    print(os.environ.get("SPARK_HIDE_TRACEBACK"), exc.__cause__, exc.__suppress_context__)
"""
SERVER: Final = {"triolog.servers": "localhost:1"}
SOURCE: Final = TriologDataSource(SERVER | {"subscribe": "t"})
SEGMENTS: Final = TriologSegments({"path": "/nowhere"})
SINK: Final = TriologDataSource(SERVER | {"topic": "t"})
VALUES: Final = StructType().add("value", StringType())

CARRIED: Final[dict[str, Callable[[], Any]]] = {
    "source": lambda: SOURCE,
    "reader": lambda: SOURCE.reader(SOURCE.schema()),
    "stream reader": lambda: SOURCE.streamReader(SOURCE.schema()),
    "refused stream reader": lambda: TriologDataSource(SERVER | {"subscribe": "t", "path": "x"}).streamReader(VALUES),
    "segments": lambda: SEGMENTS,
    "segments reader": lambda: SEGMENTS.reader(SEGMENTS.schema()),
    "writer": lambda: SINK.writer(VALUES, False),
    "stream writer": lambda: SINK.streamWriter(VALUES, False),
    "job": lambda: carried(check_master),
}


@pytest.mark.merge
@pytest.mark.parametrize("what", CARRIED)
def test_an_interpreter_without_the_package_gets_one_line_that_names_the_recipe(what: str, tmp_path: Path) -> None:
    lib = unpacked_home(os.environ) / "python" / "lib"
    done = subprocess.run(
        [BARE, "-c", LOAD],
        cwd=tmp_path,
        input=cloudpickle.dumps(CARRIED[what]()),
        env={"PYTHONPATH": os.pathsep.join(map(str, lib.iterdir()))},
        capture_output=True,
        check=True,
    )
    said, *rest = done.stdout.decode().splitlines()
    assert said == f"ImportError: {BARE} has no package triolog. {ADVICE}", done.stderr
    assert rest == ["1 None True"]


def test_where_the_package_is_the_function_of_a_job_runs() -> None:
    assert pickle.loads(cloudpickle.dumps(carried(len)))("abc") == 3


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
