"""triolog for programs without an event loop: a broker in a thread of its own, and a client with plain sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tools.client.blocking import BlockingClient as connect

if TYPE_CHECKING:
    from .server.embedded.blocking import open as open

__all__ = ["connect", "open"]


def __getattr__(name: str) -> Any:
    """Import `open` when it is used: systems without a server have clients. Raises AttributeError, ImportError."""
    if name != "open":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .server.embedded.blocking import open as opened

    globals()["open"] = opened
    return opened
