"""`python -m triolog.tools.cli`: the `triolog` command where its script is not on the path."""

from __future__ import annotations

from .main import main

if __name__ == "__main__":
    main(prog_name="triolog")
