"""The command that installs an extra, as errors give it. It is the only place that changes with the first release on PyPI."""

from __future__ import annotations

from typing import Final

INSTALL: Final = "pip install '.[{}]' in a clone of triolog"


def how_to_install(extra: str) -> str:
    """Return the command for one extra, or for several with commas in between."""
    return INSTALL.format(extra)
