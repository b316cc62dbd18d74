"""The broker's end of a Kafka connection without a socket: bytes in, requests out; answers in, buffers out.

    frame      bytes  meaning
    length     4      signed, big-endian: bytes that follow
    header     .      api key, version, correlation id, client id; tagged fields in flexible versions
    body       .      the API's message

Owns framing and headers. The order of answers is its session's: Kafka answers the requests of a connection in the order they
came. Whoever speaks an API or a version that was not advertised is disconnected without an answer, as by Kafka, but for
ApiVersions, whose answer then tells what is spoken (KIP-511). Source: Kafka's RequestHeader, RequestContext, KIP-482.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from ..errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from ..limits import MIB
from ..receive_buffer import ReceiveBuffer
from ..schema import codec
from ..schema.fields import STRING, wire
from ..schema.fields import struct as message
from ..schema.primitives import COPIED_BYTES
from ..types import Bytes
from .apis import APIS, Api, ApiKey

MAX_REQUEST_BYTES: Final = 100 * MIB
"""Largest request (Kafka: socket.request.max.bytes)."""

_HEADER: Final = struct.Struct(">hhi")
_ANSWER: Final = struct.Struct(">ii")
_ANSWER_BYTES: Final = 4


@message
class _ClientId:
    """The part of a request's header behind the fixed fields. The string has a length of 2 bytes in all versions."""

    client_id: str | None = wire(STRING, nullable="0+", default=None)


@message
class _Tags:
    """Tagged fields of a header; none are known."""


class Request(NamedTuple):
    """A request whose header, and body, could be read. `body` is None when its version of ApiVersions is not spoken here."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    size_bytes: int


class KafkaConnection:
    """Bytes received and not yet handed out. Owner: the session's reading task."""

    __slots__ = ("_apis", "_buffer", "_end_received")

    def __init__(self, apis: dict[int, Api] = APIS, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._apis = apis
        self._buffer = ReceiveBuffer(max_request_bytes)
        self._end_received = False

    @property
    def end_received(self) -> bool:
        """Whether the peer has said that it sends no more."""
        return self._end_received

    @property
    def unread_bytes(self) -> int:
        """Bytes received that no request has covered yet."""
        return len(self._buffer)

    def receive_data(self, data: Bytes) -> None:
        """Take bytes from the peer; empty bytes are the end of its stream."""
        if self._end_received:
            raise LocalProtocolError(f"{len(data)} bytes were fed after the end of the stream")
        if data:
            self._buffer.feed(data)
        else:
            self._end_received = True

    def next_frame(self) -> memoryview | None:
        """The bytes of the next frame, which are a bare token after SaslHandshake v0; None when more are needed. Raises
        RemoteProtocolError."""
        return self._buffer.next_frame()

    def next_request(self) -> Request | None:
        """The next request; None when more bytes are needed. After RemoteProtocolError the connection is of no use."""
        frame = self._buffer.next_frame()
        return None if frame is None else self._read(frame)

    def _read(self, frame: memoryview) -> Request:
        if len(frame) < _HEADER.size:
            raise RemoteProtocolError(f"a request of {len(frame)} bytes is shorter than its header")
        key, version, correlation_id = _HEADER.unpack_from(frame)
        api = self._apis.get(key)
        if api is None:
            raise RemoteProtocolError(f"api key {key} is not served here", ErrorCode.UNSUPPORTED_VERSION)
        is_spoken = api.lowest_read <= version <= api.highest
        if not is_spoken and api.key is not ApiKey.API_VERSIONS:
            raise RemoteProtocolError(
                f"{api.name} v{version} is not served here; v{api.lowest_read} to v{api.highest} are",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        client, at = codec.read(_ClientId, 0, frame, _HEADER.size, flexible=False)
        if not is_spoken:
            return Request(api, version, correlation_id, client.client_id, None, len(frame))
        flexible = api.is_flexible(version)
        if flexible:
            _, at = codec.read(_Tags, 0, frame, at, flexible=True)
        body, _ = codec.read(api.request, version, frame, at, flexible=flexible)
        return Request(api, version, correlation_id, client.client_id, body, len(frame))


def answer_buffers(request: Request, body: object) -> list[Bytes]:
    """The buffers of an answer, records as they came."""
    return encode_answer(request.api, request.version, request.correlation_id, body)


def encode_answer(api: Api, version: int, correlation_id: int, body: object) -> list[Bytes]:
    """The same from its parts. ApiVersions has a header without tagged fields in all versions: who asks may not know them."""
    flexible = api.is_flexible(version)
    buffers = codec.write(body, version, flexible=flexible)
    tags = b"\0" if flexible and api.key is not ApiKey.API_VERSIONS else b""
    size = _ANSWER_BYTES + len(tags) + sum(map(len, buffers))
    head = _ANSWER.pack(size, correlation_id) + tags
    if buffers and len(buffers[0]) < COPIED_BYTES:
        return [head + bytes(buffers[0]), *buffers[1:]]
    return [head, *buffers]
