"""triolog for asyncio programs: a broker in a thread of its own, and a client, which runs in the program's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tools.client.connection import connect

if TYPE_CHECKING:
    from .server.embedded.aio import open as open

__all__ = ["connect", "open"]


def __getattr__(name: str) -> Any:
    """Import `open` when it is used: systems without a server have clients. Raises AttributeError, ImportError."""
    if name != "open":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .server.embedded.aio import open as opened

    globals()["open"] = opened
    return opened
