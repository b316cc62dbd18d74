"""Where compiled modules are kept when none may be written beside the sources (`PYTHONDONTWRITEBYTECODE`): below `build`.

A `triolog serve` loads 200 of our modules and a test session as many of its own; compiling them takes a process longer than
everything else it does until it serves, and the suite starts a thousand. Processes that tests start inherit the choice.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

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
