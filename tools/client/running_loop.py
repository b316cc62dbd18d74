"""The choice of the event loop that the client runs on."""

from __future__ import annotations

import trio

from .loops import TRIO, Loop


def current_loop() -> Loop:
    """Return the loop that the caller runs in. Raises RuntimeError outside of one."""
    if trio.lowlevel.in_trio_run():
        return TRIO
    from .asyncio_loop import current_asyncio_loop

    return current_asyncio_loop()
