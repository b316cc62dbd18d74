"""`triolog spark home`: the command for clusters that are started from the pip package."""

from __future__ import annotations

import os

import click

from ...protocol.extras import how_to_install
from ..cli.terminal.failures import FailedError
from .java import cache_folder
from .unpacked import unpacked_home


@click.command
def command() -> None:
    """Print a home of Spark whose Python processes start faster.

    Set SPARK_HOME to it where you start workers from the pip package, or run `spark-submit`.
    """
    try:
        home = unpacked_home(os.environ)
    except ImportError as exc:
        raise FailedError(f"Spark's packages are not installed ({exc}): {how_to_install('spark')}") from exc
    except OSError as exc:
        raise FailedError(f"cannot write to {cache_folder(os.environ)}: {exc.strerror}") from exc
    click.echo(home)
