"""Readers, writers and jobs in an interpreter without triolog, as an executor may have: one line that says what to do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType
from triolog.tools.spark.carried import ADVICE, carried
from triolog.tools.spark.masters import check_master
from triolog.tools.spark.segments.segments_source import TriologSegments
from triolog.tools.spark.source.source import TriologDataSource
from triolog.tools.spark.unpacked import unpacked_home

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
