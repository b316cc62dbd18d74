"""The stream of an accepted connection for HTTP: it counts what it receives, and encrypts where the listener does."""

from __future__ import annotations

import attrs
import trio

from ..connections.transport import Transport


@attrs.define(eq=False, repr=False)
class TransportStream(trio.abc.HalfCloseableStream):
    """Owner: its session, which never receives and sends at the same time."""

    transport: Transport

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return what has come, at most 64 KiB."""
        return await self.transport.receive()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything."""
        pieces = self.transport.encrypted([bytes(data)])
        size = sum(map(len, pieces))
        await self.transport.stream.send_all(b"".join(pieces))
        self.transport.counters.sent_bytes += size

    async def wait_send_all_might_not_block(self) -> None:
        """See trio."""
        await self.transport.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Say that nothing more is sent."""
        await self.transport.stream.send_all(self.transport.farewell())
        await self.transport.stream.send_eof()

    async def aclose(self) -> None:
        """Close at once."""
        await trio.aclose_forcefully(self.transport.stream)
