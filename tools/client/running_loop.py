"""The choice of the event loop that the client runs on."""

from __future__ import annotations

import sys
import threading
from typing import Final

from .loops import Loop


class _InPlace(threading.local):
    loop: Loop | None = None


IN_PLACE: Final = _InPlace()
"""The loop of the blocking client whose call this thread is in. It may be inside of another loop, which it blocks."""


def current_loop() -> Loop:
    """Return the loop that the caller runs in. Raises RuntimeError outside of one."""
    if IN_PLACE.loop is not None:
        return IN_PLACE.loop
    if "trio" in sys.modules:
        from .trio_loop import current_trio_loop

        if (loop := current_trio_loop()) is not None:
            return loop
    from .asyncio_loop import current_asyncio_loop

    return current_asyncio_loop()
