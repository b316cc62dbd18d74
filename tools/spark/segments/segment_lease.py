"""Segment files of a running server that stay while they are read: the call `lease_segments`.

The server gives its files names of their own, which neither retention nor compaction takes away before the lease ends. A task
renews the lease when it begins and while it reads; a lease that nobody renews ends after `leaseMs`, so a task that waits
longer for its turn finds no files (SegmentGoneError). Nobody ends it earlier: a batch read is not told when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import attrs

from ....protocol.limits import INT64_MAX
from ....protocol.native.messages import LeasePartitionResponse
from ....protocol.types import TopicPartition
from ...segments.segment_log import PartitionLog, SegmentFile
from ..source.broker import Broker
from ..source.options import ReadOptions

_RENEWALS: Final = 3
"""In the time of one lease, so that two may come late."""


@attrs.frozen
class SegmentLease:
    """A lease and who gave it. Picklable."""

    options: ReadOptions
    lease_id: str
    lease_ms: int

    def keeper(self) -> Callable[[], None]:
        """A function to call often, which renews the lease when it is time; for the first time now.

        Raises RequestError when the lease has ended, BrokerUnavailableError.
        """
        renewed_at = -float("inf")

        def renew() -> None:
            nonlocal renewed_at
            if time.monotonic() - renewed_at >= self.lease_ms / 1000 / _RENEWALS:
                Broker(self.options).lease_segments([], self.lease_ms, self.lease_id)
                renewed_at = time.monotonic()

        return renew


def lease_logs(options: ReadOptions, lease_ms: int) -> tuple[SegmentLease, list[PartitionLog]]:
    """Lease the partitions that are selected, as they are now, up to the high watermark.

    TopicMissingError, RequestError for a partition that cannot be leased, BrokerUnavailableError.
    """
    broker = Broker(options)
    response = broker.lease_segments(list(broker.ranges()), lease_ms)
    return SegmentLease(options, response.lease_id, lease_ms), [_log_of(entry) for entry in response.partitions]


def _log_of(entry: LeasePartitionResponse) -> PartitionLog:
    ends = [segment.base_offset for segment in entry.segments[1:]] + [INT64_MAX]
    return PartitionLog(
        topic_partition=TopicPartition(entry.topic, entry.partition),
        segments=tuple(
            SegmentFile(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                path=segment.path,
                size_bytes=segment.size_bytes,
                is_leased=True,
            )
            for segment, end_offset in zip(entry.segments, ends, strict=False)
        ),
        log_start_offset=entry.log_start_offset,
        end_offset=entry.high_watermark,
        directory=entry.directory or "",
        last_stable_offset=entry.last_stable_offset,
    )
