"""Where programs and answers are kept that are made once: below `build/` of a checkout, else in the user's cache directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = Path(__file__).resolve().parents[1] / "peers" / "kafka"


def built_in(name: str) -> Path:
    """Return a folder for built programs and answers; create it if need be."""
    if (ROOT / "Makefile").is_file() and (ROOT / "pyproject.toml").is_file():
        folder = ROOT / "build" / name
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triolog-bench" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that two runs at once build it once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
