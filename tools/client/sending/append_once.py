"""Appends that are made one by one, each whole or not at all: as which producer, with which sequences.

Every append is one batch of an idempotent producer, so it can be sent again, as the same bytes, until there is an answer. Where
nobody knows any more what became of one, the next begins as another producer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import attrs

from ....protocol.errors import ExpectedOffsetError, InvalidRequestError, RequestError
from ....protocol.native.messages import (
    ACKS_ALL,
    InitProducerRequest,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
)
from ....protocol.records.batch import increment_sequence
from ....protocol.records.builder import build_batch
from ....protocol.records.plain_records import PlainRecord, WrongRecordsNamed, keyed
from ....protocol.types import NO_OFFSET, AppendResult, TopicPartition
from ..config import ProducerConfig
from ..procedures.driving import Driver
from ..procedures.topics import Procedure
from .partition_queue import ProducerIdentity


@attrs.define(eq=False, repr=False)
class Append:
    """Records for the end of a partition; with `expected_offset` only if that is there. `data` once they are a batch."""

    partition: TopicPartition
    records: Sequence[PlainRecord]
    expected_offset: int | None
    data: bytes | None = None


class Appends:
    """Appends of one producer, one at a time. Owner: an appender, a partition of a client, or a transaction."""

    def __init__(self, config: ProducerConfig, driver: Driver) -> None:
        self._config = config
        self._driver = driver
        self._turn = driver.lock()
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def assume(self, identity: ProducerIdentity) -> None:
        """Append as this producer, whose sequences start at 0 unless it is the producer of the last append."""
        if identity != self._identity:
            self._identity = identity
            self._sequences.clear()

    async def append(
        self,
        partition: TopicPartition,
        records: Iterable[bytes | PlainRecord],
        *,
        key: bytes | None = None,
        expected_offset: int | None = None,
        passes: Callable[[RequestError], bool] = lambda error: error.retriable,
    ) -> AppendResult:
        """Append the records as one batch; retry for `delivery_timeout_ms` after an error that `passes`. `key`: of the values
        that are no tuples. After any error but ExpectedOffsetError, or cancelled, the outcome is unknown. Raises TypeError for
        what is no record, InvalidRequestError without records; then nothing is appended."""
        append = Append(partition, keyed(list(records), key), expected_offset)
        if not append.records:
            raise InvalidRequestError(f"{partition}: no records to append")
        driver, timeout_ms = self._driver, self._config.delivery_timeout_ms
        async with self._turn:
            try:
                with WrongRecordsNamed(partition.topic, append.records):
                    return await driver.retried(
                        lambda: driver.run(self._attempt(append)), timeout_ms, self._config, passes=passes
                    )
            except ExpectedOffsetError:
                raise
            except BaseException:
                self._identity = None  # another producer continues, because the outcome is unknown
                raise

    def _attempt(self, append: Append) -> Procedure[AppendResult]:
        """Try it. Raises the server's error; what is retriable may be tried again."""
        if self._identity is None:
            made = yield InitProducerRequest()
            self._identity = ProducerIdentity(made.producer_id, made.producer_epoch)
            self._sequences.clear()
        sequence, count = self._sequences.get(append.partition, 0), len(append.records)
        if append.data is None:
            append.data = self._batch_of(append, self._identity, sequence)
        entry = ProducePartition(*append.partition, append.data, append.expected_offset)
        config = self._config
        response = yield ProduceRequest((entry,), ACKS_ALL, config.request_timeout_ms, config.transactional_id)
        (answer,) = response.partitions
        error: RequestError | None = answer.failure
        if error is None:
            self._sequences[append.partition] = increment_sequence(sequence, count)
            return append_result(answer, count)
        raise error

    def _batch_of(self, append: Append, identity: ProducerIdentity, sequence: int) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        config = self._config
        return build_batch(
            [
                (now_ms if timestamp is None else timestamp, key, value, headers)
                for timestamp, key, value, headers in append.records
            ],
            compression_type=config.compression_type,
            compression_level=config.compression_level,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=config.transactional_id is not None,
        )


def append_result(answer: ProducePartitionResponse, count: int) -> AppendResult:
    """Return the place of `count` records, of which an answer has the first."""
    last_offset = NO_OFFSET if answer.base_offset == NO_OFFSET else answer.base_offset + count - 1
    return AppendResult(answer.base_offset, last_offset, answer.log_append_time, answer.log_start_offset)
