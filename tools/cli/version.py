"""`triolog version`: prints the version."""

from __future__ import annotations

import click

from .terminal.output import say


@click.command
def command() -> None:
    """Print the version. `triolog status` shows the version of a server."""
    from importlib.metadata import version

    say(f"triolog {version('triolog')}")
