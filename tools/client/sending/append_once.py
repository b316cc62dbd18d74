"""Appends that are made one by one, each whole or not at all: as which producer, with which sequences.

Every append is one batch of an idempotent producer, so it can be sent again, as the same bytes, until there is an answer. Where
nobody knows any more what became of one, the next begins as another producer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import attrs

from ....protocol.errors import ExpectedOffsetError, InvalidRequestError, RequestError
from ....protocol.native.messages import InitProducerRequest, PlainRecord, ProducePartition, ProduceRequest
from ....protocol.records.batch import increment_sequence
from ....protocol.records.builder import build_batch
from ....protocol.types import NO_OFFSET, TopicPartition
from ..config import ProducerConfig
from ..procedures.driving import Driver
from ..procedures.topics import Procedure
from .partition_queue import ProducerIdentity


class Appended(NamedTuple):
    """The result of an append: the first record's offset, and the partition's end offset after the last record."""

    base_offset: int
    end_offset: int


@attrs.define(eq=False, repr=False)
class Append:
    """Records for the end of a partition; with `expected_offset` only if that is there. `data` once they are a batch."""

    partition: TopicPartition
    records: list[PlainRecord]
    expected_offset: int | None
    data: bytes | None = None


class Appends:
    """Those of one appender. Owner: it makes one at a time."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}

    @staticmethod
    def begin(partition: TopicPartition, records: Iterable[bytes | PlainRecord], expected_offset: int | None) -> Append:
        """The next one. Raises InvalidRequestError without records."""
        plain = [PlainRecord(None, None, each) if isinstance(each, bytes) else each for each in records]
        if not plain:
            raise InvalidRequestError(f"{partition}: there are no records to append")
        return Append(partition, plain, expected_offset)

    async def make(self, append: Append, driver: Driver) -> Appended:
        """Make it, tried again for `delivery_timeout_ms`. After another error than ExpectedOffsetError, or cancelled, nobody
        knows what became of it."""
        try:
            timeout_ms = self._config.delivery_timeout_ms
            return await driver.retried(lambda: driver.run(self.attempt(append)), timeout_ms, self._config)
        except ExpectedOffsetError:
            raise
        except BaseException:
            self.give_up()
            raise

    def attempt(self, append: Append) -> Procedure[Appended]:
        """Try it. Raises the server's error; what is retriable may be tried again."""
        if self._identity is None:
            made = yield InitProducerRequest()
            self._identity = ProducerIdentity(made.producer_id, made.producer_epoch)
            self._sequences.clear()
        sequence, count = self._sequences.get(append.partition, 0), len(append.records)
        if append.data is None:
            append.data = self._batch_of(append, self._identity, sequence)
        entry = ProducePartition(*append.partition, append.data, append.expected_offset)
        response = yield ProduceRequest((entry,), timeout_ms=self._config.request_timeout_ms)
        (answer,) = response.partitions
        error: RequestError | None = answer.failure
        if error is None:
            self._sequences[append.partition] = increment_sequence(sequence, count)
            end = NO_OFFSET if answer.base_offset == NO_OFFSET else answer.base_offset + count
            return Appended(answer.base_offset, end)
        if not error.retriable and not isinstance(error, ExpectedOffsetError):
            self.give_up()
        raise error

    def give_up(self) -> None:
        """Nobody knows what became of the last one."""
        self._identity = None

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
        )
