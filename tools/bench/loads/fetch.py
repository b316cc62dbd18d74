"""Receivers: of fetch answers, and of a file that is sent without a server. Both take bytes in the same loop."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

from ..measuring.child import LoadFailedError, LoadProcess
from ..measuring.disk import serve_file
from ..measuring.wire import TIMEOUT_S, Address, Wire, packed

PIECE_BYTES: Final = 1024 * 1024


class FrameCounter:
    """Finds the ends of frames in a stream of which only lengths are looked at."""

    __slots__ = ("_header", "_left", "bytes", "frames", "smallest")

    def __init__(self) -> None:
        self.frames = self.bytes = 0
        self.smallest = 2**32
        self._header = bytearray()
        self._left = 0

    def take(self, data: memoryview) -> int:
        """Count what is in `data`; how many frames ended."""
        before, position = self.frames, 0
        while position < len(data):
            if self._left:
                step = min(self._left, len(data) - position)
                self._left -= step
                position += step
                if not self._left:
                    self.frames += 1
                continue
            step = 4 - len(self._header)
            self._header += data[position : position + step]
            position += step
            if len(self._header) == 4:
                self._left = int.from_bytes(self._header, "big")
                self.smallest = min(self.smallest, self._left)
                self.bytes += self._left
                self._header.clear()
        return self.frames - before


def receive(stream: socket.socket, wanted: Callable[[memoryview], bool]) -> float:
    """Take bytes in pieces of up to 1 MiB while `wanted` says so; seconds from now on."""
    view = memoryview(bytearray(PIECE_BYTES))
    started = time.perf_counter()
    while True:
        size = stream.recv_into(view)
        if not size:
            raise LoadFailedError("the sender closed the connection")
        if not wanted(view[:size]):
            return time.perf_counter() - started


def fetch(
    *,
    address: Address,
    topic: str,
    records: int,
    step: int,
    max_bytes: int,
    in_flight: int,
    requests: int,
    least_bytes: int | None = None,
    isolation: str = "read_uncommitted",
) -> dict[str, float]:
    """Fetch a partition of `records` records from its start, again and again, `step` records in `max_bytes` a request.

    An answer of fewer than `least_bytes`, else `max_bytes`, is an error.
    """
    least_bytes = max_bytes if least_bytes is None else least_bytes

    def frame(number: int, max_bytes: int) -> bytes:
        entry = {"topic": topic, "partition": 0, "offset": number * step % records, "max_bytes": max_bytes}
        body = {"max_bytes": max_bytes, "isolation": isolation, "partitions": [entry]}
        return packed(number + 2, "fetch", body)

    frames = [frame(number, max_bytes) for number in range(requests)]
    counter = FrameCounter()
    sent = in_flight
    with Wire(address) as wire:
        stream = wire.socket

        def wanted(data: memoryview) -> bool:
            nonlocal sent
            if ended := counter.take(data):
                stream.sendall(b"".join(frames[sent : sent + ended]))
                sent += ended
            return counter.frames < requests

        stream.sendall(b"".join(frames[:in_flight]))
        seconds = receive(stream, wanted)
    if counter.smallest < least_bytes:
        raise LoadFailedError(f"an answer has {counter.smallest} bytes, each was to hold {least_bytes} bytes of records")
    return {"mb_per_s": counter.bytes / seconds / 1e6}


def receive_file(*, path: str, total_bytes: int) -> dict[str, float]:
    """Receive a file from a process that does nothing but `pread` and `send`, on the same loopback."""
    left = total_bytes

    def wanted(data: memoryview) -> bool:
        nonlocal left
        left -= len(data)
        return left > 0

    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = {
            "path": path,
            "port": listener.getsockname()[1],
            "piece_bytes": PIECE_BYTES,
            "total_bytes": total_bytes,
        }
        listener.settimeout(TIMEOUT_S)
        with LoadProcess(serve_file, arguments) as sender:
            stream, _ = listener.accept()
            with stream:
                stream.settimeout(TIMEOUT_S)
                seconds = receive(stream, wanted)
            sender.answer()
    return {"mb_per_s": total_bytes / seconds / 1e6}
