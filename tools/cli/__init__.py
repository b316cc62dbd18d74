"""The `triolog` command."""

from __future__ import annotations

import sys

from ...protocol.extras import how_to_install
from ...protocol.platforms import check_platform


def run(prog_name: str | None = None) -> None:
    """Run the command. Where its packages are missing, or the system is none for it, end with one line that says so."""
    try:
        check_platform()
        from .main import main
    except ModuleNotFoundError as exc:
        if exc.name not in ("click", "rich"):
            raise
        sys.exit(f"the triolog command needs click and rich: {how_to_install('cli')}")
    except ImportError as exc:
        sys.exit(str(exc))
    main(prog_name=prog_name)
