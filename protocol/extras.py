"""The commands that install an extra or a group, as errors give them. Only INSTALL changes with the first release on PyPI."""

from __future__ import annotations

from typing import Final

INSTALL: Final = "pip install '.[{}]' in a clone of triolog"
INSTALL_GROUP: Final = "pip install --editable . --group {} in a clone of triolog (pip 25.1 or newer)"


def how_to_install(extra: str) -> str:
    """Return the command for one extra, or for several with commas in between."""
    return INSTALL.format(extra)


def how_to_install_group(group: str) -> str:
    """Return the command for one group of packages that only a clone needs, such as a demo's."""
    return INSTALL_GROUP.format(group)
