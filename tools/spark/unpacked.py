"""A home of Spark whose Python processes load PySpark compiled.

Spark starts its Python processes with `$SPARK_HOME/python/lib/pyspark.zip` first on their path. A zip file has no place for
compiled modules, so each of these processes compiles PySpark again. The installed package is compiled once. In this home
`pyspark.zip` is a folder with a link to that package, and everything else is a link to the real home.

Only a local and a standalone master allow it: on YARN, Spark copies the zip file to the cluster.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .java import cache_folder

PYTHON: Final = "python"
LIB: Final = "lib"
CONF: Final = "conf"
"""Linked even if it does not exist yet."""


def unpacked_home(environ: Mapping[str, str]) -> Path:
    """Return the home, in triolog's cache folder; create it if need be. It belongs to the PySpark that this process imports.

    Several processes may create it at once: it is written beside and renamed. Raises ImportError, OSError.
    """
    import py4j  # type: ignore[import-untyped]
    import pyspark

    package, py4j_package = (Path(module.__path__[0]).resolve() for module in (pyspark, py4j))
    lib = package / PYTHON / LIB
    packages = {lib / "pyspark.zip": package} | dict.fromkeys(lib.glob("py4j-*.zip"), py4j_package)
    text = "\n".join([pyspark.__version__, str(package), str(py4j_package), *map(str, packages)])
    home = cache_folder(environ) / f"spark-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if home.is_dir():
        return home
    made = home.with_name(f"{home.name}.{os.getpid()}")
    try:
        _link({path.name for path in package.iterdir()} - {PYTHON} | {CONF}, package, made)
        _link({path.name for path in (package / PYTHON).iterdir()} - {LIB}, package / PYTHON, made / PYTHON)
        for path, found in packages.items():
            _link({found.name}, found.parent, made / PYTHON / LIB / path.name)
        made.rename(home)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not home.is_dir():  # another process has created it
            raise
    return home


def _link(names: set[str], source: Path, target: Path) -> None:
    """Create a folder with links to entries of `source`."""
    target.mkdir(parents=True)
    for name in names:
        (target / name).symlink_to(source / name)
