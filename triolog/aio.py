"""triolog for asyncio programs: a broker in a thread of its own, and a client, which runs in the program's loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .tools.client.connection import connect

if TYPE_CHECKING:
    from .server.embedded.aio import open as open
    from .server.embedded.joining_aio import open_or_join as open_or_join

__all__ = ["connect", "open", "open_or_join"]

_PLACES: Final = {"open": "aio", "open_or_join": "joining_aio"}


def __getattr__(name: str) -> Any:
    """Import a function when it is used: systems without a server have clients. Raises AttributeError, ImportError."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    opened = globals()[name] = getattr(import_module(f".server.embedded.{_PLACES[name]}", __package__), name)
    return opened
