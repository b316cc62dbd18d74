"""`triolog spark pack`: an archive with the Python packages that the executors of a cluster need.

| path in the archive | contents |
|---|---|
| `bin/python` | a shell script that runs the interpreter with `packages` on its path |
| `packages/` | triolog, the modules that Spark looks for, and the distributions that they require |

Spark unpacks an archive in the working directory of each executor (`spark.archives`). The archive has no interpreter: native
modules need a Python of the version that packed them. It has no PySpark, because every Spark has its own.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import click

from ...protocol.errors import TriologError
from ...protocol.extras import how_to_install
from ..cli.terminal.output import count_text, say
from .session import SOURCES

EXTRA: Final = "spark"
SPARKS_OWN: Final = frozenset({"pyspark", "py4j"})
PACKAGES: Final = "packages"
INTERPRETER: Final = "TRIOLOG_PACK_PYTHON"
"""A variable of executors that names another interpreter than `pythonX.Y` on PATH."""
SCRIPT: Final = """\
#!/bin/sh
# Runs Python {version} with the packages of this archive.
folder=$(cd "$(dirname "$0")/.." && pwd)
python="${{{variable}:-python{version}}}"
if ! command -v "$python" > /dev/null; then
    echo "$python not found: this archive needs Python {version} on PATH, or in {variable}" >&2
    exit 127
fi
export PYTHONPATH="$folder/{packages}${{PYTHONPATH:+:$PYTHONPATH}}"
exec "$python" "$@"
"""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


class PackError(TriologError):
    """A package that the archive needs is not installed."""


@click.command
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
def command(archive: Path) -> None:
    """Write the Python packages that executors need to ARCHIVE, a .tar.gz file.

    Give it to Spark with `--archives ARCHIVE#env` and PYSPARK_PYTHON=./env/bin/python. Each machine needs a Python of this
    version. Exit code 1 when a package is missing or the file cannot be written.
    """
    try:
        count = pack(archive)
    except PackError as exc:
        raise click.ClickException(str(exc)) from exc
    except OSError as exc:
        raise click.ClickException(f"{exc.filename or archive}: {exc.strerror or exc}") from exc
    say(f"wrote {archive}: {count_text(count, 'file')}, {archive.stat().st_size / 1e6:.0f} MB")


def pack(archive: Path) -> int:
    """Write the archive, or leave it as it was; return its number of files. Raises PackError, OSError."""
    files = {name: path for name, path in _contents() if "__pycache__" not in path.parts}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = SCRIPT.format(version=version, variable=INTERPRETER, packages=PACKAGES).encode()
    written = archive.with_name(f"{archive.name}.part")
    try:
        with tarfile.open(written, "w:gz", compresslevel=1, dereference=True) as tar:
            entry = tarfile.TarInfo("bin/python")
            entry.size, entry.mode = len(script), 0o755
            tar.addfile(entry, io.BytesIO(script))
            for name, path in sorted(files.items()):
                tar.add(path, f"{PACKAGES}/{name}", recursive=False)
        written.replace(archive)
    finally:
        written.unlink(missing_ok=True)
    return len(files) + 1


def required(name: str, extra: str = "") -> dict[str, Distribution]:
    """Return the distributions that one requires, and those that they require. Raises PackError.

    A requirement with a condition, such as another platform's, counts if it is installed.
    """
    found: dict[str, Distribution] = {}
    waiting = [(requirement, extra) for requirement in distribution(name).requires or ()]
    while waiting:
        requirement, wanted = waiting.pop()
        text, _, condition = requirement.partition(";")
        only_for = _EXTRA.search(condition)
        if only_for is not None and only_for[1] != wanted:
            continue
        match = _NAME.match(text.strip())
        assert match is not None, requirement
        key = re.sub(r"[-_.]+", "-", match[0]).lower()
        if key in found or key in SPARKS_OWN or key == name:
            continue
        try:
            found[key] = distribution(key)
        except PackageNotFoundError:
            if not condition or only_for is not None:
                raise PackError(f"the package {key} is not installed: {how_to_install(EXTRA)}") from None
            continue
        waiting += [(each, "") for each in found[key].requires or ()]
    return found


def _contents() -> Iterator[tuple[str, Path]]:
    """Yield the files of `packages`: their names there, and their paths here."""
    for module in ("triolog", *SOURCES):
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise PackError(f"the module {module} is not installed: {how_to_install(EXTRA)}")
        root = Path(spec.origin).parent  # a clone has links in it, which os.walk follows
        for folder, _, names in os.walk(root, followlinks=True):
            yield from ((f"{module}/{Path(folder, name).relative_to(root)}", Path(folder, name)) for name in names)
    for found in required("triolog", EXTRA).values():
        for file in found.files or ():
            if ".." not in file.parts:  # a script
                yield str(file), Path(str(found.locate_file(file)))
