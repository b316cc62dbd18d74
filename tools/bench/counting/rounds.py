"""Rounds of requests that cost a server the same each time, on every machine, idle or busy.

The server runs in this thread's trio loop, and its clients are plain sockets in the same thread: requests are sent while
nothing is counted and the loop stands still, then the loop runs until every task waits. So all requests of a round are there
before the server looks, and nothing runs beside it. What the waiting itself costs is counted in rounds without requests, and
taken off.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self

import attrs
import trio
import trio.testing

from ..measuring.child import LoadFailedError
from ..measuring.wire import TIMEOUT_S, Address
from .meters import Calls, Counts, Files, Functions, Turns

RECEIVE_BYTES: Final = 256 * 1024
LENGTH_BYTES: Final = 4
PATIENCE_S: Final = 0.001
"""Between two looks at a server that waits for a thread."""
EMPTY_ROUNDS: Final = 20
BLOCKS: Final = 5
"""The one with the lowest counts is answered: what comes by itself, such as a timer, only adds."""
FILE_ROUNDS: Final = 5
TRIES: Final = 20
REST_S: Final = 0.1
"""A block in which a thread had to do with something, such as a checkpoint, is taken again after a rest."""


class Peer:
    """A client: a socket and the frame that it sends again and again. Lengths stand before frames."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address[0], address[1]), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(True)  # with a timeout, `recv` would wait for data in spite of its flag
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send a request of at most 32 KiB, which the kernel accepts at once. A longer one is never answered."""
        self._socket.sendall(frame)

    def take(self) -> bytes | None:
        """Return an answer without its length; None when it is not whole yet."""
        received = self._received
        try:
            while data := self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT):
                received += data
        except BlockingIOError:
            size = int.from_bytes(received[:LENGTH_BYTES], "big") + LENGTH_BYTES
            if len(received) < max(size, LENGTH_BYTES + 1):
                return None
            answer = bytes(received[LENGTH_BYTES:size])
            del received[:size]
            return answer
        raise LoadFailedError("the server closed a connection")

    async def ask(self, frame: bytes) -> bytes:
        """Send a request and return its answer; nothing of it is counted."""
        self.send(frame)
        with trio.fail_after(TIMEOUT_S):
            while (answer := self.take()) is None:
                await trio.testing.wait_all_tasks_blocked(PATIENCE_S)
        return answer


@attrs.define(eq=False, repr=False)
class Rounds:
    """Rounds of requests, one request of each peer at a time. Owner: the caller that opened the server, in its event loop."""

    peers: Sequence[Peer]
    frames: Sequence[bytes]
    """One for each peer."""
    check: Callable[[bytes], None]
    """Told every answer."""
    threads: Callable[[], Awaitable[int]]
    """How often the server has given work to a thread, be it to answer this."""

    async def counts(self, rounds: int, warm_up: int) -> Counts:
        """Of a request, after one request alone, so that not each of the first ones finds closed what the first one opens, and
        after `warm_up` rounds that are not counted."""
        await self._warm(warm_up)
        return Counts(await self._least(Calls(), rounds), await self._least(Turns(), rounds))

    async def functions(self, rounds: int, warm_up: int) -> dict[str, float]:
        """Return the calls of a request by function, most first; as `counts`, but over all rounds."""
        await self._warm(warm_up)
        meter, waiting = Functions(), Functions()
        await self._wait(waiting, 0)
        for _ in range(rounds):
            for _ in range(await self._round(meter)):
                meter.by_function.subtract(waiting.by_function)
        requests = rounds * len(self.peers)
        return {name: count / requests for name, count in meter.by_function.most_common() if count > 0}

    async def files(self, warm_up: int) -> list[str]:
        """Return the files of our functions that one round calls, in order. Of several rounds it is the shortest: the server's
        other tasks, which run now and then, only add to one."""
        await self._warm(warm_up)
        found = []
        for _ in range(FILE_ROUNDS):
            meter = Files()
            await self._round(meter)
            found.append(meter.names)
        return min(found, key=len)

    async def garbage(self, rounds: int, warm_up: int) -> float:
        """Return how many objects of a request only the garbage collector frees, on average: each may keep a buffer."""
        await self._warm(warm_up)
        gc.collect()
        gc.disable()
        try:
            for _ in range(rounds):
                await self._round(None)
            return gc.collect() / (rounds * len(self.peers))
        finally:
            gc.enable()

    async def _warm(self, rounds: int) -> None:
        self.check(await self.peers[0].ask(self.frames[0]))
        for _ in range(rounds):
            await self._round(None)

    async def _least(self, meter: Calls | Turns, rounds: int) -> float:
        for _ in range(EMPTY_ROUNDS):
            await self._wait(meter, 0)
        a_wait = meter.count / EMPTY_ROUNDS
        a_look = -await self.threads() + await self.threads()
        count = max(1, rounds // BLOCKS)
        return min([await self._block(meter, count, a_wait, a_look) for _ in range(rounds // count)])

    async def _block(self, meter: Calls | Turns, count: int, a_wait: float, a_look: int) -> float:
        """On average, of so many rounds in which no thread did anything; of the last ones tried where those cannot be had."""
        for _ in range(TRIES):
            threads = await self.threads()
            meter.count = waits = 0
            for _ in range(count):
                waits += await self._round(meter)
            if await self.threads() - threads <= a_look:
                break
            await trio.sleep(REST_S)
        return (meter.count - waits * a_wait) / (count * len(self.peers))

    async def _round(self, meter: Calls | Turns | None) -> int:
        """Return how often the round waited."""
        for peer, frame in zip(self.peers, self.frames, strict=True):
            peer.send(frame)
        left, waits = list(self.peers), 0
        with trio.fail_after(TIMEOUT_S):
            while left:
                await self._wait(meter, PATIENCE_S if waits else 0)
                waits += 1
                left = [peer for peer in left if not self._is_answered(peer)]
        return waits

    async def _wait(self, meter: Calls | Turns | None, cushion_s: float) -> None:
        if meter is None:
            await trio.testing.wait_all_tasks_blocked(cushion_s)
        else:
            with meter.running():
                await trio.testing.wait_all_tasks_blocked(cushion_s)

    def _is_answered(self, peer: Peer) -> bool:
        answer = peer.take()
        if answer is None:
            return False
        self.check(answer)
        return True
