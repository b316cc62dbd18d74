"""`triolog demote`: make the topics of a stopped server mirrors of the server that was promoted."""

from __future__ import annotations

import click

from ..terminal.failures import FailedError
from ..terminal.output import count_text, say


@click.command
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False))
@click.option("--name", default="source", show_default=True, help="Name of the [[mirror]] table that the server will have.")
def command(directories: tuple[str, ...], name: str) -> None:
    """Make all topics in the log directories DIR of a stopped server mirrors.

    For a server that returns after another one was promoted in its place. Name all of its log directories. Then start it with a
    [[mirror]] table for the other server. Records that only this server has are set aside in files beside the logs, and listed
    by `triolog mirror`.
    """
    from ....protocol.errors import TriologError
    from ....server.config import DataPermissions
    from ....server.offline.demote import demote
    from ....server.storage.disk.filesystem import OsFileSystem

    try:
        topics = demote(OsFileSystem(DataPermissions.UMASK), directories, name)
    except (OSError, TriologError) as exc:
        raise FailedError(str(exc)) from exc
    say(f"{count_text(len(topics), 'topic')} will be copied from {name}: start the server with its [[mirror]] table")
