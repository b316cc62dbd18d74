"""A driver of the native protocol that costs as little as Python allows, so that the server is what is measured.

Frames are packed before the clock starts. Answers are counted by their frames' lengths; the body of one per connection and
load is decoded, so that a load that is refused is not taken for a fast one.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from ....protocol.native.connection import NEED_DATA, NativeConnection, Response
from ....protocol.native.frames import pack_frame, unpack_frame
from ....protocol.native.messages import VERSION
from ....protocol.native.state import Role
from ....protocol.records.builder import BatchBuilder
from ....protocol.types import Bytes
from .child import LoadFailedError

Address = Sequence[Any]
"""Host and port, as JSON carries them."""

FIRST_TIMESTAMP: Final = 1_700_000_000_000
RECEIVE_BYTES: Final = 256 * 1024
TIMEOUT_S: Final = 60.0
JOINED_BYTES: Final = 4096
"""Frames below this are joined before they are sent."""
MAX_VECTOR: Final = 64


class Wire:
    """A blocking connection after its handshake. Use `ask` for measured requests, `call` for all others."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection((address[0], address[1]), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = NativeConnection(Role.CLIENT)
        self._last_id = 0
        self.call("hello", {"client_id": "bench"})

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its answer. Raises LoadFailedError when it, or an entry of it, is an error."""
        self._last_id += 1
        self.socket.sendall(b"".join(self._protocol.send_request(self._last_id, api, VERSION, body)))
        while (event := self._protocol.next_event()) is NEED_DATA:
            data = self.socket.recv(RECEIVE_BYTES)
            self._protocol.receive_data(data)
        if not isinstance(event, Response) or event.error is not None or event.body is None:
            raise LoadFailedError(f"{api} returned {event}")
        check_body(event.body)
        return dict(event.body)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; keys of `config` are Kafka's with underscores for dots."""
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.call("create_topics", {"topics": [{"name": name, "partitions": partitions, "config": keys}]})

    def alter_topic(self, name: str, **config: str) -> None:
        """Change keys of a topic, named as in `create_topic`."""
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.call("alter_configs", {"topics": [{"name": name, "set": keys}]})

    def ask(self, frame: bytes) -> bytes:
        """Send one packed frame and receive its answer, the length included. Nothing is decoded."""
        self.socket.sendall(frame)
        answer = self.socket.recv(RECEIVE_BYTES)
        while len(answer) < 4 or len(answer) - 4 < int.from_bytes(answer[:4], "big"):
            more = self.socket.recv(RECEIVE_BYTES)
            if not more:
                raise LoadFailedError("the server closed the connection")
            answer += more
        return answer


def packed(correlation_id: int, api: str, body: dict[str, Any]) -> bytes:
    """Return a request as one buffer."""
    return b"".join(pack_frame((correlation_id, api, VERSION), body))


def read_answer(frame: Bytes) -> tuple[int, dict[str, Any]]:
    """Return correlation id and body of an answer, without its length. Raises LoadFailedError when something in it failed."""
    answer: Any = unpack_frame(memoryview(frame), None)
    correlation_id, error, body = answer
    if error is not None:
        raise LoadFailedError(f"the server returned {error}")
    check_body(body)
    return correlation_id, body


def check_body(body: Any) -> None:
    for entries in body.values():
        if isinstance(entries, list):
            for entry in entries:
                if isinstance(entry, dict) and entry.get("error"):
                    raise LoadFailedError(f"the server returned {entry['error']}")


def batch_of(records: int, value_bytes: int, *, first_timestamp: int = FIRST_TIMESTAMP) -> bytes:
    """Return a batch whose records are a millisecond apart."""
    builder = BatchBuilder()
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    for number in range(records):
        builder.append(first_timestamp + number, None, value[:value_bytes])
    return builder.build()


def produce_frame(correlation_id: int, topic: str, partition: int, records: bytes) -> bytes:
    """Return a request that appends one batch."""
    entry = {"topic": topic, "partition": partition, "records": records}
    return packed(correlation_id, "produce", {"acks": -1, "partitions": [entry]})


