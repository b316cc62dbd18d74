"""triolog for asyncio programs: a broker in a thread of its own, and a client, which runs in the program's loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .server.embedded.aio import open as open
    from .server.embedded.joining_aio import open_or_join as open_or_join
    from .tools.client.connection import connect as connect

__all__ = ["connect", "open", "open_or_join"]

_PLACES: Final = {
    "connect": ("tools.client.connection", "connect"),
    "open": ("server.embedded.aio", "open"),
    "open_or_join": ("server.embedded.joining_aio", "open_or_join"),
}


def __getattr__(name: str) -> Any:
    """Import a function when it is used: a program has a broker or a client. Raises AttributeError, ImportError."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    function = globals()[name] = getattr(import_module(f".{module}", __package__), attribute)
    return function
