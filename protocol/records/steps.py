"""Work in steps: what goes through a batch of records pauses now and then, so that whoever drives it can do something else.

A step is about 1 us: a record or a header that is read by itself. Such work yields None after about STEPS_PER_PAUSE steps, and
at last what it found (returning it would cost an exception, which small batches would feel); `last` is for who has nothing
else to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from ..errors import InvalidRecordError, RecordTooLargeError
from ..limits import INT64_MAX, MAX_BATCHES_PER_APPEND, MAX_DECOMPRESSED_BYTES, MAX_HEADERS_PER_RECORD, MAX_RECORDS_PER_BATCH
from .batch import COMPRESSION_MASK, BatchHeader

T = TypeVar("T")
Steps = Iterator[T | None]

STEPS_PER_PAUSE: Final = 256
"""0.2 to 0.3 ms: what everybody else waits for while a large batch is checked."""

UNTOLD_STEPS: Final = STEPS_PER_PAUSE // 16
"""Of these whoever drives the work need not be told: so few take no longer than what is done anyway for each lookup."""

LEAST_RECORD_BYTES: Final = 7
"""A length, six fields of a byte."""


class BatchLimits(NamedTuple):
    """The limits of a producer's batch. They do not apply to batches read from a log."""

    records: int = MAX_RECORDS_PER_BATCH
    headers_per_record: int = MAX_HEADERS_PER_RECORD
    batches: int = MAX_BATCHES_PER_APPEND
    unpacked_bytes: int = MAX_DECOMPRESSED_BYTES

    @property
    def steps(self) -> int:
        """Records and headers of a whole batch."""
        return 2 * self.records

    def check_records(self, header: BatchHeader) -> None:
        """Raises RecordTooLargeError, at which Kafka's own producer sends the batch again in parts. A count that cannot be true
        is left to the walk."""
        count = header.records_count
        if count > self.records and (header.attributes & COMPRESSION_MASK or count * LEAST_RECORD_BYTES <= header.size_bytes):
            raise RecordTooLargeError(
                f"the batch has {count} records, above max_records_per_batch={self.records}. Send smaller batches or "
                "raise the server's limit"
            )

    def check_batches(self, count: int) -> None:
        """Of one append. Raises InvalidRecordError."""
        if count > self.batches:
            raise InvalidRecordError(
                f"the append has more than {self.batches} record batches for one partition. Send them in several requests"
            )

    def check_headers(self, count: int, index: int) -> None:
        """Raises InvalidRecordError."""
        if count > self.headers_per_record:
            raise InvalidRecordError(
                f"record {index} of the batch has {count} headers, above "
                f"max_headers_per_record={self.headers_per_record}. Move their content into the value or raise the "
                "server's limit"
            )

    def check_steps(self, steps: int) -> None:
        """Raises RecordTooLargeError."""
        if steps > self.steps:
            raise RecordTooLargeError(
                f"the batch has more than {self.steps} records and headers, twice "
                f"max_records_per_batch={self.records}. Send smaller batches or raise the server's limit"
            )


UNLIMITED: Final = BatchLimits(INT64_MAX, INT64_MAX, INT64_MAX)


def last(steps: Steps[T]) -> T:
    """Run all steps at once and return the result."""
    for found in steps:
        if found is not None:
            return found
    raise AssertionError("steps without an end")
