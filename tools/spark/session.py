"""`session()`: a Spark session that works where triolog is installed, also on a machine without Java.

What it decides beside Spark's defaults: which Java (see `java`), and that Python workers run this interpreter (Spark would take
`python3` from PATH, in which nothing of a virtual environment is installed). A local master talks to itself on 127.0.0.1,
whatever the machine is called. A master or a Spark Connect server that cannot be reached is an error before Spark starts:
Spark itself tries for a minute, and then says that its context has stopped.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pkgutil
import shutil
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...protocol.errors import TriologError
from ...protocol.extras import how_to_install
from .java import JavaNotFoundError, cache_folder, find_java, shim
from .masters import MasterError, check_master, check_remote
from .unpacked import unpacked_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
DEFAULTS: Final = {"spark.ui.showConsoleProgress": "false"}
QUIET: Final = {"spark.executorEnv.PYTHONWARNINGS": "ignore"}
"""Of a session whose program prints results for people."""
LOG_LEVEL: Final = "spark.log.level"
"""For a Java that runs already. Spark prints a line about it."""
LOG4J: Final = Path(__file__).with_name("quiet_log4j2.properties")
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
DEFAULT_MASTER: Final = "local[2]"
REMOTE: Final = "SPARK_REMOTE"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""`spark-submit` sets this variable for the program that it runs. The program's master is that of `spark-submit`."""
SOURCES: Final = ("pyspark_triolog", "pyspark_triolog_segments")
"""The modules that Spark looks for by itself, where they are files of an installed package."""
WORKERS_PYTHON: Final = "PYSPARK_PYTHON"
SPARK_HOME: Final = "SPARK_HOME"


class SparkMissingError(TriologError):
    """The packages of the extra `spark` are not installed."""


def session(
    app_name: str = "triolog",
    *,
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    is_quiet: bool = False,
) -> SparkSession:
    """Return this process's session, and create it if there is none. `config` adds to triolog's defaults and overrides them.

    `remote` is a Spark Connect server, `sc://HOST:PORT`; the variable SPARK_REMOTE has the same effect. The server and its
    executors need triolog, this process only the packages of Spark Connect. Without `remote` and `master` the master is that
    of `spark-submit`, otherwise `local[2]`. With `is_quiet` Java, pandas and Spark's log write nothing to the screen.

    Sets JAVA_HOME, SPARK_HOME (see `unpacked`) and PYSPARK_PYTHON in this process's environment, because Spark's launcher looks
    for them there and nowhere else; a SPARK_HOME or PYSPARK_PYTHON that is set stays. In a session that runs already, only
    settings that can change have an effect.
    Raises JavaNotFoundError, SparkMissingError, MasterError.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise SparkMissingError(f"Spark's packages are not installed ({exc}): {how_to_install('spark')}") from exc
    if remote is None:
        remote = os.environ.get(REMOTE)
    if remote is not None:
        return _remote_session(remote, master, dict(config or {}))
    if master is None and SUBMITTED not in os.environ:
        master = DEFAULT_MASTER
    is_local = master is not None and master.startswith("local")
    settings = DEFAULTS | (LOCAL_DEFAULTS if is_local else {}) | (QUIET if is_quiet else {}) | dict(config or {})
    if is_quiet:
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    if SparkContext._active_spark_context is None:
        if master is not None:
            check_master(master)
        if SUBMITTED not in os.environ:
            _prepare_launch(master or "", settings, is_quiet)
        elif is_quiet:
            settings[LOG_LEVEL] = "OFF"
        os.environ.setdefault(WORKERS_PYTHON, sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for module in unseen_sources():
        spark.dataSource.register(importlib.import_module(module).DefaultSource)
    return spark


def _remote_session(remote: str, master: str | None, config: Mapping[str, str]) -> SparkSession:
    """Return a session of Spark Connect. Raises MasterError, SparkMissingError."""
    from pyspark.sql import SparkSession

    if master is not None:
        raise MasterError(f"the master {master} and a Spark Connect server (remote, or {REMOTE}) are given. Give one of them")
    check_remote(remote)
    builder = SparkSession.builder.remote(remote)
    for key, value in config.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as exc:
        raise SparkMissingError(f"Spark Connect's packages are not installed: {how_to_install('pipelines')}") from exc


def _prepare_launch(master: str, settings: dict[str, str], is_quiet: bool) -> None:
    """Set what Spark's launcher takes from the environment, and Java's options."""
    home = find_java().home
    if is_quiet:
        home = _quiet_home(home)
        os.environ["PYTHONWARNINGS"] = "ignore"
        quiet = f"-Dlog4j2.configurationFile={LOG4J.resolve().as_uri()}"
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {quiet}".strip()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    if master.startswith(("local", "spark://")):
        with contextlib.suppress(OSError):  # a slower start is better than no session
            os.environ.setdefault(SPARK_HOME, str(unpacked_home(os.environ)))


def _quiet_home(home: Path | None) -> Path | None:
    """Return a JAVA_HOME whose `java` does not load the incubating module, about which Java would write a warning."""
    cache = cache_folder(os.environ)
    if home is not None and home.is_relative_to(cache):
        return home
    java = shutil.which("java") if home is None else home / "bin" / "java"
    assert java is not None, "find_java has found one"
    try:
        return shim(Path(java).resolve().parents[1], cache)
    except JavaNotFoundError:
        return home  # a warning on the screen is better than no job


def unseen_sources() -> list[str]:
    """Sources that can be imported and that Spark does not see: an editable installation has no folder for it to look into."""
    seen = {info.name for info in pkgutil.iter_modules()}
    return [name for name in SOURCES if name not in seen and importlib.util.find_spec(name) is not None]
