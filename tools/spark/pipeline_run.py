"""Becoming `spark-pipelines` with what it has to be told: Java, the interpreter, where the settings are, the sources.

Settings are in the pipeline's own `conf/spark-defaults.conf`: of several `--conf` on its command line the program of Spark 4.3
hands only the last one to its session. Spark looks for data sources among the modules of the folders on Python's path. Of an
editable installation no folder is there, so a module that stands for each source is written into `sources`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ...protocol.errors import TriologError
from ...protocol.extras import how_to_install
from .java import find_java
from .session import unseen_sources

SPEC: Final = "spark-pipeline.yml"
CONF: Final = "conf"
NEEDED: Final = ("pyspark", "grpc", "yaml", "zstandard")


class PipelinesMissingError(TriologError):
    """The dependencies of the extra `pipelines` are not installed."""


def environment(folder: Path, environ: Mapping[str, str], *, home: Path, unseen: Sequence[str]) -> dict[str, str]:
    """Return `environ` plus the program's needs; write the stand-ins of `unseen` sources. JavaNotFoundError, OSError."""
    defaults = {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(folder / CONF)}
    found = {**defaults, **environ, "SPARK_HOME": str(home)}
    if (java := find_java(environ).home) is not None:
        found["JAVA_HOME"] = str(java)
    if unseen:
        sources = folder / "sources"
        sources.mkdir(exist_ok=True)
        for name in unseen:
            (sources / f"{name}_here.py").write_text(f"from {name} import DefaultSource\n", encoding="utf-8")
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(sources), environ.get("PYTHONPATH"))))
    return found


def run(folder: Path, command: str = "run", *rest: str) -> None:
    """Replace this process by `spark-pipelines`. PipelinesMissingError, JavaNotFoundError, OSError."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise PipelinesMissingError(f"the Python module {missing[0]} is not installed: {how_to_install('pipelines')}")
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.submodule_search_locations is not None, "pyspark is a package"
    home = Path(package.submodule_search_locations[0])
    os.environ.update(environment(folder, os.environ, home=home, unseen=unseen_sources()))
    os.chdir(folder)
    program = str(home / "bin" / "spark-pipelines")
    os.execv(program, [program, command, "--spec", str(folder / SPEC), *rest])
