"""The keywords of producers, consumers and appenders, for type checkers and completion.

Invariant: each dictionary has the fields of its class in `config`, with their types, as a test compares.
"""

from __future__ import annotations

from typing import TypedDict

import attrs

from ...protocol.types import CompressionType, Isolation
from .config import ConsumerConfig, ProducerConfig


class ProducerOptions(TypedDict, total=False):
    """The fields of ProducerConfig."""

    acks: int
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    linger_ms: int
    batch_bytes: int
    max_request_bytes: int
    buffer_bytes: int
    max_block_ms: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    compression_type: CompressionType | int
    compression_level: int | None


class ConsumerOptions(TypedDict, total=False):
    """The fields of ConsumerConfig."""

    follow: bool
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    prefetch_bytes: int
    check_crcs: bool
    isolation: Isolation | str
    skip_gaps: bool | None
    group: str | None
    offset_reset: str | None
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    retry_timeout_ms: int


def producer_config(config: ProducerConfig | None, options: ProducerOptions) -> ProducerConfig:
    """Return the settings of a producer: `config`, or the defaults, with the options in place of theirs. Raises TypeError."""
    return attrs.evolve(ProducerConfig() if config is None else config, **options)


def consumer_config(config: ConsumerConfig | None, options: ConsumerOptions) -> ConsumerConfig:
    """Return the settings of a consumer: `config`, or the defaults, with the options in place of theirs. Raises TypeError."""
    return attrs.evolve(ConsumerConfig() if config is None else config, **options)
