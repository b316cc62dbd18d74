"""The broker's end of a Kafka connection without a socket: bytes in, requests out; answers in, buffers out.

    frame      bytes  meaning
    length     4      signed, big-endian: bytes that follow
    header     .      api key, version, correlation id, client id; tagged fields in flexible versions
    body       .      the API's message

Owns framing and headers. The order of answers is its session's: Kafka answers the requests of a connection in the order they
came. Whoever speaks an API or a version that was not advertised is disconnected without an answer, as by Kafka, but for
ApiVersions, whose answer then tells what is spoken (KIP-511). Source: Kafka's RequestHeader, RequestContext, KIP-482.

Answers of success, written without the messages' objects: a produce that every partition has taken, a lookup that has found
every offset. They would need an object for each partition, although all but a few numbers are always the same.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, ClassVar, Final, NamedTuple

import attrs

from ..errors import ErrorCode, RemoteProtocolError
from ..limits import KIB, MAX_REQUEST_BYTES
from ..receive_buffer import ReceiveBuffer
from ..schema import codec
from ..schema.fields import struct as message
from ..schema.primitives import COPIED_BYTES, most_elements
from ..schema.reader import UNREADABLE
from ..schema.writer import Given, GivenWriter, SingleWriter, make_given_writer, make_single_writer
from ..types import Bytes
from .apis import APIS, Api, ApiKey
from .messages.records import FetchResponse, ListOffsetsResponse, ProduceResponse

FEW_ELEMENTS: Final = 1000
"""Read in about 1 ms."""
COPIED_FRAME_BYTES: Final = 64 * KIB
"""A frame without records is copied to be read, which is quicker than not to. Above this nothing is copied but what it says."""

_HEADER: Final = struct.Struct(">hhih")
_LENGTH: Final = struct.Struct(">i")
TOKEN_VERSION: Final = -1
"""Of a request of SaslAuthenticate that came as a bare token, without Kafka's headers (SaslHandshake v0)."""


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
    is_large: bool = False
    """Whether it was read in steps; its answer is written so."""


Reading = Generator[None, None, Request]
"""A large request that is read in steps. Raises RemoteProtocolError."""


