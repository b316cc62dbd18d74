"""Appends one by one, for trio programs that decide by what they have read: each is made at the end that was expected, or not
at all, and once however often it has to be sent (see `sending.append_once`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import trio

from ...protocol.errors import ExpectedOffsetError
from ...protocol.native.messages import PlainRecord
from ...protocol.types import TopicPartition
from .config import ProducerConfig
from .connection import Client, TrioDriver
from .sending.append_once import Appended, Appends


class Appender:
    """Appends over a client; of ProducerConfig it knows the timeouts, the backoff and the compression. An append takes a round
    trip: who has many records and no expectation is better off with a Producer."""

    def __init__(self, client: Client, config: ProducerConfig | None = None, **options: Any) -> None:
        self._driver = TrioDriver(client)
        self._appends = Appends(attrs.evolve(ProducerConfig() if config is None else config, **options))
        self._turn = trio.Lock()

    async def append(
        self,
        topic: str,
        records: Iterable[bytes | PlainRecord],
        *,
        partition: int = 0,
        expected_offset: int | None = None,
    ) -> Appended:
        """Append values, or PlainRecords, as one batch; with `expected_offset` only if the partition ends there.

        Raises ExpectedOffsetError, whose `log_end_offset` says where it does; nothing is appended then. What may pass is
        tried again for `delivery_timeout_ms`. Cancelled, or after another error than that one: whether it was appended is
        unknown.
        """
        append = self._appends.begin(TopicPartition(topic, partition), records, expected_offset)
        async with self._turn:
            return await self._appends.make(append, self._driver)


__all__ = ["Appended", "Appender", "ExpectedOffsetError"]
