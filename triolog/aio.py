"""triolog for asyncio programs: a broker in a thread of its own, and a client, which runs in the program's loop."""

from __future__ import annotations

from .server.embedded.aio import open as open
from .tools.client.connection import connect

__all__ = ["connect", "open"]
