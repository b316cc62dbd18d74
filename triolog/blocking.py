"""triolog for programs without an event loop: a broker in a thread of its own, and a client with plain sockets."""

from __future__ import annotations

from .server.embedded.blocking import open as open
from .tools.client.blocking import BlockingClient as connect

__all__ = ["connect", "open"]
