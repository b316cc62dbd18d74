"""Connections in memory: a client's stream, the server's socket, and between them a wire that the weather has its way with.

The server's end is a real socket of a pair, because its listeners watch descriptors; the wire is two tasks, one for each way.
Bytes arrive in order, late, in pieces, or not at all: a connection that is cut loses what is on its way.
"""

from __future__ import annotations

import math
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

import attrs
import trio

PIECE_BYTES: Final = 64 * 1024
HOST: Final = "127.0.0.1"


@attrs.define
class Weather:
    """How the network is at the moment."""

    latency_s: float = 0.0005
    """Of a piece, at most twice that."""
    cuts: float = 0.0
    """Probability that a piece is the last of its connection."""
    is_silent: bool = False
    """Nothing arrives; connections stay."""
    is_unheard: bool = False
    """What the server says does not arrive."""


class Socket(trio.socket.SocketType):
    """A socket of a pair, whose peer has the address of a host."""

    def __init__(self, plain: socket.socket, peer: tuple[str, int]) -> None:
        self._socket = trio.socket.from_stdlib_socket(plain)
        self._peer = peer

    def __getattribute__(self, name: str) -> Any:
        if name in ("getpeername", "getsockname", "setsockopt", "__class__") or name.startswith("_"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_socket"), name)

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def getsockname(self) -> tuple[str, int]:
        return self._peer

    def setsockopt(self, *args: Any) -> None:
        """There is nothing to be set."""


@attrs.define(eq=False)
class ClientStream(trio.abc.Stream):
    """A client's end."""

    wire: Wire
    _inbox: bytearray = attrs.field(factory=bytearray)
    _ended: bool = False
    _arrived: trio.Event = attrs.field(factory=trio.Event)

    async def send_all(self, data: Any) -> None:
        await trio.lowlevel.checkpoint()
        if self.wire.is_cut:
            raise trio.BrokenResourceError("the connection is cut")
        self.wire.to_server(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._inbox:
            if self.wire.is_cut:
                raise trio.BrokenResourceError("the connection is cut")
            if self._ended:
                return b""
            self._arrived = trio.Event()
            await self._arrived.wait()
        data = bytes(self._inbox[: max_bytes or PIECE_BYTES])
        del self._inbox[: len(data)]
        return data

    async def aclose(self) -> None:
        self.wire.hang_up()
        await trio.lowlevel.checkpoint()

    def arrived(self, data: bytes) -> None:
        """Bytes from the server; none: it has ended the connection."""
        self._inbox += data
        self._ended = self._ended or not data
        self._arrived.set()

    def cut(self) -> None:
        self._inbox.clear()
        self._arrived.set()


@attrs.define(eq=False)
class Wire:
    """One connection."""

    network: Network
    rng: random.Random
    far: trio.SocketStream
    """The other end of the server's socket."""
    client: ClientStream = attrs.field(init=False)
    is_cut: bool = False
    on_end: Callable[[], None] = lambda: None
    """Told when the server has ended the connection, or it is cut."""
    _outbox: deque[bytes] = attrs.field(factory=deque)
    _given: trio.Event = attrs.field(factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        self.client = ClientStream(self)

    def to_server(self, data: bytes) -> None:
        self._outbox.append(data)
        self._given.set()

    def hang_up(self) -> None:
        """The client closes its end: what it has sent still arrives."""
        self.to_server(b"")

    def cut(self) -> None:
        """Both ends are told; what is on its way is lost."""
        self.is_cut = True
        self.client.cut()
        self.on_end()
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._carry_to_server)
                    nursery.start_soon(self._carry_to_client)
        finally:
            self.far.socket.close()
            self.network.ended(self)

    async def _carry_to_server(self) -> None:
        while True:
            while not self._outbox:
                self._given = trio.Event()
                await self._given.wait()
            data = self._outbox.popleft()
            for piece in self._pieces(data):
                await self._travel()
                if not piece:
                    self._scope.cancel()
                    return
                try:
                    await self.far.send_all(piece)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.cut()
                    return

    async def _carry_to_client(self) -> None:
        while True:
            try:
                data = await self.far.receive_some(PIECE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.cut()
                return
            for piece in self._pieces(data):
                await self._travel()
                while self.network.weather.is_unheard:
                    await self.network.changed.wait()
                self.client.arrived(piece)
            if not data:
                self.on_end()
                return

    def _pieces(self, data: bytes) -> list[bytes]:
        if len(data) < 2 or self.rng.random() < 0.8:
            return [data]
        at = self.rng.randrange(1, len(data))
        return [data[:at], data[at:]]

    async def _travel(self) -> None:
        weather = self.network.weather
        await trio.sleep(self.rng.uniform(0, 2 * weather.latency_s))
        if weather.cuts and self.rng.random() < weather.cuts:
            self.cut()
            await trio.lowlevel.checkpoint()
        while self.network.weather.is_silent:
            await self.network.changed.wait()


@attrs.define(eq=False)
class SimulatedListener:
    """What `trio.open_tcp_listeners` gives in this world."""

    network: Network
    port: int
    _send: trio.MemorySendChannel[trio.SocketStream] = attrs.field(init=False)
    _accepted: trio.MemoryReceiveChannel[trio.SocketStream] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._send, self._accepted = trio.open_memory_channel(math.inf)

    @property
    def socket(self) -> Self:
        return self

    def getsockname(self) -> tuple[str, int]:
        return HOST, self.port

    def offer(self, stream: trio.SocketStream) -> None:
        self._send.send_nowait(stream)

    async def accept(self) -> trio.SocketStream:
        return await self._accepted.receive()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self.network.listeners.get(self.port) is self:
            del self.network.listeners[self.port]
        while True:
            try:
                self._accepted.receive_nowait().socket.close()
            except trio.WouldBlock:
                return


@attrs.define(eq=False)
class Network:
    """All connections of a world."""

    seed: str
    nursery: trio.Nursery
    weather: Weather = attrs.field(factory=Weather)
    listeners: dict[int, SimulatedListener] = attrs.field(factory=dict)
    changed: trio.Event = attrs.field(factory=trio.Event)
    _wires: dict[Wire, None] = attrs.field(factory=dict)
    _connections: int = 0

    async def listen(self, port: int, **_: Any) -> list[SimulatedListener]:
        """Stands for `trio.open_tcp_listeners`."""
        await trio.lowlevel.checkpoint()
        listener = self.listeners[port] = SimulatedListener(self, port)
        return [listener]

    def opener(self, port: int) -> Callable[[], Awaitable[ClientStream]]:
        """Opens connections to a port, as `tools.client` wants it."""

        async def open_stream() -> ClientStream:
            return await self.connect(port)

        return open_stream

    async def connect(self, port: int) -> ClientStream:
        """Raises OSError when nobody listens."""
        rng = random.Random(f"{self.seed}/wire {self._connections}")
        self._connections += 1
        await trio.sleep(rng.uniform(0, 2 * self.weather.latency_s))
        while self.weather.is_silent:
            await self.changed.wait()
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError("nobody listens")
        server_end, far_end = socket.socketpair()
        for end in (server_end, far_end):
            end.setblocking(False)
        listener.offer(trio.SocketStream(Socket(server_end, (HOST, 10_000 + self._connections))))
        wire = Wire(self, rng, trio.SocketStream(trio.socket.from_stdlib_socket(far_end)))
        self._wires[wire] = None
        self.nursery.start_soon(wire.run)
        return wire.client

    def change(self, weather: Weather) -> None:
        self.weather = weather
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def cut_all(self) -> None:
        """As when a process dies: nothing arrives any more."""
        self.listeners.clear()
        for wire in list(self._wires):
            wire.cut()

    def cut_some(self, rng: random.Random) -> None:
        for wire in list(self._wires):
            if rng.random() < 0.5:
                wire.cut()

    def ended(self, wire: Wire) -> None:
        self._wires.pop(wire, None)
