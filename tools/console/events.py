"""Server-sent events: a stream of named JSON values to one browser, bounded.

A reader that does not take its events loses the oldest ones, and is told how many by an event `lost`. While there is nothing to
say, a comment every 15 s shows that the connection stands.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from ...protocol.errors import RequestError, TriologError
from ...server.listeners.http.access import HttpAnswer, Send
from .errors import ApiError, of_server

EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
MAX_EVENTS: Final = 64
HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": still here\n\n"
MAX_PIECE_BYTES: Final = 256 * 1024
"""Of events that are sent together."""


def encoded(name: str, value: Any) -> bytes:
    """Encode an event. JSON has no raw line breaks, so its data is one line."""
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


@attrs.define(eq=False, repr=False)
class EventQueue:
    """Events that wait to be sent to one reader. Owner: its stream."""

    max_events: int = MAX_EVENTS
    lost: int = 0
    """Since the reader was last told."""
    is_finished: bool = False
    _finished: trio.Event = attrs.field(factory=trio.Event)
    _events: deque[bytes] = attrs.field(factory=deque)
    _more: trio.Event = attrs.field(factory=trio.Event)
    _room: trio.Event = attrs.field(factory=trio.Event)

    def put(self, name: str, value: Any) -> None:
        """Add an event; the oldest one goes where there is no room."""
        self.put_encoded(encoded(name, value))

    def put_encoded(self, event: bytes) -> None:
        """The same, for an event that several readers get."""
        if len(self._events) >= self.max_events:
            self._events.popleft()
            self.lost += 1
        self._events.append(event)
        self._more.set()

    async def send(self, name: str, value: Any) -> None:
        """Add an event; wait for room instead of losing any."""
        await trio.lowlevel.checkpoint()
        while len(self._events) >= self.max_events:
            self._room = trio.Event()
            await self._room.wait()
        self.put(name, value)

    def finish(self) -> None:
        """No more events: the stream ends when all are sent."""
        self.is_finished = True
        self._more.set()
        self._finished.set()

    async def finished(self) -> None:
        """Wait until somebody has said so."""
        await self._finished.wait()

    async def take(self) -> bytes:
        """Wait for events and return as many as are sent together; empty when the stream has finished."""
        while not self._events:
            if self.is_finished:
                return b""
            self._more = trio.Event()
            await self._more.wait()
        pieces: list[bytes] = []
        size = 0
        if self.lost:
            pieces.append(encoded("lost", self.lost))
            self.lost = 0
        while self._events and size < MAX_PIECE_BYTES:
            pieces.append(self._events.popleft())
            size += len(pieces[-1])
        self._room.set()
        return b"".join(pieces)


Produce = Callable[[EventQueue], Awaitable[None]]
"""Puts events into a queue until it is cancelled, or has no more."""


def event_stream(produce: Produce, *, max_events: int = MAX_EVENTS) -> HttpAnswer:
    """An answer with the events of `produce`, which runs beside, and is cancelled when the reader goes away."""

    async def stream(send: Send) -> None:
        queue = EventQueue(max_events)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_run, produce, queue)
            while True:
                piece = HEARTBEAT
                with trio.move_on_after(HEARTBEAT_S):
                    piece = await queue.take()
                if not piece:
                    break
                await send(piece)
            nursery.cancel_scope.cancel()

    return HttpAnswer(200, b"", EVENT_STREAM, (("cache-control", "no-store"),), stream)


async def _run(produce: Produce, queue: EventQueue) -> None:
    """Run the producer of a stream. An error of the server or of the console becomes the last event, `failed`."""
    try:
        await produce(queue)
    except RequestError as exc:
        queue.put("failed", of_server(exc).to_json())
    except ApiError as exc:
        queue.put("failed", exc.to_json())
    except TriologError as exc:
        queue.put("failed", ApiError(503, "NO_ANSWER", str(exc)).to_json())
    finally:
        queue.finish()