class KafkaConnection(ReceiveBuffer):
    """Requests out of the bytes received. Owner: the session's reading task."""

    __slots__ = ("_apis", "takes_tokens")

    can_receive_more: ClassVar[bool] = True
    """Produce requests have a limit, which their session knows."""

    def __init__(self, apis: dict[int, Api] = APIS, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        super().__init__(max_request_bytes)
        self._apis = apis
        self.takes_tokens = False
        """Whether the next frames are bare tokens."""

    def next_request(self) -> Request | Reading | None:
        """The next request, or how to read it where that takes long; None when more bytes are needed. After
        RemoteProtocolError the connection is of no use."""
        frame = self.next_frame()
        if frame is None:
            return None
        if self.takes_tokens:
            return self._read_token(frame)
        size = len(frame)
        if size < _HEADER.size:
            raise RemoteProtocolError(f"a request of {size} bytes is shorter than its header of {_HEADER.size}")
        # What every header has. The client id has a length of 2 bytes in all versions.
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        client_id, at = None, _HEADER.size
        if length != -1:
            start, at = at, at + length
            if length < 0 or at > size:
                raise RemoteProtocolError(f"a client id claims {length} bytes, {size - start} are left")
            try:
                client_id = str(frame[start:at], "utf-8")
            except UnicodeDecodeError as exc:
                raise RemoteProtocolError(f"a client id is not UTF-8: {exc}") from None
        if key not in self._apis:
            raise RemoteProtocolError(f"api key {key} is not served here", ErrorCode.UNSUPPORTED_VERSION)
        api = self._apis[key]
        if not api.lowest_read <= version <= api.highest:
            if api.key is ApiKey.API_VERSIONS:
                return Request(api, version, correlation_id, client_id, None, size)
            raise RemoteProtocolError(
                f"{api.name} v{version} is not served here, only v{api.lowest_read} to v{api.highest}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        flexible = version >= api.first_flexible
        is_tagged = flexible and (at >= size or frame[at] != 0)  # it nearly never is
        if is_tagged or (size > COPIED_FRAME_BYTES and api.key is not ApiKey.PRODUCE):
            return _read_in_steps(Request(api, version, correlation_id, client_id, None, size), frame, at)
        try:
            body, _ = api.readers[version](frame, at + flexible, FEW_ELEMENTS)
        except UNREADABLE:  # for its many elements, or for what will be said again
            return _read_in_steps(Request(api, version, correlation_id, client_id, None, size), frame, at)
        # What Request(...) makes, without its Python-level call.
        return tuple.__new__(Request, (api, version, correlation_id, client_id, body, size, False))

    def _read_token(self, frame: memoryview) -> Request:
        api = APIS[ApiKey.SASL_AUTHENTICATE]
        return Request(api, TOKEN_VERSION, 0, None, api.request(auth_bytes=bytes(frame)), len(frame))


def _read_in_steps(request: Request, frame: memoryview, at: int) -> Reading:
    """`request` with its body, behind the header's tagged fields, which begin at `at`."""
    api, version = request.api, request.version
    flexible = api.is_flexible(version)
    if flexible:
        _, at = yield from codec.read_steps(_Tags, 0, frame, at, flexible=True)
    most = most_elements(len(frame))
    body, _ = yield from codec.read_steps(api.request, version, frame, at, flexible=flexible, elements=most)
    return request._replace(body=body, is_large=True)


def answer_buffers(request: Request, body: object) -> list[Bytes]:
    """The buffers of an answer, records as they came. A version of ApiVersions that is not spoken here is answered in version
    0, which every client reads (KIP-511)."""
    if request.body is None:
        return encode_answer(request.api, 0, request.correlation_id, body)
    if request.version == TOKEN_VERSION:
        return encode_token(body)
    return encode_answer(request.api, request.version, request.correlation_id, body)


def encode_token(body: Any) -> list[Bytes]:
    """The answer to a bare token: another one. A login that failed has none; the connection ends."""
    return [] if body.error_code else [_LENGTH.pack(len(body.auth_bytes)), body.auth_bytes]


def encode_answer(api: Api, version: int, correlation_id: int, body: object) -> list[Bytes]:
    """The buffers of an answer with this correlation id."""
    parts: list[Bytes] = []
    large: list[int] = []
    head, write = api.writers[version]
    write(body, parts, large)
    return (
        framed(head, correlation_id, codec.joined(parts, large)) if large else framed_one(head, correlation_id, b"".join(parts))
    )


def answer_steps(request: Request, body: object) -> Generator[None, None, list[Bytes]]:
    """`answer_buffers` of a large request, in steps."""
    api, version = request.api, request.version
    buffers = yield from codec.write_steps(body, version, flexible=api.is_flexible(version))
    return framed(api.answer_head(version), request.correlation_id, buffers)


def framed(head: struct.Struct, correlation_id: int, buffers: list[Bytes]) -> list[Bytes]:
    """An answer, of at least one buffer, with what stands before it; the list is taken over. `head`: see `Api.answer_head`."""
    first, *others = buffers
    if not others:
        return framed_one(head, correlation_id, first)
    size = sum(map(len, buffers))
    start = head.pack(head.size - _LENGTH.size + size, correlation_id)
    if len(first) >= COPIED_BYTES:
        return [start, *buffers]
    buffers[0] = start + first
    return buffers


def framed_one(head: struct.Struct, correlation_id: int, answer: Bytes) -> list[Bytes]:
    """`framed` of one buffer."""
    size = len(answer)
    start = head.pack(head.size - _LENGTH.size + size, correlation_id)
    return [start, answer] if size >= COPIED_BYTES else [start + answer]


@attrs.define(eq=False, repr=False)
class GivenAnswer:
    """Writes a response that has only some of its fields given. Owner of the writers, by version; those of any number of
    elements each with the layout of the size and header."""

    response: type
    given: Given
    _writers: dict[int, tuple[GivenWriter, struct.Struct]] = attrs.field(factory=dict)
    _single_writers: dict[int, SingleWriter] = attrs.field(factory=dict)

    def buffers(self, request: Request, values: tuple[Any, ...]) -> list[Bytes]:
        """The buffers of the answer, as `answer_buffers` has them for the message."""
        write, head = self._writers.get(request.version) or self._made(request.api, request.version)
        parts: list[Bytes] = []
        write(values, parts)
        return framed_one(head, request.correlation_id, b"".join(parts))

    def single(self, request: Request, values: tuple[Any, ...]) -> list[Bytes]:
        """The same for one element in each list. `values`: of the fields that are given, those of an element after those of its
        structure."""
        version = request.version
        if version not in self._single_writers:
            head, flexible = request.api.answer_head(version), request.api.is_flexible(version)
            self._single_writers[version] = make_single_writer(self.response, self.given, version, head, flexible=flexible)
        return self._single_writers[version](request.correlation_id, *values)

    def _made(self, api: Api, version: int) -> tuple[GivenWriter, struct.Struct]:
        write = make_given_writer(self.response, self.given, version, flexible=api.is_flexible(version))
        made = self._writers[version] = write, api.answer_head(version)
        return made


PartitionProduced = tuple[int, int, int, int]
"""(index, base offset, log append time in ms or -1, log start offset)"""
TopicProduced = tuple[str, bytes, list[PartitionProduced]]
"""(name, topic id, partitions); a version writes one of name and id."""

_PRODUCED: Final = Given(("index", "base_offset", "log_append_time_ms", "log_start_offset"))
PRODUCED: Final = GivenAnswer(
    ProduceResponse,
    Given(("throttle_time_ms",), {"responses": Given(("name", "topic_id"), {"partition_responses": _PRODUCED})}),
)
"""Of (throttle time in ms, topics)."""

_FETCHED: Final = Given(
    ("partition_index", "high_watermark", "last_stable_offset", "log_start_offset", "records"),
    fixed={"aborted_transactions": None},
)
FETCHED: Final = GivenAnswer(
    FetchResponse,
    Given(("throttle_time_ms", "session_id"), {"responses": Given(("topic", "topic_id"), {"partitions": _FETCHED})}),
)
"""Of (throttle time in ms, session id, topics), for reads of what is not committed yet."""

LISTED: Final = GivenAnswer(
    ListOffsetsResponse,
    Given(
        ("throttle_time_ms",),
        {"topics": Given(("name",), {"partitions": Given(("partition_index", "timestamp", "offset", "leader_epoch"))})},
    ),
)
"""Of (throttle time in ms, topics), each (name, partitions). Version 0 has another answer."""
