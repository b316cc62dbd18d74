"""The `triolog` command."""

from __future__ import annotations

import sys


def run(prog_name: str | None = None) -> None:
    """Run the command. On Windows, and where its packages are missing, end with one line that says so."""
    if sys.platform == "win32":
        from ...protocol.platforms import NO_SERVER

        sys.exit(NO_SERVER)
    try:
        from .main import main
    except ModuleNotFoundError as exc:
        if exc.name not in ("click", "rich"):
            raise
        from ...protocol.extras import how_to_install

        sys.exit(f"the triolog command needs click and rich: {how_to_install('cli')}")
    main(prog_name=prog_name)
