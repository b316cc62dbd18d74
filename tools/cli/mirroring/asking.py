"""Requests to the links of a server on this machine, over the sockets in their directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..forward.asking import ask_in

PROMOTE_S = 600.0
ASK_S = 10.0

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False),
    help="State directory of the links.  [default: TRIOLOG_MIRROR_DIR, or the user's]",
)


def folder_of(state_dir: str | None) -> Path:
    """Return the folder that holds the links."""
    from ...mirror.beside import state_folder

    return Path(state_dir) if state_dir else state_folder()


def running(state_dir: str | None) -> list[str]:
    """Return the names of all links in the folder."""
    from ...forward.process.place import links_in

    return links_in(folder_of(state_dir))


def ask_mirror(link: str, state_dir: str | None, request: dict[str, Any], timeout_s: float = ASK_S) -> dict[str, Any]:
    """Send a request and return the response. Raises NotConnectedError, FailedError."""
    return ask_in(folder_of(state_dir), "mirror", link, request, timeout_s)
