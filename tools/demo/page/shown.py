"""The demo's data served once more, with a console to look at it, until somebody has seen enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from ..day import DAY_END, DAY_START
from ..server_process import open_server
from ..story import TOPIC


async def show(data_dir: Path, work_dir: Path, console: str, say: Callable[[str], None]) -> None:
    """Serve until cancelled or interrupted. `console`: HOST:PORT of the page. Raises ServerFailedError."""
    async with open_server(data_dir, work_dir, ["--console", console]) as server:
        page = server.page()
        say(f"The console: {page}/")
        say(f"The Fourth of July: {page}/topics/{TOPIC}/records?at={DAY_START}&to={DAY_END}")
        say(f"How a time is looked up: {page}/topics/{TOPIC}/walk?partition=0&at={DAY_START}")
        say("Ctrl-C ends it.")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await server.stop()
