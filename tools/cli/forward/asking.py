"""How commands reach links that run: by the sockets in their directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from ..terminal.failures import FailedError, NotConnectedError

ASK_S: Final = 10.0

state_dir_option = click.option("--state-dir", type=click.Path(file_okay=False), help="Where the links are, as they were told.")


def state_folder(state_dir: str | None) -> Path:
    """Where links are."""
    from ...forward.process.place import default_state_dir

    context = click.get_current_context(silent=True)
    said = state_dir or (context.obj or {}).get("state_dir") if context is not None else state_dir
    return Path(said) if said else default_state_dir(os.environ)


def ask_link(link: str, state_dir: str | None, request: dict[str, Any], timeout_s: float | None = ASK_S) -> dict[str, Any]:
    """What a link answers. Raises NotConnectedError, FailedError."""
    from ...forward.process.asking import ask
    from ...forward.process.place import CONTROL

    folder = state_folder(state_dir)
    try:
        answer = ask(str(folder / link / CONTROL), request, timeout_s)
    except (OSError, ValueError) as exc:
        raise NotConnectedError(f"link {link} is not forwarded by any process that {folder} knows ({exc})") from exc
    if "state" not in answer:
        raise FailedError(f"link {link}: {answer.get('error', 'no answer')}")
    return answer
