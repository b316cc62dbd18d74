"""`session()`: a Spark session that works where triolog is installed, also on a machine without Java.

What it decides beside Spark's defaults: which Java (see `java`), and that Python workers run this interpreter (Spark would take
`python3` from PATH, in which nothing of a virtual environment is installed). A local master talks to itself on 127.0.0.1,
whatever the machine is called. A master that cannot be reached is an error before Spark starts: Spark itself tries for a
minute, and then says that its context has stopped.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...protocol.errors import TriologError
from ...protocol.extras import how_to_install
from .java import JavaNotFoundError, cache_folder, find_java, shim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
DEFAULTS: Final = {"spark.ui.showConsoleProgress": "false"}
QUIET: Final = {"spark.log.level": "OFF", "spark.executorEnv.PYTHONWARNINGS": "ignore"}
"""Of a session whose program prints results for people."""
MASTERS: Final = "local, local[N], local[*], local[N,FAILURES], spark://HOST:PORT, yarn, k8s://..."
MASTER_TIMEOUT_S: Final = 8.0
_MASTER: Final = re.compile(
    r"local|local\[(?:\*|\d+)(?:,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+|spark://(?P<places>[^\s,/]+:\d+(?:,[^\s,/]+:\d+)*)"
)
SOURCES: Final = ("pyspark_triolog", "pyspark_triolog_segments")
"""The modules that Spark looks for by itself, where they are files of an installed package."""
WORKERS_PYTHON: Final = "PYSPARK_PYTHON"


class SparkMissingError(TriologError):
    """The packages of the extra `spark` are not installed."""


class MasterError(TriologError):
    """A master that Spark does not know, or that cannot be reached."""


def session(
    app_name: str = "triolog",
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    is_quiet: bool = False,
) -> SparkSession:
    """The session of this process, made when there is none; `config` adds to triolog's defaults and beats them.

    With `is_quiet` Java, pandas and Spark's log of a running session write nothing to the screen.

    Sets JAVA_HOME and PYSPARK_PYTHON in this process's environment, because Spark's launcher looks for them there and nowhere
    else; a PYSPARK_PYTHON that is set stays. With a session that runs already neither name, master nor Java is looked
    at: only what can be changed in it is set. Raises JavaNotFoundError, SparkMissingError, MasterError.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise SparkMissingError(f"Spark's packages are not installed ({exc}): {how_to_install('spark')}") from exc
    settings = (
        DEFAULTS | (LOCAL_DEFAULTS if master.startswith("local") else {}) | (QUIET if is_quiet else {}) | dict(config or {})
    )
    if SparkContext._active_spark_context is None:
        check_master(master)
        home = find_java().home
        if is_quiet:
            home = _quiet_home(home)
            os.environ["PYTHONWARNINGS"] = "ignore"
        if home is not None:
            os.environ["JAVA_HOME"] = str(home)
        os.environ.setdefault(WORKERS_PYTHON, sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for module in unseen_sources():
        spark.dataSource.register(importlib.import_module(module).DefaultSource)
    return spark


def check_master(master: str, timeout_s: float = MASTER_TIMEOUT_S) -> None:
    """MasterError unless Spark knows a master of this form and, with `spark://`, one of its addresses accepts connections."""
    found = _MASTER.fullmatch(master)
    if found is None:
        raise MasterError(f"invalid master {master!r}: use {MASTERS}")
    if found["places"] is None:
        return
    places = found["places"].split(",")
    give_up_at = time.monotonic() + timeout_s
    why = ""
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), max(0.1, (give_up_at - time.monotonic()) / left)).close()
        except (OSError, OverflowError) as exc:
            why = getattr(exc, "strerror", None) or str(exc)
        else:
            return
    raise MasterError(f"cannot reach the Spark master {master}: {why}. Start it, or correct the address")


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
