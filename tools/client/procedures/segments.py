"""The segments of logs, as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....protocol.limits import DEFAULT_DESCRIBED_SEGMENTS
from ....protocol.native.messages import (
    DescribeSegmentsPartition,
    DescribeSegmentsPartitionResponse,
    DescribeSegmentsRequest,
)
from ....protocol.types import TopicPartition
from .topics import Procedure, partitions_of


def describe_segments(
    places: Iterable[str | TopicPartition],
    from_offsets: Mapping[TopicPartition, int] | None = None,
    max_segments: int = DEFAULT_DESCRIBED_SEGMENTS,
) -> Procedure[list[DescribeSegmentsPartitionResponse]]:
    """Logs and segments of these partitions, and of all of each topic that is named without one; `from_offsets` says where to
    begin in a partition. One that cannot be described has an error."""
    partitions = yield from partitions_of(places)
    begin = from_offsets or {}
    asked = tuple(DescribeSegmentsPartition(*partition, begin.get(partition, 0)) for partition in partitions)
    response = yield DescribeSegmentsRequest(asked, max_segments)
    return list(response.partitions)
