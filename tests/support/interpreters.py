"""The Pythons of this machine, of the versions that are supported."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CLASSIFIER: Final = "Programming Language :: Python :: 3."
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS: Final = tuple(f"3.{each.removeprefix(CLASSIFIER)}" for each in PROJECT["classifiers"] if each.startswith(CLASSIFIER))
THIS: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


@functools.cache
def interpreter(version: str) -> str | None:
    """A program of that version, such as 3.12, which makes virtual environments; None where there is none."""
    for candidate in _candidates(version):
        question = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([candidate, "-I", "-c", question], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


def _candidates(version: str) -> Iterator[str]:
    """The one below this environment, in which triolog is not installed; those on the path, which may be pyenv's stand-ins for
    nothing; and pyenv's own."""
    yield f"{sys.base_prefix}/bin/python{version}"
    if (found := shutil.which(f"python{version}")) is not None:
        yield found
    folder = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, sorted(folder.glob(f"{version}.*/bin/python{version}"), reverse=True))
