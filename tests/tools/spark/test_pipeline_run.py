from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from triolog.tools.spark import pipeline_run
from triolog.tools.spark.init import write_pipeline
from triolog.tools.spark.pipeline_run import environment
from triolog.tools.spark.session import SOURCES

HOME = Path("spark-home")


def test_settings_and_interpreter_are_those_of_the_folder_unless_others_are_named(tmp_path: Path) -> None:
    named = {"PATH": _path(), "SPARK_CONF_DIR": "other"}
    assert environment(tmp_path, {"PATH": _path()}, home=HOME, unseen=())["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert environment(tmp_path, named, home=HOME, unseen=())["SPARK_CONF_DIR"] == "other"
    named = {"PATH": _path(), "PYSPARK_PYTHON": "other"}
    assert environment(tmp_path, {"PATH": _path()}, home=HOME, unseen=())["PYSPARK_PYTHON"] == sys.executable
    assert environment(tmp_path, named, home=HOME, unseen=())["PYSPARK_PYTHON"] == "other"


def test_sources_that_spark_would_see_get_no_stand_in(tmp_path: Path) -> None:
    assert "PYTHONPATH" not in environment(tmp_path, {"PATH": _path()}, home=HOME, unseen=())
    assert list(tmp_path.iterdir()) == []


def test_a_stand_in_is_the_source_under_a_name_that_spark_looks_for(tmp_path: Path) -> None:
    found = environment(tmp_path, {"PATH": _path(), "PYTHONPATH": "mine"}, home=HOME, unseen=list(SOURCES))
    assert found["PYTHONPATH"] == f"{tmp_path / 'sources'}:mine"
    names = set()
    for path in (tmp_path / "sources").iterdir():
        assert path.stem.startswith("pyspark_")
        defined: dict[str, type] = {}
        exec(path.read_text(), defined)
        names.add(defined["DefaultSource"].name())  # type: ignore[attr-defined]
    assert names == {"triolog", "triolog_segments"}
    assert set(SOURCES) == set(_registered())


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    write_pipeline(tmp_path / "pipeline", servers="a:1", topic="t", target="u")
    command = [sys.executable, str(tmp_path / "pipeline" / "run.py")]
    environ = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(("Error: the Python module", "Error: Spark needs Java"))
    assert done.stderr.count("\n") == 1


def _registered() -> list[str]:
    folder = Path(pipeline_run.__file__).parent
    return [path.name for path in folder.glob("pyspark_*")]


def _path() -> str:
    return os.environ["PATH"]