class Pipeline:
    """A connection that keeps `in_flight` requests in flight and sends `total` of the given frames in turn."""

    __slots__ = ("_frames", "_left", "_received", "_unsent", "answered", "checked", "sent", "socket", "total")

    def __init__(self, wire: Wire, frames: Iterable[bytes], total: int) -> None:
        self.socket = wire.socket
        self.total = total
        self.sent = self.answered = 0
        self.checked = False
        self._frames = iter(frames)
        self._received = bytearray()
        self._unsent: deque[memoryview] = deque()

    def send(self, count: int) -> None:
        """Send up to `count` more requests, as far as the kernel takes them."""
        due = list(islice(self._frames, min(count, self.total - self.sent)))
        self.sent += len(due)
        if len(due) > 1 and len(due[0]) < JOINED_BYTES:
            self._unsent.append(memoryview(b"".join(due)))
        else:
            self._unsent.extend(map(memoryview, due))
        self.flush()

    def flush(self) -> bool:
        """Send the rest; return whether something is still left."""
        unsent = self._unsent
        while unsent:
            try:
                taken = self.socket.sendmsg(list(islice(unsent, MAX_VECTOR)))
            except BlockingIOError:
                return True
            while taken and taken >= len(unsent[0]):
                taken -= len(unsent.popleft())
            if taken:
                unsent[0] = unsent[0][taken:]
        return False

    def receive(self) -> int:
        """Receive once; return how many whole answers came."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailedError("the server closed the connection")
        buffer = self._received
        buffer += data
        position = count = 0
        while len(buffer) - position >= 4:
            length = int.from_bytes(buffer[position : position + 4], "big")
            if len(buffer) - position - 4 < length:
                break
            if not self.checked:
                read_answer(bytes(buffer[position + 4 : position + 4 + length]))
                self.checked = True
            position += 4 + length
            count += 1
        del buffer[:position]
        self.answered += count
        return count


_SYSTEM: Final[Any] = select
"""Without types: the stubs of other platforms than Linux lack epoll."""


def drive_pipelines(pipelines: Sequence[Pipeline], in_flight: int) -> float:
    """Keep every pipeline full until all is answered; return the seconds. Raises LoadFailedError when no answer comes."""
    poller = _SYSTEM.epoll()
    try:
        by_fd = {pipeline.socket.fileno(): pipeline for pipeline in pipelines}
        for pipeline in pipelines:
            pipeline.socket.setblocking(False)
            poller.register(pipeline.socket.fileno(), _SYSTEM.EPOLLIN)
        waiting: set[int] = set()
        running = len(pipelines)
        started = time.perf_counter()
        for pipeline in pipelines:
            pipeline.send(in_flight)
            _watch(poller, pipeline, waiting)
        while running:
            ready = poller.poll(TIMEOUT_S)
            if not ready:
                unanswered = sum(pipeline.total - pipeline.answered for pipeline in pipelines)
                raise LoadFailedError(f"{unanswered} requests are unanswered, and nothing arrived for {TIMEOUT_S:g} s")
            for fd, events in ready:
                pipeline = by_fd[fd]
                if events & _SYSTEM.EPOLLOUT:
                    pipeline.flush()
                if events & (_SYSTEM.EPOLLIN | _SYSTEM.EPOLLHUP | _SYSTEM.EPOLLERR) and (count := pipeline.receive()):
                    if pipeline.answered == pipeline.total:
                        running -= 1
                    else:
                        pipeline.send(count)
                _watch(poller, pipeline, waiting)
        return time.perf_counter() - started
    finally:
        poller.close()


def _watch(poller: Any, pipeline: Pipeline, waiting: set[int]) -> None:
    """Wait for space in the socket's buffer only while something is left to send."""
    fd = pipeline.socket.fileno()
    has_more = pipeline.flush()
    if has_more != (fd in waiting):
        poller.modify(fd, _SYSTEM.EPOLLIN | _SYSTEM.EPOLLOUT if has_more else _SYSTEM.EPOLLIN)
        (waiting.add if has_more else waiting.discard)(fd)
