"""Where compiled modules are kept when none may be written beside the sources (`PYTHONDONTWRITEBYTECODE`): below `build`.

A `triolog serve` loads 200 of our modules and a test session as many of its own; compiling them takes a process longer than
everything else it does until it serves, and the suite starts a thousand. Processes that tests start inherit the choice.

The workers of pytest-xdist share the compilation (`import_in_turn`): each collects every test, and all would compile the same
module at the same time otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

import pytest

FORBIDDEN: Final = "PYTHONDONTWRITEBYTECODE"
PREFIX: Final = "PYTHONPYCACHEPREFIX"


def keep_compiled_modules(root: Path) -> None:
    """Let this process and those that it starts find and leave compiled modules in `root/build/bytecode`, if nowhere else."""
    if not os.environ.get(FORBIDDEN) or os.environ.get(PREFIX):
        return
    folder = root / "build" / "bytecode"
    shutil.rmtree(folder / tempfile.gettempdir().lstrip(os.sep), ignore_errors=True)  # of sources that are gone
    del os.environ[FORBIDDEN]
    os.environ[PREFIX] = sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False


def import_in_turn(root: Path, folders: Sequence[str], worker: int, workers: int) -> None:
    """Compile the modules below `folders` and import the test modules, each worker from its own part of them on.

    Where one worker has been, the next one finds compiled modules. A module that cannot be imported is left to the collection,
    which imports it again and reports the error.
    """
    modules = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    tests = [path for path in modules if path.name.startswith("test_")]
    for path in _from_part(sorted({*modules} - {*tests}), worker, workers):
        if not os.path.exists(cache_from_source(path)):
            with contextlib.suppress(SyntaxError):
                SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    for path in _from_part(tests, worker, workers):
        with contextlib.suppress(Exception, pytest.skip.Exception, pytest.fail.Exception):
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def _from_part(paths: Sequence[Path], part: int, parts: int) -> list[Path]:
    first = len(paths) * part // parts
    return [*paths[first:], *paths[:first]]
