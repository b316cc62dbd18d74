"""A blocking client of the native protocol with nothing between the test and the wire: a socket and the sans-IO connection.

It neither retries nor batches, lets a test send bytes that no client would send, and answers what came, in the order it came.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import attrs
from triolog.protocol.errors import RequestError
from triolog.protocol.native import messages
from triolog.protocol.native.connection import CONNECTION_CLOSED, NEED_DATA, Idle, LastError, NativeConnection, Response
from triolog.protocol.native.state import Role
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Bytes, Record

TIMEOUT_S: Final = 60.0
RECEIVE_BYTES: Final = 256 * 1024


@attrs.define(eq=False)
class WireClient:
    """One connection. Owner: the test."""

    socket: socket.socket
    connection: NativeConnection
    hello: messages.HelloResponse | None = None
    _ids: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    _early: dict[int, Response] = attrs.field(factory=dict)

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        *,
        say_hello: bool = True,
        timeout_s: float = TIMEOUT_S,
        receive_buffer_bytes: int | None = None,
        **limits: int,
    ) -> Self:
        """Connect and say hello. A small receive buffer makes a peer that does not read felt at once."""
        connected = socket.socket()
        try:
            if receive_buffer_bytes is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            connected.settimeout(timeout_s)
            connected.connect(address)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = cls(connected, NativeConnection(Role.CLIENT, **limits))
            if say_hello:
                client.say_hello()
        except BaseException:
            connected.close()
            raise
        return client

    def say_hello(self) -> messages.HelloResponse:
        answer = self.call(messages.HelloRequest("wire-client"))
        assert isinstance(answer, messages.HelloResponse)
        self.hello = answer
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, message: messages.RequestMessage, *, expects_answer: bool = True) -> int:
        """Send a request and answer its correlation id."""
        return self.send_body(message.api, message.to_body(), expects_answer=expects_answer)

    def send_body(
        self, api: str, body: Mapping[str, Any], *, version: int = messages.VERSION, expects_answer: bool = True
    ) -> int:
        correlation_id = next(self._ids)
        pieces = self.connection.send_request(correlation_id, api, version, dict(body), expects_answer=expects_answer)
        self.socket.sendall(b"".join(pieces))
        return correlation_id

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are, past the connection's state."""
        self.socket.sendall(data)

    def receive(self) -> Response | LastError | Idle:
        """What comes next: an answer, the last error, or CONNECTION_CLOSED. OSError when there is nothing in time."""
        while True:
            event = self.connection.next_event()
            if event is not NEED_DATA:
                assert isinstance(event, Response | LastError) or event is CONNECTION_CLOSED, event
                return event
            self.connection.receive_data(self.socket.recv(RECEIVE_BYTES))

    def last_error(self) -> RequestError:
        """Return the error of the last frame, which nothing follows but the end of the connection."""
        event = self.receive()
        assert isinstance(event, LastError), event
        assert self.socket.recv(1) == b""
        return event.error

    def receive_answer(self, correlation_id: int | None = None) -> Response:
        """The answer to a request, or the next one; others that come earlier are kept for whoever asks for them."""
        if correlation_id is None and self._early:
            return self._early.pop(next(iter(self._early)))
        while correlation_id is None or correlation_id not in self._early:
            event = self.receive()
            assert isinstance(event, Response), f"an answer was expected, found {event}"
            if correlation_id is None:
                return event
            self._early[event.correlation_id] = event
        return self._early.pop(correlation_id)

    def receive_message(self, correlation_id: int) -> messages.ResponseMessage:
        """The answer to a request as a message. Raises the RequestError that it is."""
        answer = self.receive_answer(correlation_id)
        if answer.error is not None:
            raise answer.error
        assert answer.body is not None
        return messages.decode_response(answer.api, answer.version, answer.body)

    def is_closed_by_server(self) -> bool:
        """Whether the server ends the connection without another word; waits for it. A reset counts."""
        try:
            return self.receive() is CONNECTION_CLOSED
        except ConnectionError:
            return True

    def call(self, message: messages.RequestMessage) -> Any:
        """Send a request and wait for its answer. Raises RequestError."""
        return self.receive_message(self.send(message))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Raises RequestError."""
        new = messages.NewTopic(name, partitions, {"retention.ms": "-1", **(config or {})})
        (created,) = self.call(messages.CreateTopicsRequest((new,))).topics
        if created.error is not None:
            raise created.error

    def produce_all(
        self, entries: Iterable[tuple[str, int, Bytes | tuple[messages.PlainRecord, ...]]], *, acks: int = messages.ACKS_ALL
    ) -> tuple[messages.ProducePartitionResponse, ...]:
        partitions = tuple(messages.ProducePartition(*entry) for entry in entries)
        answer: messages.ProduceResponse = self.call(messages.ProduceRequest(partitions, acks))
        return answer.partitions

    def produce(self, topic: str, partition: int, records: Bytes | tuple[messages.PlainRecord, ...], **options: Any) -> int:
        """Append to one partition; answers the base offset. Raises RequestError."""
        (answer,) = self.produce_all([(topic, partition, records)], **options)
        if answer.error is not None:
            raise answer.error
        return answer.base_offset

    def fetch(self, topic: str, partition: int, offset: int, **options: Any) -> messages.FetchPartitionResponse:
        """One partition's answer. Raises RequestError."""
        max_bytes = options.pop("partition_max_bytes", 1024 * 1024)
        question = messages.FetchPartition(topic, partition, offset, max_bytes)
        answer: messages.FetchResponse = self.call(messages.FetchRequest((question,), **options))
        (entry,) = answer.partitions
        if entry.error is not None:
            raise entry.error
        return entry

    def read_all(self, topic: str, partition: int, *, offset: int = 0, **options: Any) -> tuple[list[Record], int]:
        """Every readable record from `offset` on, and the high watermark."""
        records: list[Record] = []
        while True:
            entry = self.fetch(topic, partition, offset, **options)
            offset = max(offset, entry.log_start_offset)
            read = records_from(entry.records, offset)
            records += read
            if not read:
                return records, entry.high_watermark
            offset = read[-1].offset + 1

    def offsets_for_times(
        self, questions: Iterable[tuple[str, int, int]]
    ) -> tuple[messages.OffsetsForTimesPartitionResponse, ...]:
        asked = tuple(messages.OffsetsForTimesPartition(*question) for question in questions)
        answer: messages.OffsetsForTimesResponse = self.call(messages.OffsetsForTimesRequest(asked))
        return answer.partitions

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the record found. Raises RequestError."""
        (entry,) = self.offsets_for_times([(topic, partition, timestamp)])
        if entry.error is not None:
            raise entry.error
        return entry.timestamp, entry.offset

    def partition_metadata(self, topic: str) -> Sequence[messages.PartitionMetadata]:
        (entry,) = self.call(messages.MetadataRequest((topic,))).topics
        if entry.error is not None:
            raise entry.error
        return entry.partitions  # type: ignore[no-any-return]

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        return self.partition_metadata(topic)[partition].high_watermark


def records_from(batches: Bytes | tuple[Record, ...], offset: int) -> list[Record]:
    """The records of a fetch answer from an offset on."""
    if isinstance(batches, tuple):
        return [record for record in batches if record.offset >= offset]
    return [
        record for header, batch in iter_batches(batches) for record in iter_records(batch, header) if record.offset >= offset
    ]


def error_of(call: Any, *arguments: Any, **options: Any) -> RequestError:
    """The RequestError that a call raises."""
    try:
        call(*arguments, **options)
    except RequestError as exc:
        return exc
    raise AssertionError(f"{call} succeeded")
