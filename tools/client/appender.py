"""Appends one by one, for programs that decide by what they have read: each is made at the end that was expected, or not at
all, and once however often it has to be sent (see `sending.append_once`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Unpack

from ...protocol.errors import ExpectedOffsetError
from ...protocol.native.messages import PlainRecord
from ...protocol.types import AppendResult, TopicPartition
from .config import ProducerConfig
from .options import ProducerOptions, producer_config
from .procedures.driving import Driver
from .sending.append_once import Appends


class Driven(Protocol):
    """A client of any face."""

    @property
    def driver(self) -> Driver: ...


class Appender:
    """Appends over a client; of ProducerConfig it knows the timeouts, the backoff and the compression. An append takes a round
    trip: a program with many records and no expectation is better off with a Producer."""

    def __init__(self, client: Driven, config: ProducerConfig | None = None, **options: Unpack[ProducerOptions]) -> None:
        self._appends = Appends(producer_config(config, options), client.driver)

    async def append(
        self,
        topic: str,
        records: Iterable[bytes | PlainRecord],
        *,
        partition: int = 0,
        expected_offset: int | None = None,
    ) -> AppendResult:
        """Append values, or PlainRecords, as one batch; with `expected_offset` only if the partition ends there.

        Raises ExpectedOffsetError, whose `log_end_offset` says where it does; nothing is appended then. What may pass is
        tried again for `delivery_timeout_ms`. Cancelled, or after another error than that one: whether it was appended is
        unknown.
        """
        return await self._appends.append(TopicPartition(topic, partition), records, expected_offset=expected_offset)


__all__ = ["AppendResult", "Appender", "ExpectedOffsetError"]
