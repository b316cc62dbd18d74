"""The systems that a server runs on, and the sentence for the others."""

from __future__ import annotations

import sys
from typing import Final

NO_SERVER: Final = (
    "triolog's server and command do not run on Windows: run them in WSL (https://learn.microsoft.com/windows/wsl); "
    "triolog.blocking.connect and triolog.aio.connect work here"
)


def check_platform() -> None:
    """Raises ImportError with NO_SERVER on Windows, before anything that it lacks is imported."""
    if sys.platform == "win32":
        raise ImportError(NO_SERVER)
