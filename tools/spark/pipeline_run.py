"""Becoming `spark-pipelines` with what it has to be told: Java, the interpreter, a catalog that outlives the run, the sources.

Spark's catalog is in memory by default, and the second run would not know the tables of the first; here it is in the pipeline's
folder (`metastore_db`, `warehouse`). Spark looks for data sources among the modules of the folders on Python's path. Of an
editable installation no folder is there, so a module that stands for each source is written into `sources`.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ...protocol.errors import TriologError
from .java import find_java

SPEC: Final = "spark-pipeline.yml"
SOURCES: Final = {
    "pyspark_triolog": "from triolog.tools.spark.source import TriologDataSource as DefaultSource\n",
    "pyspark_triolog_segments": "from triolog.tools.spark.segments_source import TriologSegments as DefaultSource\n",
}
NEEDED: Final = ("pyspark", "grpc", "yaml", "zstandard")


class PipelinesMissingError(TriologError):
    """What the extra `pipelines` brings is not installed."""


def command_line(folder: Path, command: str, rest: Sequence[str], *, home: Path) -> list[str]:
    """`spark-pipelines COMMAND` for the pipeline in `folder`; `home` is Spark's."""
    config = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore_db'};create=true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    settings = [part for name, value in config.items() for part in ("--conf", f"{name}={value}")]
    return [str(home / "bin" / "spark-pipelines"), command, *settings, "--spec", str(folder / SPEC), *rest]


def environment(folder: Path, environ: Mapping[str, str], *, home: Path, unseen: Sequence[str]) -> dict[str, str]:
    """What the program needs beside `environ`; writes the stand-ins of `unseen` sources. JavaNotFoundError, OSError."""
    found = {**environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON") or sys.executable}
    if (java := find_java(environ).home) is not None:
        found["JAVA_HOME"] = str(java)
    if unseen:
        sources = folder / "sources"
        sources.mkdir(exist_ok=True)
        for name in unseen:
            (sources / f"{name}_here.py").write_text(SOURCES[name], encoding="utf-8")
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(sources), environ.get("PYTHONPATH"))))
    return found


def run(folder: Path, command: str = "run", *rest: str) -> None:
    """Replace this process by `spark-pipelines`. PipelinesMissingError, JavaNotFoundError, OSError."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise PipelinesMissingError(f"the Python module {missing[0]} is not installed: pip install 'triolog[pipelines]'")
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.submodule_search_locations is not None, "pyspark is a package"
    home = Path(package.submodule_search_locations[0])
    seen = {module.name for module in pkgutil.iter_modules()}
    unseen = [name for name in SOURCES if name not in seen]
    os.environ.update(environment(folder, os.environ, home=home, unseen=unseen))
    os.chdir(folder)
    program = command_line(folder, command, rest, home=home)
    os.execv(program[0], program)
