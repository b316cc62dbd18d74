"""Record batches on their way to one topic: each written once, however often it has to be sent.

The batches carry a producer id and sequences. A request has at most one batch of a partition and WINDOW of them are in flight,
so the server, which remembers five, knows each one again that it has already written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.native.messages import (
    DescribeConfigsRequest,
    InitProducerRequest,
    InitProducerResponse,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    RequestMessage,
    ResponseMessage,
    TopicConfig,
)
from ....protocol.records.batch import increment_sequence, parse_header, with_producer
from ....protocol.records.columnar.encode import Encoded
from ....protocol.types import TopicPartition
from ...client.blocking.client import BlockingClient
from ...client.blocking.outbox import Blobs, Outbox, Refused
from ...client.config import Address, ClientConfig, address_text
from ...client.exchange import expect
from ...client.login import LoginConfig
from ...client.sending.topics import partition_count
from ...client.tls import TlsConfig
from ..report import ArrowError, Written

_UNANSWERED: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class Delivery(Outbox):
    """A producer for one topic. Owner: the write, which closes it. Failures raise ArrowError."""

    request_bytes = 1 << 20

    def __init__(
        self, address: Address, topic: str, *, login: LoginConfig | None, tls: TlsConfig | None, timeout_ms: int
    ) -> None:
        config = ClientConfig(client_id="triolog-arrow", connect_timeout_ms=min(10_000, timeout_ms), tls=tls, login=login)
        super().__init__(BlockingClient(address, config), timeout_ms)
        self.written = Written(topic)
        self._topic = topic
        self._where = address_text(address)
        self._producer: InitProducerResponse | None = None
        self._sequences: dict[int, int] = {}

    def close(self) -> None:
        """Close the connection; batches that are not acknowledged may have been written."""
        self._client.close()

    def begin(self) -> tuple[int, int]:
        """Return the topic's number of partitions and largest batch. ArrowError for a topic that does not exist."""
        try:
            metadata = self._client.metadata(MetadataRequest((self._topic,)))
            count = partition_count(self._topic, metadata)
            [config] = self._client.describe_configs(DescribeConfigsRequest((self._topic,))).topics
            self._producer = expect(InitProducerResponse, self._client.call(InitProducerRequest()))
            return count, _largest_batch(config)
        except RequestError as exc:
            if exc.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ArrowError(f"{self._where} has no topic {self._topic}. `triolog topics create` creates it") from exc
            hint = ". Is `triolog serve` running there?" if exc.code in _UNANSWERED else ""
            raise ArrowError(f"{self._where}: topic {self._topic}: {exc.message}{hint}") from exc

    def add(self, number: int, encoded: Encoded) -> None:
        """Take one batch for a partition; sends and waits where enough is under way."""
        assert self._producer is not None
        partition, producer, sequence = TopicPartition(self._topic, number), self._producer, self._sequences.get(number, 0)
        if partition in self._open:
            self._send_open()
        data = with_producer(encoded.data, producer.producer_id, producer.producer_epoch, sequence)
        self._sequences[number] = increment_sequence(sequence, encoded.records)
        self.put(partition, bytes(data))

    def request(self, blobs: Blobs) -> RequestMessage:
        """A produce request."""
        return ProduceRequest(tuple(ProducePartition(*partition, data) for partition, data in blobs.items()))

    def settle(self, blobs: Blobs, response: ResponseMessage) -> Refused | None:
        """A batch that came behind one that was not taken is out of order by that alone."""
        again: Blobs = {}
        error: RequestError | None = None
        for (partition, data), entry in zip(blobs.items(), expect(ProduceResponse, response).partitions, strict=True):
            if entry.error is None:
                self.written.add(partition.partition, parse_header(data).records_count, entry.base_offset, len(data))
            elif entry.error.retriable or (
                partition in self._again and entry.error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            ):
                again[partition], error = data, entry.error
            else:
                self.fail([{partition: data}], entry.error)
        return Refused(again, error) if error is not None else None

    def fail(self, lost: Sequence[Blobs], error: RequestError) -> NoReturn:
        """Say how much was written before the first that was not."""
        written, partition = self.written, next(iter(lost[0]))
        known = written.partitions.get(partition.partition)
        behind = f", offsets to {known.last_offset}" if known is not None else ""
        raise ArrowError(
            f"{self._where}: {partition}: {error.message} ({written.records} records acknowledged before{behind})"
        ) from error


def _largest_batch(answer: TopicConfig) -> int:
    if answer.error is not None:
        raise answer.error
    return int(answer.config["max.message.bytes"].value)
