"""The client's event loop under trio, of trio's own parts."""

from __future__ import annotations

import ssl
from typing import Final

import trio

from ...protocol.types import Bytes
from .config import Address
from .exchange import MAX_VECTOR, remove_sent
from .loops import Loop, Stream, send_each, take_uninterrupted


async def _open_tcp(address: Address, context: ssl.SSLContext | None) -> Stream:
    stream = await trio.open_tcp_stream(*address)
    if context is None:
        return stream
    encrypted = trio.SSLStream(stream, context, server_hostname=address[0], https_compatible=True)
    try:
        await encrypted.do_handshake()
    except BaseException as exc:
        await trio.aclose_forcefully(stream)
        if isinstance(exc, trio.BrokenResourceError):
            raise OSError(f"TLS handshake failed: {exc.__cause__}") from exc
        raise
    return encrypted


async def _send_buffers(stream: Stream, buffers: list[Bytes]) -> None:
    if not isinstance(stream, trio.SocketStream):
        await send_each(stream, buffers)
    while buffers:
        remove_sent(buffers, await stream.socket.sendmsg(buffers[:MAX_VECTOR]))  # type: ignore[attr-defined]


TRIO: Final = Loop(
    event=trio.Event,
    lock=trio.Lock,
    parking_lot=trio.lowlevel.ParkingLot,
    scope=trio.CancelScope,
    open_nursery=trio.open_nursery,
    checkpoint=trio.lowlevel.checkpoint,
    checkpoint_if_cancelled=trio.lowlevel.checkpoint_if_cancelled,
    now=trio.current_time,
    sleep=trio.sleep,
    open_tcp=_open_tcp,
    close_now=trio.aclose_forcefully,
    send_buffers=_send_buffers,
    is_encrypted=lambda stream: isinstance(stream, trio.SSLStream),
    broken=(trio.BrokenResourceError, trio.ClosedResourceError, OSError),
)


def current_trio_loop() -> Loop | None:
    """Return the loop that the caller runs in; None outside of trio."""
    if not trio.lowlevel.in_trio_run():
        return None
    for function in take_uninterrupted():
        trio.lowlevel.enable_ki_protection(function)
    return TRIO
