"""Logic of both clients around their sockets: greet, begin a request, read a response, prepare buffers. No sockets, no trio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from ...protocol.native.connection import LastError, NativeConnection, Response
from ...protocol.native.messages import (
    ACKS_NONE,
    VERSION,
    FetchRequest,
    HelloRequest,
    HelloResponse,
    ProduceRequest,
    RequestMessage,
    ResponseMessage,
    decode_response,
)
from ...protocol.native.state import Role
from ...protocol.types import Bytes
from .config import CLIENT_SOFTWARE, ClientConfig
from .errors import ConnectionLostError

HELLO_ID: Final = 1
FIRST_ID: Final = 2
MIN_RECEIVE_BYTES: Final = 64 * 1024
MAX_RECEIVE_BYTES: Final = 1024 * 1024
MAX_VECTOR: Final = 64
"""Buffers of one send: with joined ones a megabyte and more. The kernel refuses more than 1,024 (Linux: UIO_MAXIOV)."""
JOINED_BYTES: Final = 16 * 1024
"""Neighbouring buffers are joined up to here: one more entry of a vectored send costs about as much as this memcpy."""

R = TypeVar("R", bound=ResponseMessage)


def greeting(config: ClientConfig) -> tuple[NativeConnection, list[Bytes]]:
    """A new connection and what to send first on it."""
    protocol = NativeConnection(Role.CLIENT, max_frame_bytes=config.max_frame_bytes)
    request = HelloRequest(config.client_id, CLIENT_SOFTWARE)
    return protocol, protocol.send_request(HELLO_ID, request.api, VERSION, request.to_body())


def read_greeting(event: object, protocol: NativeConnection) -> HelloResponse:
    """The answer to hello, its limits adopted; raises the server's refusal, or ConnectionLostError for anything else."""
    hello = expect(HelloResponse, first_answer(event, "hello"))
    protocol.adopt_limits(max_frame_bytes=hello.max_frame_bytes, max_in_flight=hello.max_in_flight)
    return hello


def first_answer(event: object, to: str) -> ResponseMessage:
    """The answer to the only request under way; raises the server's refusal, or ConnectionLostError for anything else."""
    if isinstance(event, LastError):
        raise ConnectionLostError(f"the server ended the connection: {event.error}")
    if not isinstance(event, Response):
        raise ConnectionLostError(f"the server closed the connection before it responded to {to}")
    return read_answer(event)


def is_answered(request: RequestMessage) -> bool:
    """Return whether the server responds to this request; it does not respond to a produce with acks 0."""
    return not (isinstance(request, ProduceRequest) and request.acks == ACKS_NONE)


def wait_ms(request: RequestMessage) -> int:
    """Return how long the server may wait on purpose before it responds."""
    if isinstance(request, FetchRequest):
        return request.max_wait_ms
    return request.timeout_ms if isinstance(request, ProduceRequest) else 0


def begin(protocol: NativeConnection, correlation_id: int, request: RequestMessage) -> list[Bytes]:
    """The buffers of a request, which is in flight from now on."""
    return protocol.send_request(correlation_id, request.api, VERSION, request.to_body(), expects_answer=is_answered(request))


def following(correlation_id: int) -> int:
    """The next correlation id; after the largest they start again, and 0 is the server's."""
    return correlation_id % 0xFFFF_FFFF + 1


def read_answer(response: Response) -> ResponseMessage:
    """The message of an answer; raises the server's error, or RemoteProtocolError when it makes no sense."""
    if response.error is not None:
        raise response.error
    assert response.body is not None, "a response without an error has a body"
    return decode_response(response.api, response.version, response.body)


def expect(response_type: type[R], response: ResponseMessage | None) -> R:
    """The answer as the type that belongs to its request."""
    assert isinstance(response, response_type), f"{response!r} is not a {response_type.__name__}"
    return response


def receive_size(protocol: NativeConnection) -> int:
    """Return the number of bytes to read at once: the missing part of the current frame, within bounds."""
    return min(max(protocol.missing_bytes, MIN_RECEIVE_BYTES), MAX_RECEIVE_BYTES)


def joined(pieces: Sequence[Bytes]) -> list[Bytes]:
    """The same bytes in fewer buffers: neighbours are copied into one of up to JOINED_BYTES."""
    buffers: list[Bytes] = []
    run: list[Bytes] = []
    size = 0
    for piece in pieces:
        if run and size + len(piece) > JOINED_BYTES:
            buffers.append(run[0] if len(run) == 1 else b"".join(run))
            run, size = [], 0
        run.append(piece)
        size += len(piece)
    if run:
        buffers.append(run[0] if len(run) == 1 else b"".join(run))
    return buffers


def remove_sent(buffers: list[Bytes], sent: int) -> None:
    """Take what a vectored send has taken off the front."""
    while buffers and sent >= len(buffers[0]):
        sent -= len(buffers.pop(0))
    if sent:
        buffers[0] = memoryview(buffers[0])[sent:]
