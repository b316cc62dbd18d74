"""The native calls of readers that share a log or read its files: values in, values out."""

from __future__ import annotations

from pathlib import Path

import trio

from ....protocol.errors import InvalidRequestError, RequestError
from ....protocol.limits import MAX_SPLIT_POINTS
from ....protocol.native import messages
from ...broker import Broker, LeasedPartition


async def split_points(broker: Broker, message: messages.SplitPointsRequest) -> messages.SplitPointsResponse:
    max_points = max(1, MAX_SPLIT_POINTS // max(1, len(message.partitions)))
    answers = []
    for each in message.partitions:
        try:
            points = await broker.reader.split_points(
                each.topic_partition, each.start, each.end, each.target_bytes, max_points=max_points
            )
        except RequestError as exc:
            answers.append(messages.SplitPointsPartitionResponse(*each.topic_partition, exc.as_answer()))
        else:
            found = tuple(messages.SplitPoint(*point) for point in points)
            answers.append(messages.SplitPointsPartitionResponse(*each.topic_partition, None, found))
        await trio.lowlevel.checkpoint()
    return messages.SplitPointsResponse(tuple(answers))


async def lease_segments(broker: Broker, message: messages.LeaseSegmentsRequest) -> messages.LeaseSegmentsResponse:
    asked = [each.topic_partition for each in message.partitions]
    if message.lease_id is None:
        lease = await broker.leases.take(asked, message.lease_ms)
    else:
        lease = await broker.leases.renew(message.lease_id, message.lease_ms)
    answers = []
    for topic_partition in asked:
        found = lease.partitions.get(topic_partition)
        if isinstance(found, LeasedPartition):
            answers.append(_leased(found))
        else:
            error = found or InvalidRequestError(f"{topic_partition} is not part of lease {lease.lease_id}; take another one")
            answers.append(messages.LeasePartitionResponse(*topic_partition, error.as_answer()))
    return messages.LeaseSegmentsResponse(lease.lease_id, tuple(answers))


def _leased(found: LeasedPartition) -> messages.LeasePartitionResponse:
    directory = str(Path(found.directory).absolute())
    return messages.LeasePartitionResponse(
        *found.topic_partition,
        None,
        directory,
        found.log_start_offset,
        found.high_watermark,
        found.last_stable_offset,
        tuple(messages.LeasedSegment(each.base_offset, f"{directory}/{each.name}", each.size_bytes) for each in found.segments),
    )
