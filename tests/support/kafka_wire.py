"""A blocking client of Kafka's protocol with nothing between the test and the wire: a socket and the messages.

It neither retries nor looks for versions; a test says which version it speaks. Answers come in the order of the requests.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import attrs
from triolog.protocol.kafka.apis import APIS, Api, ApiKey
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import all_fields

TIMEOUT_S: Final = 60.0
CLIENT_ID: Final = "kafka-wire"
BY_NAME: Final = {api.name: api for api in APIS.values()}


class Asked(NamedTuple):
    """A request that was sent."""

    api: Api
    version: int
    correlation_id: int


def api_of(body: object) -> Api:
    """The API of a request's body."""
    return BY_NAME[type(body).__name__.removesuffix("Request")]


def frame(body: object, version: int, correlation_id: int, client_id: str | None = CLIENT_ID) -> bytes:
    """A request as it goes over the wire."""
    api = api_of(body)
    flexible = api.is_flexible(version)
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    header = struct.pack(">hhi", api.key, version, correlation_id) + name + (b"\0" if flexible else b"")
    data = header + b"".join(codec.write(body, version, flexible=flexible))
    return struct.pack(">i", len(data)) + data


def decode_answer(asked: Asked, data: bytes) -> Any:
    """The body of an answer, given without its length. ApiVersions has a header without tagged fields in all versions."""
    (correlation_id,) = struct.unpack_from(">i", data)
    assert correlation_id == asked.correlation_id, f"{asked} got an answer to {correlation_id}"
    flexible = asked.api.is_flexible(asked.version)
    at = 5 if flexible and asked.api.key is not ApiKey.API_VERSIONS else 4
    body, end = codec.read(asked.api.response, asked.version, memoryview(data), at, flexible=flexible)
    assert end == len(data), f"{asked.api.name} v{asked.version}: {len(data) - end} bytes behind the answer"
    return body


@attrs.define(eq=False)
class KafkaWire:
    """One connection. Owner: the test."""

    socket: socket.socket
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    _asked: deque[Asked] = attrs.field(factory=deque)

    @classmethod
    def connect(cls, address: tuple[str, int], *, timeout_s: float = TIMEOUT_S) -> Self:
        connected = socket.create_connection(address, timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, body: object, version: int) -> None:
        """Send a request whose answer `receive` will give."""
        asked = Asked(api_of(body), version, next(self._ids))
        self.send_raw(frame(body, version, asked.correlation_id))
        self._asked.append(asked)

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.socket.sendall(data)

    def receive(self) -> Any:
        """The body of the answer to the oldest request that has none yet. ConnectionError when the server ends it instead."""
        return decode_answer(self._asked.popleft(), self.receive_frame())

    def receive_frame(self) -> bytes:
        """The bytes of the next answer, header included."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, body: object, version: int) -> Any:
        """Send a request and wait for its answer."""
        self.send(body, version)
        return self.receive()

    def is_closed_by_server(self) -> bool:
        """Whether the server ends the connection without another word; waits for it. A reset counts."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError(f"the server ended the connection {size - len(data)} bytes before the end of an answer")
            data += piece
        return bytes(data)


def ask(api: str, **fields: Any) -> Any:
    """The request of an API. A dict stands for a structure in it; fields that are left out have their defaults."""
    return _made(BY_NAME[api].request, fields)


def _made(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_made(kind, each) for each in value]
    if not isinstance(value, dict):
        return value
    kinds = {field.name: field.element for field in all_fields(kind)}
    return kind(**{name: _made(kinds[name], each) for name, each in value.items()})
