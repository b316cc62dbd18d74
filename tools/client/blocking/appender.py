"""Appends one by one, for programs without trio that decide by what they have read; see `Appender`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from ....protocol.errors import ExpectedOffsetError
from ....protocol.native.messages import PlainRecord
from ....protocol.types import TopicPartition
from ..backoff import Backoff, Retries
from ..config import ProducerConfig
from ..sending.append_once import Append, Appended, Appends
from .client import BlockingClient


class BlockingAppender:
    """Appends over a client; of ProducerConfig it knows the timeouts, the backoff and the compression. Owner: one thread, the
    client's."""

    def __init__(self, client: BlockingClient, config: ProducerConfig | None = None, **options: Any) -> None:
        self._client = client
        self._config = attrs.evolve(ProducerConfig() if config is None else config, **options)
        self._appends = Appends(self._config)

    def append(
        self,
        topic: str,
        records: Iterable[bytes | PlainRecord],
        *,
        partition: int = 0,
        expected_offset: int | None = None,
    ) -> Appended:
        """Append values, or PlainRecords, as one batch; with `expected_offset` only if the partition ends there.

        Raises ExpectedOffsetError, whose `log_end_offset` says where it does; nothing is appended then. What may pass is
        tried again for `delivery_timeout_ms`. After another error whether it was appended is unknown.
        """
        append = self._appends.begin(TopicPartition(topic, partition), records, expected_offset)
        try:
            return self._append(append)
        except ExpectedOffsetError:
            raise
        except BaseException:
            self._appends.give_up()
            raise

    def _append(self, append: Append) -> Appended:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        retries = Retries(self._config.delivery_timeout_ms / 1000, backoff=backoff)
        return self._client.retried(lambda: self._client.run(self._appends.attempt(append)), retries)
