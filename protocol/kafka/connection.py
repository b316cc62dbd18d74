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
from ..schema.fields import struct as message
from ..schema.primitives import COPIED_BYTES
from ..types import Bytes
from .apis import APIS, Api, ApiKey

MAX_REQUEST_BYTES: Final = 100 * MIB
"""Largest request (Kafka: socket.request.max.bytes)."""

_HEADER: Final = struct.Struct(">hhih")
_ANSWER: Final = struct.Struct(">ii")
_ANSWER_BYTES: Final = 4


@message
class _Tags:
    """Tagged fields of a header; none are known."""


class Header(NamedTuple):
    """A request's header up to where tagged fields may stand. `size_bytes` of it have been read."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    size_bytes: int


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
        header = read_header(frame)
        version, correlation_id, client_id = header.version, header.correlation_id, header.client_id
        api = self._apis.get(header.api_key)
        if api is None:
            raise RemoteProtocolError(f"api key {header.api_key} is not served here", ErrorCode.UNSUPPORTED_VERSION)
        if not api.lowest_read <= version <= api.highest:
            if api.key is ApiKey.API_VERSIONS:
                return Request(api, version, correlation_id, client_id, None, len(frame))
            raise RemoteProtocolError(
                f"{api.name} v{version} is not served here; v{api.lowest_read} to v{api.highest} are",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        flexible, at = api.is_flexible(version), header.size_bytes
        if flexible:
            at = _pass_over_tags(frame, at)
        body, _ = codec.read(api.request, version, frame, at, flexible=flexible)
        return Request(api, version, correlation_id, client_id, body, len(frame))


def read_header(frame: memoryview) -> Header:
    """The fields that every header has; the client id has a length of 2 bytes in all versions. Raises RemoteProtocolError."""
    if len(frame) < _HEADER.size:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes is shorter than its header of {_HEADER.size}")
    key, version, correlation_id, length = _HEADER.unpack_from(frame)
    if length == -1:
        return Header(key, version, correlation_id, None, _HEADER.size)
    stop = _HEADER.size + length
    if length < 0 or stop > len(frame):
        raise RemoteProtocolError(f"a client id claims {length} bytes, {len(frame) - _HEADER.size} are left")
    try:
        client_id = str(frame[_HEADER.size : stop], "utf-8")
    except UnicodeDecodeError as exc:
        raise RemoteProtocolError(f"a client id is not UTF-8: {exc}") from None
    return Header(key, version, correlation_id, client_id, stop)


def _pass_over_tags(frame: memoryview, at: int) -> int:
    """Where the body begins. There is nearly never a tag."""
    if at < len(frame) and frame[at] == 0:
        return at + 1
    _, at = codec.read(_Tags, 0, frame, at, flexible=True)
    return at


def answer_buffers(request: Request, body: object) -> list[Bytes]:
    """The buffers of an answer, records as they came. A version of ApiVersions that is not spoken here is answered in version
    0, which every client reads (KIP-511)."""
    version = 0 if request.body is None else request.version
    return encode_answer(request.api, version, request.correlation_id, body)


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
