"""`session()`: a Spark session that works where triolog is installed, also on a machine without Java.

What it decides beside Spark's defaults: which Java (see `java`), and that Python workers run this interpreter (Spark would take
`python3` from PATH, in which nothing of a virtual environment is installed). A local master talks to itself on 127.0.0.1,
whatever the machine is called.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...protocol.errors import TriologError
from ...protocol.extras import how_to_install
from .java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}
SOURCES: Final = ("pyspark_triolog", "pyspark_triolog_segments")
"""The modules that Spark looks for by itself, where they are files of an installed package."""
WORKERS_PYTHON: Final = "PYSPARK_PYTHON"


class SparkMissingError(TriologError):
    """The packages of the extra `spark` are not installed."""


def session(app_name: str = "triolog", *, master: str = "local[2]", config: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made when there is none; `config` adds to triolog's defaults and beats them.

    Sets JAVA_HOME and PYSPARK_PYTHON in this process's environment, because Spark's launcher looks for them there and nowhere
    else; a PYSPARK_PYTHON that is set stays. With a session that runs already neither name, master nor Java is looked
    at: only what can be changed in it is set. Raises JavaNotFoundError, SparkMissingError.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise SparkMissingError(f"Spark's packages are not installed ({exc}): {how_to_install('spark')}") from exc
    if SparkContext._active_spark_context is None:
        if (home := find_java().home) is not None:
            os.environ["JAVA_HOME"] = str(home)
        os.environ.setdefault(WORKERS_PYTHON, sys.executable)
    settings = (LOCAL_DEFAULTS if master.startswith("local") else {}) | dict(config or {})
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for module in unseen_sources():
        spark.dataSource.register(importlib.import_module(module).DefaultSource)
    return spark


def unseen_sources() -> list[str]:
    """Sources that can be imported and that Spark does not see: an editable installation has no folder for it to look into."""
    seen = {info.name for info in pkgutil.iter_modules()}
    return [name for name in SOURCES if name not in seen and importlib.util.find_spec(name) is not None]
