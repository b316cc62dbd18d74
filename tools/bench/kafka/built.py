"""The folder below `build/` for programs and answers that are made once."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = Path(__file__).resolve().parents[1] / "peers" / "kafka"


def built_in(name: str) -> Path:
    """Return a folder for built programs and answers; create it if need be."""
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that two runs at once build it once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
