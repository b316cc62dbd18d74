"""What of `session()` needs no JVM; the rest is in `jvm/test_session.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from triolog.tools.spark import session


def test_a_java_home_without_java_is_said_before_anything_is_started(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from triolog.tools.spark.session import session; session()"]
    done = subprocess.run(command, env=os.environ | {"JAVA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        f"JavaNotFoundError: Spark needs Java 17 or later, and JAVA_HOME is {tmp_path}, which is no working Java" in done.stderr
    )


def test_sources_that_spark_cannot_find_by_itself_are_seen_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in session.SOURCES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert session.unseen_sources() == []
