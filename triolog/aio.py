"""triolog for asyncio programs: a broker in a thread of its own."""

from __future__ import annotations

from .server.embedded.aio import open as open

__all__ = ["open"]
