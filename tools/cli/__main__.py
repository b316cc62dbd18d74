"""`python -m triolog.tools.cli`: the `triolog` command where its script is not on the path."""

from __future__ import annotations

from . import run

if __name__ == "__main__":
    run("triolog")
