"""The native call `describe_segments`: values in, values out. It looks at snapshots and reads nothing."""

from __future__ import annotations

from typing import Final

from .....protocol.errors import RequestError
from .....protocol.limits import MAX_DESCRIBED_GAPS
from .....protocol.native import messages
from .....protocol.types import NO_OFFSET
from ....broker import Broker, LogDescription
from ....loop.procedures import in_turns

SEGMENTS_PER_TURN: Final = 64
"""A segment takes 5 us, or 15 when it has its most stretches of timestamps."""


async def describe_segments(broker: Broker, message: messages.DescribeSegmentsRequest) -> messages.DescribeSegmentsResponse:
    segments_left, gaps_left = message.max_segments, MAX_DESCRIBED_GAPS
    answers = []
    async for each in in_turns(message.partitions):
        try:
            log = broker.logs.describe(each.topic_partition)
        except RequestError as exc:
            answers.append(messages.DescribeSegmentsPartitionResponse(*each.topic_partition, exc.as_answer()))
            continue
        answer = await _described(each, log, segments_left, gaps_left)
        segments_left -= len(answer.segments)
        gaps_left -= len(answer.gaps)
        answers.append(answer)
    return messages.DescribeSegmentsResponse(tuple(answers))


async def _described(
    asked: messages.DescribeSegmentsPartition, log: LogDescription, max_segments: int, max_gaps: int
) -> messages.DescribeSegmentsPartitionResponse:
    snapshot = log.snapshot
    first = max(0, snapshot.slot_of(asked.from_offset))
    told = range(first, min(len(snapshot), first + max_segments))
    gaps = [gap for gap in snapshot.gaps if gap.end_offset > asked.from_offset]
    return messages.DescribeSegmentsPartitionResponse(
        *asked.topic_partition,
        error=None,
        log_start_offset=snapshot.log_start_offset,
        log_end_offset=snapshot.log_end_offset,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        recovery_point=log.recovery_point,
        cleaned_up_to=NO_OFFSET if log.clean_up_to is None else log.clean_up_to,
        size_bytes=snapshot.size_in_bytes,
        segment_count=len(snapshot),
        waiting=None if log.waiting is None else log.waiting.message,
        segments=tuple([_segment(log, slot) async for slot in in_turns(told, SEGMENTS_PER_TURN)]),
        left_out=len(snapshot) - first - len(told),
        gaps=tuple(
            messages.Gap(gap.start_offset, gap.end_offset, gap.side_file, found_ms=gap.found_ms, accepted_ms=gap.accepted_ms)
            for gap in gaps[:max_gaps]
        ),
        gaps_left_out=max(0, len(gaps) - max_gaps),
    )


def _segment(log: LogDescription, slot: int) -> messages.DescribedSegment:
    snapshot = log.snapshot
    view, is_active = snapshot.segment(slot), slot == len(snapshot.inactive)
    next_offset = snapshot.log_end_offset if is_active else snapshot.segment(slot + 1).base_offset
    return messages.DescribedSegment(
        base_offset=view.base_offset,
        next_offset=next_offset,
        size_bytes=view.size,
        least_timestamp=view.least_timestamp,
        max_timestamp=view.max_timestamp,
        is_active=is_active,
        is_cleaned=not is_active and log.clean_up_to is not None and next_offset <= log.clean_up_to,
        offset_index_entries=view.offset_entries,
        time_index_entries=view.time_entries,
        transaction_index_entries=view.transaction_entries,
    )
