"""The `triolog` command."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

PACKAGES: Final = {"click": "click", "rich": "rich", "h11": "h11", "yaml": "PyYAML"}
"""The extra `cli`: modules, and the names that users know."""


def run(prog_name: str | None = None) -> None:
    """Run the command. On Windows, and where a package is missing, end with one line that says so."""
    if sys.platform == "win32":
        from ...protocol.platforms import NO_SERVER

        sys.exit(NO_SERVER)
    if missing := [name for module, name in PACKAGES.items() if find_spec(module) is None]:
        from ...protocol.extras import how_to_install

        sys.exit(f"the triolog command needs {', '.join(missing)}: {how_to_install('cli')}")
    from .main import main

    try:
        main(prog_name=prog_name)
    except ImportError as exc:
        from ...protocol.errors import PackageMissingError

        if not isinstance(exc, PackageMissingError):
            raise
        sys.exit(str(exc))
