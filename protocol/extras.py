"""The commands that install an extra or a group, as errors give them.

On the day of the first release on PyPI only IS_ON_PYPI changes. `make install-lines` then changes the documentation.
"""

from __future__ import annotations

from typing import Final

IS_ON_PYPI: Final = False
IN_A_CLONE: Final = "pip install '.[{}]' in a clone of triolog"
INSTALL: Final = "pip install 'triolog[{}]'" if IS_ON_PYPI else IN_A_CLONE
INSTALL_GROUP: Final = "pip install --editable . --group {} in a clone of triolog (pip 25.1 or newer)"


def how_to_install(extra: str) -> str:
    """Return the command for one extra, or for several with commas in between."""
    return INSTALL.format(extra)


def how_to_install_group(group: str) -> str:
    """Return the command for one group of packages that only a clone needs, such as a demo's."""
    return INSTALL_GROUP.format(group)
