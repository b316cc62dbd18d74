"""Limits a produce request to `max_request_bytes`, and never more than the server accepts as one frame.

A frame above the server's limit would not be sent at all, so what cannot fit is refused when the record is handed over, where
that can be known: of a compressed batch the size is known when it is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from ....protocol.errors import RecordTooLargeError
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD
from ....protocol.records.builder import Headers
from ....protocol.types import Bytes, CompressionType
from .partition_queue import Delivery, PartitionQueue

RECORD_OVERHEAD_BYTES: Final = 32
"""Counted per record beside key and value. Its other fields take at most 29 bytes in the batch, usually 8."""
REQUEST_OVERHEAD_BYTES: Final = 2048
"""Of a frame without its partitions: a transactional id has at most 255 characters of four bytes, all else 100 bytes."""
PARTITION_OVERHEAD_BYTES: Final = 512
"""Of a partition without its records: a topic's name has at most 249 bytes, all else 50."""


def record_size(key: Bytes | None, value: Bytes | None, headers: Headers) -> int:
    """Return an upper bound of the bytes that a record takes in its batch and in the buffer."""
    size = RECORD_OVERHEAD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, header_value in headers:
        size += len(name) * 4 + len(header_value or b"") + 10
    return size


@attrs.frozen(kw_only=True)
class RequestLimits:
    """The limits of one produce request; `max_frame_bytes` is the server's."""

    max_request_bytes: int
    max_frame_bytes: int

    @property
    def max_records_bytes(self) -> int:
        """The largest record bytes of one partition that the server takes at all."""
        return max(1, self.max_frame_bytes - REQUEST_OVERHEAD_BYTES - PARTITION_OVERHEAD_BYTES)

    def check_record(self, queue: PartitionQueue, size_bytes: int, compression: CompressionType) -> None:
        """Raise RecordTooLargeError for a record that no request can hold; Kafka: KafkaProducer.ensureValidRecordSize."""
        if compression is CompressionType.NONE and RECORD_BATCH_OVERHEAD + size_bytes > self.max_records_bytes:
            raise RecordTooLargeError(
                f"a record of {size_bytes} bytes for {queue.topic}-{queue.partition}. The server takes frames of at "
                f"most max_frame_bytes={self.max_frame_bytes}"
            )

    def is_sendable(self, delivery: Delivery) -> bool:
        """Return whether the server accepts this delivery, in a request of its own."""
        return len(delivery.records) <= self.max_records_bytes

    def split(self, deliveries: Sequence[Delivery]) -> Iterator[list[Delivery]]:
        """The deliveries as the partitions of one request at a time; one that is too large alone is alone."""
        request: list[Delivery] = []
        size, frame = 0, REQUEST_OVERHEAD_BYTES
        for delivery in deliveries:
            records = len(delivery.records)
            framed = records + PARTITION_OVERHEAD_BYTES
            if request and (size + records > self.max_request_bytes or frame + framed > self.max_frame_bytes):
                yield request
                request, size, frame = [], 0, REQUEST_OVERHEAD_BYTES
            request.append(delivery)
            size, frame = size + records, frame + framed
        if request:
            yield request
