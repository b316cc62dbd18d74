"""How a share group behaves, as its configuration says (Kafka: GroupConfig, ShareGroupConfig; KIP-932, KIP-1222)."""

from __future__ import annotations

import enum
from typing import Final

import attrs

from ....protocol.types import Isolation


class OffsetReset(enum.Enum):
    """Where a group begins in a partition that it has never read: `share.auto.offset.reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@attrs.frozen(kw_only=True)
class ShareConfig:
    """The values of one group; Kafka's defaults."""

    offset_reset: OffsetReset = OffsetReset.LATEST
    offset_reset_duration_ms: int = 0
    """How far back BY_DURATION begins."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    """`share.isolation.level`."""
    record_lock_duration_ms: int = 30_000
    """`share.record.lock.duration.ms`: so long a member may take for a record."""
    delivery_count_limit: int = 5
    """`share.delivery.count.limit`: a record that is given back after so many deliveries is archived."""
    partition_max_record_locks: int = 2_000
    """`share.partition.max.record.locks`: offsets of a partition between the first that is not done and the last that was
    given to a member."""
    renew_acknowledge_enabled: bool = True
    """`share.renew.acknowledge.enable`."""
    session_timeout_ms: int = 45_000
    """`share.session.timeout.ms`."""
    heartbeat_interval_ms: int = 5_000
    """`share.heartbeat.interval.ms`."""


DEFAULT_SHARE_CONFIG: Final = ShareConfig()
