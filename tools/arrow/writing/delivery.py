"""Record batches on their way to one topic: several requests in flight, repeated until a deadline, each written once.

The batches carry a producer id and sequences. A request has at most one batch of a partition and WINDOW of them are in flight,
so the server, which remembers five, knows each one again that it has already written.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.native.messages import (
    DescribeConfigsRequest,
    InitProducerRequest,
    InitProducerResponse,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    TopicConfig,
)
from ....protocol.records.batch import increment_sequence, with_producer
from ....protocol.records.columnar.encode import Encoded
from ...client.backoff import Backoff
from ...client.blocking.client import BlockingClient
from ...client.blocking.connection import BlockingConnection
from ...client.config import Address, ClientConfig, address_text
from ...client.exchange import expect
from ...client.login import LoginConfig
from ...client.sending.topics import partition_count
from ...client.tls import TlsConfig
from ..errors import ArrowError
from .written import Written

WINDOW: Final = 4
REQUEST_BYTES: Final = 1 << 20
_UNANSWERED: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


@attrs.frozen
class _Batch:
    partition: int
    data: bytes
    records: int


@attrs.define(eq=False, repr=False)
class _Sent:
    batches: list[_Batch]
    connection: BlockingConnection | None = None
    correlation_id: int = 0


class Delivery:
    """One producer for one topic. Owner: the write, which closes it."""

    def __init__(
        self, address: Address, topic: str, *, login: LoginConfig | None, tls: TlsConfig | None, timeout_ms: int
    ) -> None:
        self.written = Written(topic)
        self._topic = topic
        self._where = address_text(address)
        self._timeout_ms = timeout_ms
        config = ClientConfig(client_id="triolog-arrow", connect_timeout_ms=min(10_000, timeout_ms), tls=tls, login=login)
        self._client = BlockingClient(address, config)
        self._producer: InitProducerResponse | None = None
        self._sequences: dict[int, int] = {}
        self._open: dict[int, _Batch] = {}
        self._open_bytes = 0
        self._sent: deque[_Sent] = deque()

    def close(self) -> None:
        """What is not acknowledged may have been written."""
        self._client.close()

    def begin(self) -> tuple[int, int]:
        """How many partitions the topic has and how large a batch may be. ArrowError for a topic that is not there."""
        try:
            metadata = self._client.metadata(MetadataRequest((self._topic,)))
            count = partition_count(self._topic, metadata)
            [config] = self._client.describe_configs(DescribeConfigsRequest((self._topic,))).topics
            self._producer = expect(InitProducerResponse, self._client.call(InitProducerRequest()))
            return count, _largest_batch(config)
        except RequestError as exc:
            if exc.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ArrowError(f"{self._where} has no topic {self._topic}; `triolog topics create` makes it") from exc
            hint = "; is `triolog serve` running there?" if exc.code in _UNANSWERED else ""
            raise ArrowError(f"{self._where}: topic {self._topic}: {exc.message}{hint}") from exc

    def put(self, partition: int, encoded: Encoded) -> None:
        """Take one batch; sends and waits where enough is under way. ArrowError."""
        assert self._producer is not None
        if partition in self._open or (self._open_bytes and self._open_bytes + len(encoded.data) > REQUEST_BYTES):
            self._send_open()
        sequence = self._sequences.get(partition, 0)
        producer = self._producer
        data = with_producer(encoded.data, producer.producer_id, producer.producer_epoch, sequence)
        self._sequences[partition] = increment_sequence(sequence, encoded.records)
        self._open[partition] = _Batch(partition, bytes(data), encoded.records)
        self._open_bytes += len(data)

    def flush(self) -> None:
        """Wait until all of it is acknowledged. ArrowError."""
        if self._open:
            self._send_open()
        while self._sent:
            self._settle_oldest()

    def _send_open(self) -> None:
        batches = list(self._open.values())
        self._open, self._open_bytes = {}, 0
        while len(self._sent) >= WINDOW:
            self._settle_oldest()
        sent = _Sent(batches)
        self._sent.append(sent)
        try:
            connection = self._client.connected()
            sent.correlation_id = connection.start(self._request(batches), self._deadline())
            sent.connection = connection
        except RequestError as exc:
            self._recover([], exc)

    def _settle_oldest(self) -> None:
        sent = self._sent[0]
        assert sent.connection is not None
        try:
            response = expect(ProduceResponse, sent.connection.finish(sent.correlation_id, self._deadline()))
        except RequestError as exc:
            sent.connection = None
            self._recover([], exc)
            return
        self._sent.popleft()
        refused, error = self._settle(sent.batches, response, frozenset())
        if error is not None:
            self._recover(refused, error)

    def _settle(
        self, batches: list[_Batch], response: ProduceResponse, behind: frozenset[int]
    ) -> tuple[list[_Batch], RequestError | None]:
        """What has to be sent again; a batch that came behind one that was not taken is out of order by that alone."""
        again: list[_Batch] = []
        error: RequestError | None = None
        for batch, entry in zip(batches, response.partitions, strict=True):
            if entry.error is None:
                self.written.add(batch.partition, batch.records, entry.base_offset, len(batch.data))
            elif entry.error.retriable or (
                batch.partition in behind and entry.error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            ):
                again.append(batch)
                error = entry.error
            else:
                raise self._error(batch.partition, entry.error)
        return again, error

    def _recover(self, again: list[_Batch], error: RequestError) -> None:
        """Bring what is in flight to its end, then send what did not arrive again, in order, a batch at a time."""
        for sent in self._sent:
            left: list[_Batch] = sent.batches
            if sent.connection is not None and not sent.connection.is_lost:
                try:
                    response = expect(ProduceResponse, sent.connection.finish(sent.correlation_id, self._deadline()))
                except RequestError:  # the first error is the one that counts
                    pass
                else:
                    left, _ = self._settle(sent.batches, response, frozenset(batch.partition for batch in again))
            again += left
        self._sent.clear()
        give_up_at = time.monotonic() + self._timeout_ms / 1000
        backoff = Backoff(50, 1000)
        while again:
            pause_s = backoff.pause_s()
            if time.monotonic() + pause_s >= give_up_at:
                raise self._error(again[0].partition, error)
            time.sleep(pause_s)
            try:
                with self._client.within(give_up_at):
                    while again:
                        answer = expect(ProduceResponse, self._client.produce(self._request(again[:1])))
                        left, refusal = self._settle(again[:1], answer, frozenset())
                        if refusal is not None:
                            error = refusal
                            break
                        again = again[1:]
            except RequestError as exc:
                if not exc.retriable:
                    raise self._error(again[0].partition, exc) from exc
                error = exc

    def _request(self, batches: list[_Batch]) -> ProduceRequest:
        return ProduceRequest(tuple(ProducePartition(self._topic, batch.partition, batch.data) for batch in batches))

    def _deadline(self) -> float:
        return time.monotonic() + self._client.timeout_s()

    def _error(self, partition: int, error: RequestError) -> ArrowError:
        written = self.written
        behind = f", offsets to {written.partitions[partition].last_offset}" if partition in written.partitions else ""
        return ArrowError(
            f"{self._where}: {self._topic}-{partition}: {error.message} ({written.records} records acknowledged before{behind})"
        )


def _largest_batch(answer: TopicConfig) -> int:
    if answer.error is not None:
        raise answer.error
    return int(answer.config["max.message.bytes"].value)
